"""The sender thread's other duties: metadata, expiry of old batches, failed connections, metrics.

Sender thread only.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Final

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.queues.placement import Placement
from kafkaprod._core.requests.drain import Drain
from kafkaprod._core.requests.settlement import (
    BatchRef,
    abort_batches,
    close_open_batches,
    expired_batches,
    incomplete_batches,
    oldest_created_ms,
)
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.identity import MAX_WAIT_MS, Identity
from kafkaprod.engine.memory_shares import MemoryShares
from kafkaprod.engine.node_states import NodeStates
from kafkaprod.engine.outages import RECORDS, Outages
from kafkaprod.engine.topic_watch import TopicWatch
from kafkaprod.errors import AuthenticationError, ConnectionLostError, DeliveryTimeoutError, KafkaError, broker_code
from kafkaprod.metadata import Metadata
from kafkaprod.metrics import ProducerMetrics
from kafkaprod.net.node_state import HEAD_START_MS, ConnectionFailure
from kafkaprod.net.pool import NodePool
from kafkaprod.protocol.error_codes import ErrorCode, error_for
from kafkaprod.protocol.in_flight import InFlightRequest
from kafkaprod.text import counted

if TYPE_CHECKING:
    from kafkaprod.spool.spooling import Spool

YOUNG_PARTS: Final = 8  # a batch takes records for no longer than this part of delivery_timeout_ms
LEAST_LOOK_MS: Final = 100  # between looks for such batches, unless delivery_timeout_ms is less than four times that
EXPIRY_MS: Final = 1000  # between looks for batches that expire behind those that are in a spool
OBSERVATION_MS: Final = 100  # least time between copies of the network's counters into the metrics

logger = logging.getLogger("kafkaprod.engine.upkeep")


class Upkeep:
    """Keeps one producer's metadata, batches and metrics up to date.

    Attributes:
        topic_names: Names by topic id, of every id ever seen: an answer may name a deleted topic.
        last_errors: By topic and partition, when and what the last error was that led to a retry; empty when nothing
            waits.
        outages: What is refused for long.
        is_observed: Whether the metrics are up to date with the network's counters.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        drain: Drain,
        placement: Placement,
        pool: NodePool,
        metadata: Metadata,
        topic_watch: TopicWatch,
        metrics: ProducerMetrics,
        identity: Identity,
        shares: MemoryShares,
        states: NodeStates,
        spool: Spool | None = None,
    ) -> None:
        self._config = config
        self._accumulator = accumulator
        self._drain = drain
        self._placement = placement
        self._shares = shares
        self._states = states
        self._pool = pool
        self._metadata = metadata
        self._topic_watch = topic_watch
        self._metrics = metrics
        self._identity = identity
        self._spool = spool
        self.outages = Outages(config.retry_backoff_max_ms)
        self._next_observation_ms = 0
        self._next_closing_ms = 0
        self._next_expiry_ms = 0
        self._last_answering_node: int | None = None
        self._unapplied: dict[str, KafkaError] = {}  # topics whose metadata could not be applied, and why
        self.last_errors: dict[tuple[str, int], tuple[int, KafkaError]] = {}
        self.topic_names: dict[uuid.UUID, str] = {}
        self.is_observed = True

    # -- metadata ------------------------------------------------------------------------------------------------------

    def refresh_metadata(self, now_ms: int) -> int:
        """Request metadata if that is due; return how long nothing more will be due."""
        for topic in self._topic_watch.take_wanted():
            self._metadata.add_topic(topic, now_ms)
        delay_ms = self._metadata.next_refresh_ms(now_ms)
        if delay_ms > 0 and not self._pool.is_rebootstrap_required:
            return delay_ms
        node_id = self._node_for_metadata(now_ms)
        is_any_usable = node_id is not None or self._pool.is_any_connected or self._pool.members.is_any_untried
        if self._pool.is_rebootstrap_required or self._metadata.should_rebootstrap(
            now_ms, is_any_node_usable=is_any_usable
        ):
            self._metadata.on_rebootstrap(now_ms)
            self._pool.rebootstrap()
            self._identity.note_cluster(is_known=False)
            return 0
        if node_id is None:
            return self.shortest_delay(now_ms)
        if not self._pool.is_ready(node_id, now_ms):
            # Connecting: its end wakes the poll. Beside a silent bootstrap server the next one is tried.
            return HEAD_START_MS if node_id < 0 and len(self._pool.node_ids()) > 1 else MAX_WAIT_MS
        for topic in self._metadata.forget_idle_topics(now_ms, self._accumulator.take_used):
            self._accumulator.forget_topic(topic)
        for topic in self._accumulator.forgotten_topics_in_use():
            self._metadata.add_topic(topic, now_ms)
        request = self._metadata.make_request(now_ms)
        try:
            self._pool.send(
                node_id, request, on_done=self._on_metadata, now_ms=now_ms, timeout_ms=self._config.request_timeout_ms
            )
        except Exception as error:
            self._metadata.on_failure(error, now_ms)  # else it would wait for an answer for ever
            raise
        return MAX_WAIT_MS

    def _node_for_metadata(self, now_ms: int) -> int | None:
        """Return the least loaded node, another than the last time if that answer did not help.

        A broker that is cut off from its cluster answers with old metadata, and would be asked again and again: the
        batches go to the others, so it is the least loaded.
        """
        if self._metadata.seeks_another_opinion and self._last_answering_node is not None:
            other = self._pool.least_loaded_node(now_ms, other_than=self._last_answering_node)
            if other is not None and self._pool.is_ready(other, now_ms):  # connects it otherwise, for the next time
                return other
        return self._pool.least_loaded_node(now_ms)

    def shortest_delay(self, now_ms: int) -> int:
        """Return how long until some node may be tried again."""
        delays = [self._pool.ready_delay_ms(node_id, now_ms) for node_id in self._pool.node_ids()]
        return min((delay for delay in delays if delay is not None), default=MAX_WAIT_MS)

    def _on_metadata(self, done: InFlightRequest, now_ms: int) -> None:
        if done.error is not None:
            self._metadata.on_failure(done.error, now_ms)
            if self._topic_watch.is_connected:
                self._topic_watch.tell_trouble(done.error, is_hopeless=False)
            return
        self._last_answering_node = done.node_id
        try:
            refused = self._metadata.on_response(done.response, done.version, now_ms)
        except MemoryError:
            raise
        except Exception as error:  # requested again, of whichever broker is the least loaded then
            self._metadata.on_failure(error, now_ms)
            raise
        if refused is not None:
            is_lost = self._metadata.is_cluster_lost
            self._topic_watch.tell_trouble(refused, is_hopeless=is_lost)
            if is_lost:
                abort_batches(self._accumulator, refused)
            return
        self._identity.note_cluster(is_known=True)
        self.apply_metadata(now_ms)
        self._topic_watch.tell(self._metadata.take_topic_errors(), self._metadata.take_missing() | self._unapplied)

    def apply_metadata(self, now_ms: int) -> None:
        """Apply changed metadata to the core's leaders and the pool's nodes."""
        changed = self._metadata.take_changes()
        snapshot = self._metadata.snapshot
        changed += [name for name in self._unapplied if name in snapshot.topics and name not in changed]
        self._unapplied = {}
        self._pool.update_nodes(
            snapshot.nodes, None if self._config.metadata_cluster_check_enable is False else snapshot.cluster_id
        )
        if self._metadata.take_new_cluster():
            self._leave_former_cluster(snapshot.cluster_id, now_ms)
        rack = self._config.client_rack
        if rack and self._config.partitioner_rack_aware:
            self._placement.prefer_nodes(node_id for node_id, node in snapshot.nodes.items() if node.rack == rack)
        for name in changed:
            topic = snapshot.topics[name]
            try:
                self._accumulator.set_topic(name, topic.leaders, topic.leader_epochs, topic.topic_id)
            except MemoryError:
                raise
            except Exception as error:  # of this topic alone: it is the reason for who waits, and tried again
                logger.exception("the metadata of topic %r could not be applied", name)
                self._unapplied[name] = KafkaError(f"its metadata could not be applied: {error!r}", topic=name)
                continue
            if topic.topic_uuid is not None:
                self.topic_names[topic.topic_uuid] = name
            self.fail_removed_partitions(name)
            if self._spool is not None:
                self._spool.note_topic(name, topic.topic_id, len(topic.leaders))
        if self._spool is not None:
            self._spool.note_cluster(snapshot.cluster_id)
        if changed:
            self._drain.update_leaders()
            self._placement.update_leaders()
            self._shares.set_leaders(leader for topic in snapshot.topics.values() for leader in topic.leaders)

    def fail_removed_partitions(self, topic: str) -> None:
        """Fail the records of partitions that are gone: the topic was deleted and created with fewer of them."""
        queues = self._accumulator.topics.get(topic)
        if queues is None or not queues.has_removed_partitions:
            return
        for ref in incomplete_batches(self._accumulator):
            if ref.topic == topic and ref.is_partition_removed:
                what = f"topic {topic!r} was deleted and created again with fewer partitions"
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                error = error_for(code, about=what, topic=topic, partition=ref.partition)
                if self._spool is not None:
                    self._spool.note_refusal(ref, error)
                ref.fail(error)

    def _leave_former_cluster(self, cluster_id: str | None, now_ms: int) -> None:
        """Give what waits new numbers: another cluster knows no producer id of the former one.

        A batch that may be in the log of the former cluster is not written a second time: it fails.
        """
        if not self._identity.on_new_cluster():
            return
        for ref in incomplete_batches(self._accumulator):
            if ref.producer[2] < 0 or ref.state != "closed" or ref.forget_sequence():
                continue  # one in a request is judged by its answer
            error = ConnectionLostError(
                f"{counted(ref.record_count, 'record')} for {ref.topic}[{ref.partition}] had no answer before the "
                f"cluster became another one ({cluster_id!r}): they may be in the log of the former one",
                possibly_persisted=True,
                topic=ref.topic,
                partition=ref.partition,
            )
            self._metrics.on_error(ref.topic, ref.record_count, now_ms)
            ref.fail(error, maybe_persisted=True)

    # -- connections ---------------------------------------------------------------------------------------------------

    def on_connection_failure(self, failure: ConnectionFailure) -> None:
        """Report a failed connection to callers that wait for metadata; refused credentials fail queued records.

        Not so if they were accepted before and rotate: the broker may have the new ones before the client has them.
        """
        level = logging.INFO if failure.was_idle else logging.WARNING if failure.attempt == 1 else logging.DEBUG
        logger.log(level, "connection to %s:%d ended at stage %s: %s", *failure.node[1:3], failure.stage, failure.error)
        self._identity.note_cluster(is_known=False)
        self._shares.on_no_answer(failure.node.node_id)
        self._metadata.request_update()
        refusal = failure.error
        if isinstance(refusal, AuthenticationError) and not self._pool.may_be_accepted_later(refusal):
            abort_batches(self._accumulator, refusal, unsent_only=True)
            self._identity.on_refused_connection(refusal)
        if not self._topic_watch.is_connected:
            self._topic_watch.tell_trouble(
                self._pool.members.bootstrap_error(), is_hopeless=self._pool.members.is_bootstrap_hopeless
            )

    # -- expiry --------------------------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> int:
        """Fail batches older than delivery_timeout_ms, sent or not; return when the next one will be."""
        timeout_ms = self._config.delivery_timeout_ms
        oldest = oldest_created_ms(self._accumulator)
        if oldest is None:
            self.last_errors.clear()  # they are of batches that have their outcome by now
            self.outages.end(RECORDS)
            return MAX_WAIT_MS
        if oldest + timeout_ms <= now_ms:
            if now_ms < self._next_expiry_ms:
                return self._next_expiry_ms - now_ms
            if self._spool is None or self._spool.is_full:  # else all is stored, and has time
                for ref in expired_batches(self._accumulator, now_ms - timeout_ms):
                    if not ref.is_stored:
                        self._fail_expired(ref, now_ms)
            oldest = oldest_created_ms(self._accumulator)
            if oldest is None:
                return MAX_WAIT_MS
            if oldest + timeout_ms <= now_ms:
                self._next_expiry_ms = now_ms + EXPIRY_MS
                return EXPIRY_MS
        return int(min(oldest + timeout_ms - now_ms, self._close_old_batches(oldest, now_ms)))

    def _close_old_batches(self, oldest_ms: int, now_ms: int) -> int:
        """Close open batches that are no longer young; return when to look again.

        Behind a node that takes nothing a batch would grow for long, and expire with its first record. The batches
        of such a node may be many: they are looked through four times in the time that a batch is young, at most, and
        where that is short, less often.
        """
        young_ms = self._config.delivery_timeout_ms // YOUNG_PARTS
        due_ms = max(oldest_ms + young_ms, self._next_closing_ms)
        if due_ms > now_ms:
            return due_ms - now_ms
        close_open_batches(self._accumulator, now_ms - young_ms)
        look_again_ms = max(young_ms // 4, min(2 * young_ms, LEAST_LOOK_MS), 1)
        self._next_closing_ms = now_ms + look_again_ms
        return look_again_ms

    def _fail_expired(self, ref: BatchRef, now_ms: int) -> None:
        may_be_in_log = ref.state == "sent" or ref.maybe_persisted
        cause = self._why_late(ref)
        refusal = self._identity.last_refusal
        if refusal is not None and broker_code(refusal) is None:  # a lost connection, which has a reason of its own
            cause, refusal = cause or refusal, None
        error = DeliveryTimeoutError(
            f"{counted(ref.record_count, 'record')} for {ref.topic}[{ref.partition}] had no outcome within "
            f"delivery_timeout_ms={self._config.delivery_timeout_ms}"
            + ("; they may be in the log" if may_be_in_log else "")
            + (f"; a quota of node {ref.leader} held this producer back" if self._was_throttled(ref, now_ms) else "")
            + ("; the partition has no leader" if ref.leader < 0 else "")
            + ("" if refusal is None else f"; before records can be sent: {refusal}")
            + ("" if cause is None else f"; the last error: {cause}"),
            possibly_persisted=may_be_in_log,
            topic=ref.topic,
            partition=ref.partition,
        )
        error.__cause__ = cause or refusal
        self._metrics.on_error(ref.topic, ref.record_count, now_ms)
        self._identity.on_batch_failed(ref, error)
        ref.fail(error)

    def note_refusal(self, topic: str, partition: int, error: KafkaError, now_ms: int) -> None:
        """Keep why records of a partition are sent again, for errors and the log."""
        self.last_errors[topic, partition] = (now_ms, error)
        self.outages.note(RECORDS, error, now_ms, (topic, partition))

    def why_records_wait(self) -> KafkaError | None:
        """Return the newest reason why some records wait or are sent again; None: nothing is known. Thread-safe."""
        refusals = list(self.last_errors.values())  # in one step: the sender adds others meanwhile
        refused = max(refusals, key=lambda refusal: refusal[0])[1] if refusals else None
        other = self._identity.last_refusal or self._metadata.last_refusal
        return refused or other or self._pool.members.why_not_connected()

    def _was_throttled(self, ref: BatchRef, now_ms: int) -> bool:
        """Return whether the batch's leader throttled while the batch waited."""
        return self._states.throttled_until_ms(ref.leader) > now_ms - self._config.delivery_timeout_ms

    def _why_late(self, ref: BatchRef) -> KafkaError | None:
        """Return the newest of what delayed a batch: a failed connection, refused metadata, its partition's error."""
        members = self._pool.members
        last_ms, last = self.last_errors.get((ref.topic, ref.partition), (-1, None)) if ref.attempts else (-1, None)
        if last is not None and last_ms > members.newest_failure_ms(ref.leader) and self._metadata.last_refusal is None:
            return last
        failure = members.last_failure(ref.leader)
        if failure is not None:
            return failure.error
        return self._metadata.last_refusal or members.why_not_connected() or last

    # -- metrics -------------------------------------------------------------------------------------------------------

    def observe(self, now_ms: int) -> int:
        """Copy the counters of nodes and loop into the metrics if that is due; return when it is due again."""
        if now_ms >= self._next_observation_ms:
            self._next_observation_ms = now_ms + OBSERVATION_MS
            self.is_observed = True
            self._metrics.observe_nodes(self._pool.metrics(), now_ms)
            self._metrics.observe_loop(self._pool.poll_count, self._pool.wait_ns, now_ms)
        return MAX_WAIT_MS if self.is_observed else self._next_observation_ms - now_ms
