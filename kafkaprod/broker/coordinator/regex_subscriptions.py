"""The topics that the regular expressions of a consumer group match.

A group resolves an expression once for all members who have it, with the rights of the member whose heartbeat asks: it
matches the topics which that client may describe. It is resolved when a member brings it, when topics have changed, and
after `group.consumer.regex.refresh.interval.ms`. Source: Kafka, GroupMetadataManager and ConsumerGroup.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kafkaprod.broker.coordinator import consumer_records
from kafkaprod.storage.internal_records import KeyValue


class SubscribableTopic(NamedTuple):
    """A topic that exists."""

    topic_id: uuid.UUID
    partition_count: int


Topics = Mapping[str, SubscribableTopic]
MatchTopics = Callable[[str, Topics], frozenset[str]]
"""Names of the topics that an expression matches; RequestRefusedError INVALID_REGULAR_EXPRESSION if it is invalid."""


class RegexSubscriptions:
    """See the module docstring. One thread."""

    def __init__(self, group_id: str, match_topics: MatchTopics) -> None:
        self._group_id = group_id
        self._match_topics = match_topics
        self._names: dict[str, frozenset[str]] = {}
        self._resolved: dict[str, tuple[Topics, int]] = {}  # which topics there were, and when

    def restore(self, names: Mapping[str, frozenset[str]]) -> None:
        """Take over what the records have."""
        self._names = dict(names)

    def names(self, regex: str) -> frozenset[str]:
        """Return the topics of an expression; none before `refresh`."""
        return self._names.get(regex, frozenset())

    def refresh(
        self, regex: str, topics: Topics, may_see: Callable[[str], bool], now_ms: int, interval_ms: int
    ) -> KeyValue | None:
        """Resolve an expression if that is due; return the record if its topics have changed.

        Raises:
            RequestRefusedError: INVALID_REGULAR_EXPRESSION, it is invalid.
        """
        known = self._resolved.get(regex)
        if known is not None and known[0] is topics and now_ms - known[1] < interval_ms:
            return None
        names = frozenset(filter(may_see, self._match_topics(regex, topics)))
        self._resolved[regex] = topics, now_ms
        if self._names.get(regex) == names:
            return None
        self._names[regex] = names
        return consumer_records.regex_record(self._group_id, regex, names)

    def retain(self, regexes: Iterable[str]) -> list[KeyValue]:
        """Forget all expressions but these; return the records."""
        gone = self._names.keys() - set(regexes)
        for regex in gone:
            del self._names[regex]
            self._resolved.pop(regex, None)
        return [consumer_records.regex_tombstone(self._group_id, regex) for regex in sorted(gone)]
