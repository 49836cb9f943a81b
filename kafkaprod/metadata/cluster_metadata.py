"""The topics that are followed, the requests for them, and what the answers change. Pure: no I/O, clock or lock.

The sender checks `next_refresh_ms`, sends `make_request`, reports `on_response` or `on_failure`, and applies
`take_changes`. All calls are made on the sender thread; any thread may read `snapshot`.
Source: org.apache.kafka.clients.Metadata, ProducerMetadata; KIP-526 (idle topics), KIP-951 (leader hints), KIP-516
(topic ids), KIP-899 and KIP-1102 (rebootstrap).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from kafkaprod.config import ProducerConfig
from kafkaprod.errors import CorruptDataError, KafkaError, printable
from kafkaprod.metadata.refresh import RefreshSchedule
from kafkaprod.metadata.snapshot import ClusterSnapshot, TopicMetadata, merge_topic, read_topic
from kafkaprod.protocol.error_codes import ErrorCode, describe, error_for
from kafkaprod.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kafkaprod.retry import ExponentialBackoff, Random
from kafkaprod.structs import Node

FIRST_VERSION_WITH_EPOCHS: Final = 9  # before it epochs may come from a broker that does not keep them (KAFKA-9212)

logger = logging.getLogger("kafkaprod.metadata")


class BrokerAddress(Protocol):
    """The address of a broker in a response."""

    node_id: int
    host: str
    port: int
    rack: str | None


class _Query(NamedTuple):
    """The request in flight."""

    topics: tuple[str, ...]
    is_full: bool


class Metadata:
    """The cluster as the producer knows it.

    Args:
        config: The producer's options.
        now_ms: The time.
        random: Source of jitter.
        keeps_cluster: Whether starting over may lead to no other cluster, whatever the options say.
        cluster_id: The only cluster whose answers are taken from the first one on; None: that of the first answer.

    Attributes:
        snapshot: Replaced, never changed; may be read by any thread.
    """

    def __init__(
        self,
        config: ProducerConfig,
        now_ms: int = 0,
        *,
        random: Random = random.random,
        keeps_cluster: bool = False,
        cluster_id: str | None = None,
    ) -> None:
        self._config = config
        backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._schedule = RefreshSchedule(config.metadata_max_age_ms, backoff, random)
        self._followed: dict[str, int] = {}  # topic -> when it was last used, monotonic ms
        self._is_full_wanted = True
        self._wanted: dict[str, None] = {}  # topics of the next partial refresh
        self._query: _Query | None = None
        self._is_rebootstrap_required = False
        self._cluster_id = cluster_id  # the last one accepted; kept when the client starts over
        self._has_new_cluster = False
        self._continues = keeps_cluster
        self._keeps_cluster = keeps_cluster or bool(config.metadata_cluster_check_enable)
        self._answers_of_another = 0  # since the last one of the right cluster
        self._refusal: KafkaError | None = None
        self._refused: set[str] = set()  # topics with a permanent error, since the last full refresh
        self._changed: dict[str, None] = {}
        self._hints: dict[str, dict[int, tuple[int, int]]] = {}  # not yet in the snapshot
        self._errors: dict[str, KafkaError] = {}
        self._missing: dict[str, KafkaError] = {}
        self.snapshot = ClusterSnapshot()

    # -- what is wanted ------------------------------------------------------------------------------------------------

    def add_topic(self, topic: str, now_ms: int) -> None:
        """Follow a topic: a new one is requested at once, any other after the backoff."""
        if topic not in self._followed and topic not in self._refused:
            self._schedule.skip_backoff()
        self._followed[topic] = now_ms
        self._wanted[topic] = None

    def request_update(self) -> None:
        """Refresh the whole snapshot after the backoff: it proved stale."""
        self._is_full_wanted = True

    def forget_idle_topics(self, now_ms: int, is_used: Callable[[str], bool]) -> list[str]:
        """Stop following the topics not used for metadata_max_idle_ms; return them.

        Args:
            now_ms: The time.
            is_used: Returns whether a topic is in use now; called only for those that seem idle.
        """
        idle_since_ms = now_ms - self._config.metadata_max_idle_ms
        idle = []
        for topic, used_ms in self._followed.items():
            if used_ms > idle_since_ms or topic in self._wanted:
                continue
            if is_used(topic):
                self._followed[topic] = now_ms
            else:
                idle.append(topic)
        if idle:
            for topic in idle:
                del self._followed[topic]
            left = {name: info for name, info in self.snapshot.topics.items() if name in self._followed}
            self.snapshot = self.snapshot._replace(topics=left)
        return idle

    # -- requests ------------------------------------------------------------------------------------------------------

    def next_refresh_ms(self, now_ms: int) -> int:
        """Return how long until `make_request` is due: 0 now; NEVER_MS while a request is in flight."""
        return self._schedule.delay_ms(now_ms, is_wanted=self._is_full_wanted or bool(self._wanted))

    def age_ms(self, now_ms: int) -> int | None:
        """Return the time since the last full refresh; None before the first."""
        return self._schedule.age_ms(now_ms)

    def make_request(self, now_ms: int) -> MetadataRequest:
        """Make the request to send now; its outcome must be reported to `on_response` or `on_failure`."""
        is_by_age = self._schedule.is_aged(now_ms) and not self._is_wanted
        is_full = self._is_full_wanted or self._schedule.is_aged(now_ms)
        topics = tuple(self._followed if is_full else self._wanted)
        self._query = _Query(topics, is_full)
        self._wanted.clear()
        if is_full:
            self._is_full_wanted = False
        self._schedule.on_request(now_ms, is_by_age=is_by_age)
        return MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=self._config.allow_auto_create_topics,
        )

    @property
    def seeks_another_opinion(self) -> bool:
        """Return whether a refresh is due because something went wrong, and the last answer did not help."""
        return self._is_wanted and self._schedule.had_no_news

    @property
    def _is_wanted(self) -> bool:
        return self._is_full_wanted or bool(self._wanted)

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def on_failure(self, error: BaseException, now_ms: int) -> None:
        """Request the same topics again: the request in flight got no usable answer. Ignored if there is no request."""
        if self._query is None:
            return  # started over meanwhile
        logger.debug("metadata request failed: %s", error)
        query, self._query = self._query, None
        self._is_full_wanted |= query.is_full
        self._wanted.update((topic, None) for topic in query.topics if topic in self._followed)
        self._schedule.on_failure(now_ms)

    def on_response(self, response: MetadataResponse, version: int, now_ms: int) -> KafkaError | None:
        """Apply the answer to the request in flight; return why it is unusable, None if it is not.

        An unusable answer (an error for all of it, no brokers, another cluster's, partitions not numbered from 0 up)
        counts as a failure and changes nothing.
        """
        if self._query is None:
            return None  # started over meanwhile
        try:
            self._check(response)
            self._take(self._query, response, version, now_ms)
        except KafkaError as error:
            # When the client starts over now, what it finds there is the news.
            starts_over = self._is_rebootstrap_required and self._config.metadata_recovery_strategy == "rebootstrap"
            is_passing = starts_over and not self._keeps_cluster
            logger.log(logging.INFO if is_passing else logging.WARNING, "metadata response refused: %s", error)
            self._refusal = error
            self.on_failure(error, now_ms)
            return error
        return None

    def on_leader_hint(
        self, topic: str, partition: int, leader_id: int, leader_epoch: int, endpoints: Iterable[BrokerAddress]
    ) -> None:
        """Take a new leader from a produce response (KIP-951), if it is newer and its address is known."""
        self._add_nodes(endpoints)
        info = self.snapshot.topics.get(topic)
        if info is None or not 0 <= partition < info.partition_count or leader_id not in self.snapshot.nodes:
            return
        hints = self._hints.setdefault(topic, {})
        _, known_epoch = hints.get(partition, (0, info.leader_epochs[partition]))
        if leader_epoch > known_epoch:
            hints[partition] = (leader_id, leader_epoch)

    def take_changes(self) -> list[str]:
        """Return the topics of the snapshot that are new or changed since the last call."""
        self._apply_hints()
        changed = [topic for topic in self._changed if topic in self.snapshot.topics]
        self._changed.clear()
        return changed

    def take_topic_errors(self) -> dict[str, KafkaError]:
        """Return the permanent errors since the last call, by topic; each is returned once."""
        errors, self._errors = self._errors, {}
        return errors

    def take_missing(self) -> dict[str, KafkaError]:
        """Return why topics were missing in the answers since the last call; they are requested again."""
        missing, self._missing = self._missing, {}
        return missing

    def take_new_cluster(self) -> bool:
        """Return whether the cluster became another one since the last call."""
        is_new, self._has_new_cluster = self._has_new_cluster, False
        return is_new

    @property
    def is_cluster_lost(self) -> bool:
        """Return whether what is continued is in another cluster than the one that answers at all addresses.

        One answer does not say so: of several bootstrap servers another one may lead to the right cluster.
        """
        return self._continues and self._answers_of_another > len(self._config.bootstrap_servers)

    @property
    def last_refusal(self) -> KafkaError | None:
        """Return why the last answer was unusable; None if it was not."""
        return self._refusal

    # -- starting over -------------------------------------------------------------------------------------------------

    def should_rebootstrap(self, now_ms: int, *, is_any_node_usable: bool = True) -> bool:
        """Return whether to close all connections and start over from the bootstrap servers.

        That is due when a broker demanded it or answered for another cluster, when metadata requests have failed for
        too long, or when one is due and none of the brokers found so far can be connected.
        """
        if self._config.metadata_recovery_strategy != "rebootstrap":
            return False
        if self._is_rebootstrap_required:
            return True
        if not is_any_node_usable and self.snapshot.nodes and self.next_refresh_ms(now_ms) == 0:
            return True
        tried_ms = self._schedule.tried_for_ms(now_ms, is_wanted=self._is_wanted)
        return tried_ms > self._config.metadata_recovery_rebootstrap_trigger_ms

    def on_rebootstrap(self, now_ms: int) -> None:
        """Forget nodes and leaders, keep topics, request at once: the connections were closed."""
        self._query = None
        self._is_full_wanted = True
        self._is_rebootstrap_required = False
        self._schedule.start_over()
        self._hints.clear()
        topics = {name: info.without_leaders() for name, info in self.snapshot.topics.items()}
        self._changed.update(dict.fromkeys(topics))
        self.snapshot = ClusterSnapshot(topics=topics)

    # -- reading an answer ---------------------------------------------------------------------------------------------

    def _check(self, response: MetadataResponse) -> None:
        """Raise KafkaError for an answer that is unusable as a whole."""
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self.snapshot.nodes:
            self._is_rebootstrap_required = True  # without nodes it has just started over: it waits longer each time
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, api="METADATA")
        if not response.brokers:
            raise CorruptDataError("metadata response without brokers")
        for broker in response.brokers:
            if broker.node_id < 0:
                raise CorruptDataError(
                    f"metadata response names a broker with the id {broker.node_id}, which is negative"
                )
        expected = self._cluster_id if self._keeps_cluster else self.snapshot.cluster_id
        if expected is not None and response.cluster_id not in (expected, None):
            # Without nodes the client has just started over: another bootstrap server may lead to the right cluster.
            self._is_rebootstrap_required = bool(self.snapshot.nodes)
            self._answers_of_another += 1
            raise CorruptDataError(
                f"metadata of cluster {response.cluster_id!r}, expected {expected!r}{self._other_cluster_hint()}"
            )

    def _other_cluster_hint(self) -> str:
        if self._continues:
            return (
                ": another cluster answers at this address, and this producer continues what it wrote to the former "
                "one. No record is sent; let the address lead to that cluster again"
            )
        if self._config.metadata_cluster_check_enable:
            return ": metadata_cluster_check_enable=true takes no other cluster"
        if self._config.metadata_recovery_strategy != "rebootstrap":
            return f": metadata_recovery_strategy={self._config.metadata_recovery_strategy} takes no other cluster"
        return ""

    def _take(self, query: _Query, response: MetadataResponse, version: int, now_ms: int) -> None:
        self._apply_hints()  # they are older than this answer
        nodes = {
            each.node_id: Node(each.node_id, printable(each.host, 255), each.port, each.rack)
            for each in response.brokers
        }
        known = self._comparable_topics(response.cluster_id)
        answers = {each.name: each for each in response.topics if each.name is not None}
        received: dict[str, TopicMetadata] = {}
        is_news = False
        for name in query.topics:
            answer = answers.get(name)
            if answer is not None and answer.error_code == ErrorCode.NONE and answer.partitions:
                info = read_topic(answer, nodes, has_epochs=version >= FIRST_VERSION_WITH_EPOCHS)
                received[name], is_topic_news = merge_topic(known.get(name), info)
                is_news |= is_topic_news
        # Nothing can fail from here on.
        self._query = None
        if query.is_full:
            self._refused.clear()
        for name in query.topics:
            if name not in self._followed:
                received.pop(name, None)
            elif name not in received:
                self._on_missing(name, answers.get(name), known, received)
            elif received[name].has_errors:
                self._wanted[name] = None
        self._replace_snapshot(response, nodes, received)
        self._schedule.on_answer(now_ms, is_full=query.is_full, is_news=is_news)

    def _comparable_topics(self, cluster_id: str | None) -> Mapping[str, TopicMetadata]:
        """Return the topics to compare an answer with; none if it is the first of another cluster."""
        return {} if self._is_another(cluster_id) else self.snapshot.topics

    def _is_another(self, cluster_id: str | None) -> bool:
        return self._cluster_id is not None and cluster_id not in (self._cluster_id, None)

    def _on_missing(
        self,
        name: str,
        answer: MetadataResponseTopic | None,
        known: Mapping[str, TopicMetadata],
        received: dict[str, TopicMetadata],
    ) -> None:
        """Handle a topic that came back with an error or not at all: request it again, or keep its permanent error.

        A known topic keeps its partitions. After a permanent error its leaders refuse the records themselves; if it is
        only missing, its leaders are forgotten until it is back.
        """
        code = ErrorCode.NONE if answer is None else answer.error_code
        if code == ErrorCode.NONE or describe(code).retriable:
            self._wanted[name] = None
            self._missing[name] = error_for(code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=name)
            if name in known:
                received[name] = known[name].without_leaders()
            return
        self._errors[name] = error_for(code, topic=name)
        self._refused.add(name)
        if name not in known:
            del self._followed[name]

    def _replace_snapshot(
        self, response: MetadataResponse, nodes: dict[int, Node], received: dict[str, TopicMetadata]
    ) -> None:
        old = self.snapshot.topics
        self._changed.update((name, None) for name, info in received.items() if old.get(name) != info)
        topics = {name: info for name, info in {**old, **received}.items() if name in self._followed}
        if self._is_another(response.cluster_id):
            logger.warning("the cluster is %r now, it was %r", response.cluster_id, self._cluster_id)
            self._has_new_cluster = True
        self._refusal = None
        self._answers_of_another = 0
        cluster_id = response.cluster_id or self.snapshot.cluster_id
        self._cluster_id = cluster_id or self._cluster_id
        self.snapshot = ClusterSnapshot(nodes, topics, cluster_id, response.controller_id)

    # -- hints of produce responses ------------------------------------------------------------------------------------

    def _add_nodes(self, endpoints: Iterable[BrokerAddress]) -> None:
        received = {
            each.node_id: Node(each.node_id, printable(each.host, 255), each.port, each.rack)
            for each in endpoints
            if each.node_id >= 0
        }
        if not received.items() <= self.snapshot.nodes.items():
            self.snapshot = self.snapshot._replace(nodes={**self.snapshot.nodes, **received})

    def _apply_hints(self) -> None:
        if not self._hints:
            return
        hints, self._hints = self._hints, {}
        topics = dict(self.snapshot.topics)
        for name, changes in hints.items():
            if name in topics and changes:
                topics[name] = topics[name].with_leaders(changes)
                self._changed[name] = None
        self.snapshot = self.snapshot._replace(topics=topics)
