"""The partitions that metadata has changed and that a broker has not followed yet, in the order to follow them.

First those that go, so that a topic's name is free for its successor; then those that are here already, whose leader
may have moved; last those whose logs have to be made, which takes longest. Pure state.
"""

from __future__ import annotations

import uuid
from collections import Counter
from enum import IntEnum

from kafkaprod.broker.metadata.image import PartitionKey


class Presence(IntEnum):
    """What a partition does on this broker by what metadata has changed."""

    GOES = 0
    STAYS = 1
    COMES = 2


class MetadataQueue:
    """See the module docstring."""

    def __init__(self) -> None:
        self._waiting: tuple[dict[PartitionKey, None], ...] = tuple({} for _ in Presence)
        self._presence_of: dict[PartitionKey, Presence] = {}
        self._by_topic: Counter[uuid.UUID] = Counter()

    def __len__(self) -> int:
        return len(self._presence_of)

    def put(self, key: PartitionKey, presence: Presence) -> None:
        """Note that a partition has changed; what was noted of it before is out of date."""
        before = self._presence_of.get(key)
        if before is presence:
            return
        if before is None:
            self._by_topic[key[0]] += 1
        else:
            del self._waiting[before][key]
        self._presence_of[key] = presence
        self._waiting[presence][key] = None

    def take(self) -> PartitionKey | None:
        """Return the next partition, None if there is none."""
        for keys in self._waiting:
            if keys:
                key = next(iter(keys))
                del keys[key]
                del self._presence_of[key]
                self._by_topic[key[0]] -= 1
                if not self._by_topic[key[0]]:
                    del self._by_topic[key[0]]
                return key
        return None

    def has_topic(self, topic_id: uuid.UUID) -> bool:
        """Whether a partition of a topic waits."""
        return topic_id in self._by_topic
