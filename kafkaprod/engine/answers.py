"""Settles produce requests that have ended: plain success in one call of the core, the rest batch by batch.

    on_done -> settle_all (core): everything written
            -> read the response -> a batch each: judge (delivery_rules) -> one function per verdict

A request's memory is released when the request has ended, never when its records expire earlier. Sender thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.requests.produce_request import ProduceRequest
from kafkaprod._core.requests.produce_response import settle_all
from kafkaprod._core.requests.settlement import BatchRef, incomplete_batches
from kafkaprod._core.requests.split import limit_batches, split_batch
from kafkaprod.engine.delivery_rules import RENUMBERING, BatchFacts, BatchVerdict, judge, may_be_persisted
from kafkaprod.engine.endings import Endings
from kafkaprod.engine.identity import Identity
from kafkaprod.engine.paths import Paths
from kafkaprod.engine.upkeep import Upkeep
from kafkaprod.errors import (
    AuthenticationError,
    CorruptDataError,
    KafkaError,
    OutOfOrderSequenceError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kafkaprod.metadata import Metadata
from kafkaprod.metrics import ProducerMetrics
from kafkaprod.net.pool import NodePool
from kafkaprod.protocol.error_codes import ErrorCode, describe, error_for
from kafkaprod.protocol.in_flight import InFlightRequest, OnDone
from kafkaprod.protocol.messages.produce import ProduceResponse, TopicProduceResponse
from kafkaprod.retry import ExponentialBackoff

if TYPE_CHECKING:
    from kafkaprod.spool.spooling import Spool

LAST_VERSION_BY_NAME: Final = 12  # version 13 names topics by id
CLIENT_THROTTLES_FROM: Final = 6
LEAST_BATCH_BYTES: Final = 16_384  # a topic that refuses smaller ones has them split one by one
_SPARE_ELEMENTS: Final = 10_000  # of an answer: its nodes, and what a broker adds

logger = logging.getLogger("kafkaprod.engine.answers")


@dataclass(slots=True, repr=False, eq=False)
class BatchFailure:
    """Why a batch was not simply written.

    Attributes:
        code: Kafka's error code; NETWORK_EXCEPTION without an answer.
        error: The error for its records if it fails; None: made from the code.
        record_errors: Errors of single records, by their index in the batch.
        maybe_persisted: Whether this attempt may be in the log; None: the code decides.
    """

    code: int
    error: KafkaError | None = None
    record_errors: dict[int, Exception] | None = None
    maybe_persisted: bool | None = None


class Answers:
    """Settles the produce requests of one producer.

    Args:
        retries: Most attempts of a batch after the first.
        backoff: Between the attempts of a batch.
        random: Source of jitter.
        accumulator, pool, metadata, metrics, identity, upkeep, paths, spool: The other parts of the engine.

    Attributes:
        endings: Which nodes end the connection at large requests.
    """

    def __init__(
        self,
        retries: int,
        backoff: ExponentialBackoff,
        random: Callable[[], float],
        accumulator: Accumulator,
        pool: NodePool,
        metadata: Metadata,
        metrics: ProducerMetrics,
        identity: Identity,
        upkeep: Upkeep,
        paths: Paths,
        spool: Spool | None = None,
    ) -> None:
        self._retries = retries
        self._backoff = backoff
        self._random = random
        self._accumulator = accumulator
        self._pool = pool
        self._metadata = metadata
        self._metrics = metrics
        self._identity = identity
        self._upkeep = upkeep
        self._paths = paths
        self._spool = spool
        self._open: set[ProduceRequest] = set()
        self._stepped: set[tuple[str, int, int]] = set()  # batches of earlier processes: topic, partition, rank
        self.endings = Endings()
        self._acts: dict[BatchVerdict, Callable[[BatchRef, BatchFailure, int], None]] = {
            BatchVerdict.SUCCEED: self._succeed,
            BatchVerdict.RETRY: self._retry,
            BatchVerdict.RENUMBER: self._renumber,
            BatchVerdict.SPLIT: self._split,
            BatchVerdict.FAIL: self._fail,
        }

    # -- requests ------------------------------------------------------------------------------------------------------

    def expect(self, request: ProduceRequest) -> OnDone:
        """Keep a drained request; return the callback for its outcome."""
        self._open.add(request)
        return partial(self.on_produce, request)

    def close(self, request: ProduceRequest) -> None:
        """Release a request's memory, which nothing reads any more."""
        self._open.discard(request)
        request.finish()

    def close_all(self) -> None:
        """Release the memory of all requests; every connection must be closed."""
        for request in self._open.copy():
            self.close(request)

    def refuse(self, request: ProduceRequest, error: KafkaError, now_ms: int) -> None:
        """Fail a request that cannot be sent."""
        for ref in request.refs():
            self._fail(ref, BatchFailure(ErrorCode.NETWORK_EXCEPTION, error), now_ms)
        self.close(request)

    def take_back(self, request: ProduceRequest, now_ms: int) -> None:
        """Put the batches of a request that was drained and has no outcome back into their queues."""
        for ref in request.refs():
            if ref.state == "sent":  # otherwise it was settled
                ref.requeue(now_ms, self._backoff_ms(ref))
        self.close(request)

    def on_produce(self, request: ProduceRequest, done: InFlightRequest, now_ms: int) -> None:
        """Settle a request that has ended. An unexpected error fails what has no outcome yet."""
        try:
            self._settle(request, done, now_ms)
        except MemoryError:
            raise  # the next turn settles it again
        except Exception as error:
            logger.exception("the answer to a produce request of node %d could not be handled", done.node_id)
            unknown = KafkaError(f"the answer of node {done.node_id} could not be handled: {error!r}")
            unknown.__cause__ = error
            for ref in request.refs():
                if ref.state == "sent":  # otherwise it was settled
                    self._fail(ref, BatchFailure(ErrorCode.NETWORK_EXCEPTION, unknown, maybe_persisted=True), now_ms)
        self.close(request)

    def _settle(self, request: ProduceRequest, done: InFlightRequest, now_ms: int) -> None:
        self._paths.on_ended(request, now_ms, is_answered=done.error is None)
        if done.error is not None:
            self._on_no_answer(request, done, self.endings.on_lost(request, done.error, now_ms), now_ms)
            return
        self.endings.on_answer(request)
        if done.body is None:
            for ref in request.refs():  # acks=0: there is no answer; written to the socket counts as success
                ref.succeed()
            self._metrics.acknowledged_ms = now_ms
            self._metrics.on_written(done.node_id, done.write_ms, len(request))
        else:
            throttle_ms = settle_all(request, done.body, done.version)
            if throttle_ms is not None:
                self._metrics.acknowledged_ms = now_ms
            self._metrics.on_written(done.node_id, done.write_ms, len(request))
            self._metrics.on_response(done.node_id, done.latency_ms, now_ms)
            if throttle_ms is None:
                throttle_ms = self._on_answer(request, done, done.body, now_ms)
            if throttle_ms > 0:
                self._metrics.on_throttle(throttle_ms, now_ms)
                if done.version >= CLIENT_THROTTLES_FROM:
                    self._pool.throttle(done.node_id, throttle_ms, now_ms)
                    self._paths.on_throttle(done.node_id, throttle_ms, now_ms)

    def _on_no_answer(self, request: ProduceRequest, done: InFlightRequest, error: KafkaError, now_ms: int) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT if isinstance(error, RequestTimedOutError) else ErrorCode.NETWORK_EXCEPTION
        self._metadata.request_update()
        for ref in request.refs():
            failure = BatchFailure(code, error, maybe_persisted=done.is_possibly_persisted)
            if isinstance(error, AuthenticationError | UnsupportedVersionError):
                self._fail(ref, failure, now_ms)
            else:
                self._apply(ref, failure, now_ms)

    def _on_answer(self, request: ProduceRequest, done: InFlightRequest, body: memoryview, now_ms: int) -> int:
        """Judge an answer that is not plain success, batch by batch; return the throttle time in ms."""
        open_refs = {(ref.topic, ref.partition): ref for ref in request.refs()}
        try:
            record_count = sum(ref.record_count for ref in open_refs.values())
            most = _SPARE_ELEMENTS + 2 * len(open_refs) + record_count  # topics, partitions, errors of records
            response = ProduceResponse.decode(body, done.version, most)
            answers = self._matched(response, open_refs, done.version)
        except CorruptDataError as error:
            # Nothing else on this connection can be trusted: what is in flight on it fails and is retried.
            logger.error("node %d: %s; the connection is closed and its records are sent again", done.node_id, error)
            self._pool.disconnect(done.node_id, error)
            for ref in open_refs.values():
                self._apply(ref, BatchFailure(ErrorCode.NETWORK_EXCEPTION, error, maybe_persisted=True), now_ms)
            return 0
        for key, partition in answers:
            answered = open_refs.pop(key, None)
            if answered is not None:  # a repeated partition: the first one counts
                self._on_partition(answered, partition, response, now_ms)
        for ref in open_refs.values():  # the broker left it out: treated as no answer
            self._apply(ref, BatchFailure(ErrorCode.NETWORK_EXCEPTION, maybe_persisted=True), now_ms)
        self._upkeep.apply_metadata(now_ms)
        return int(response.throttle_time_ms)

    def _matched(
        self, response: ProduceResponse, open_refs: dict[tuple[str, int], BatchRef], version: int
    ) -> list[tuple[tuple[str, int], Any]]:
        """Return a response's partitions by topic and number. Raises CorruptDataError for one that was not sent."""
        answers = [
            ((self._topic_name(topic, version), partition.index), partition)
            for topic in response.responses
            for partition in topic.partition_responses
        ]
        for key, _ in answers:
            if key not in open_refs:
                raise CorruptDataError(f"produce response for {key[0]}[{key[1]}], which was not in the request")
        return answers

    def _topic_name(self, topic: TopicProduceResponse, version: int) -> str:
        """Return a topic's name. Raises CorruptDataError for an id that no topic ever had."""
        if version <= LAST_VERSION_BY_NAME:
            return topic.name
        name = None if topic.topic_id is None else self._upkeep.topic_names.get(topic.topic_id)
        if name is None:
            raise CorruptDataError(f"produce response for topic id {topic.topic_id}, which was not in the request")
        return name

    def _on_partition(self, ref: BatchRef, partition: Any, response: ProduceResponse, now_ms: int) -> None:
        code = partition.error_code
        if code == 0:
            ref.succeed(partition.base_offset, partition.log_append_time_ms)
            self._metrics.acknowledged_ms = now_ms
            return
        leader = partition.current_leader
        if leader is not None and leader.leader_id >= 0:
            self._metadata.on_leader_hint(
                ref.topic, ref.partition, leader.leader_id, leader.leader_epoch, response.node_endpoints
            )
        error = error_for(code, partition.error_message, topic=ref.topic, partition=ref.partition)
        record_errors: dict[int, Exception] = {
            item.batch_index: error_for(code, item.batch_index_error_message, topic=ref.topic, partition=ref.partition)
            for item in partition.record_errors
        }
        self._apply(ref, BatchFailure(code, error, record_errors), now_ms)

    # -- batches -------------------------------------------------------------------------------------------------------

    def _apply(self, ref: BatchRef, failure: BatchFailure, now_ms: int) -> None:
        """Judge a batch that was not simply written and act on the verdict."""
        if ref.is_done or ref.state != "sent":  # settled, before memory ran out and the answer came here again
            return
        if describe(failure.code).needs_metadata:
            self._metadata.request_update()
        facts = BatchFacts(
            record_count=ref.record_count,
            attempts=ref.attempts,
            has_sequence=ref.producer[2] >= 0,
            is_first_outstanding=ref.is_first_outstanding,
            maybe_persisted=ref.maybe_persisted,
        )
        verdict = judge(failure.code, facts, self._retries)
        if verdict is BatchVerdict.RENUMBER and self._identity.keeps_producer_id:
            verdict = BatchVerdict.FAIL
        if verdict is BatchVerdict.SPLIT and not self._identity.may_split:
            verdict = BatchVerdict.FAIL
        if verdict is BatchVerdict.FAIL and failure.code in RENUMBERING and self._is_restored(ref):
            if failure.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or not self._step(ref, now_ms):
                self._send_in_doubt(ref, failure, now_ms)
            return
        self._acts[verdict](ref, failure, now_ms)

    def _is_restored(self, ref: BatchRef) -> bool:
        return self._spool is not None and self._spool.is_restored(ref)

    def _step(self, ref: BatchRef, now_ms: int) -> bool:
        """Look which batches of an earlier process the leader has, by one that it remembers; False: it remembers none.

        A leader that was started again may know a producer's last batch alone. It has state, as it refuses this one
        for its sequence, and appends nothing out of turn: if it takes a later one, all before it are in the log.
        """
        if ref.is_before_acked:
            ref.succeed()
            return True
        place = ref.topic, ref.partition
        others = [other for other in self._restored_near(ref) if other.producer[2] >= 0]
        key = (*place, ref.place_in_journal[3])
        if not others or key in self._stepped:
            self._stepped = {each for each in self._stepped if each[:2] != place}
            return False
        self._stepped.add(key)
        ref.requeue(now_ms, self._backoff_ms(ref), maybe_persisted=True)
        ref.step_behind()
        return True

    def _restored_near(self, ref: BatchRef) -> list[BatchRef]:
        """Return the other batches of an earlier process for the same partition that are queued."""
        place = ref.topic, ref.partition
        queued = [other for other in incomplete_batches(self._accumulator) if other.state == "closed"]
        return [other for other in queued if (other.topic, other.partition) == place and self._is_restored(other)]

    def _send_in_doubt(self, ref: BatchRef, failure: BatchFailure, now_ms: int) -> None:
        """Give what an earlier process may have sent new numbers: the broker's do not fit those that the spool has.

        That is so after a power cut, or when the broker has lost records or has forgotten the producer.
        """
        assert self._spool is not None
        record_count = ref.record_count
        ref.forget_sequence(in_doubt=True)
        ref.requeue(now_ms, self._backoff_ms(ref))
        for other in self._restored_near(ref):
            if other.producer[2] >= 0:
                other.forget_sequence(in_doubt=True)
                record_count += other.record_count
        self._spool.note_doubt(ref, record_count, describe(failure.code).name)

    def _succeed(self, ref: BatchRef, failure: BatchFailure, now_ms: int) -> None:
        """Settle a batch that was written before, at an unknown offset."""
        ref.succeed()

    def _split(self, ref: BatchRef, failure: BatchFailure, now_ms: int) -> None:
        """Split a batch that is too large for the broker, and let the topic's next ones not grow so far."""
        self._metrics.on_split(now_ms)
        limit_batches(ref, max(ref.size_bytes // 2, LEAST_BATCH_BYTES))
        split_batch(ref, ref.size_bytes // 2)

    def _renumber(self, ref: BatchRef, failure: BatchFailure, now_ms: int) -> None:
        """Send a batch that was certainly rejected again under a new epoch, with those queued after it."""
        if failure.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not ref.partition_needs_new_epoch:
            _log_lost_records(ref)
        ref.forget_sequence()
        ref.requeue(now_ms, self._backoff_ms(ref))
        self._free_stuck_batches(ref.topic, ref.partition, now_ms)

    def _retry(self, ref: BatchRef, failure: BatchFailure, now_ms: int) -> None:
        """Send a batch again unchanged."""
        maybe_persisted = failure.maybe_persisted
        if maybe_persisted is None:
            maybe_persisted = may_be_persisted(failure.code)
        if failure.error is not None:
            self._upkeep.note_refusal(ref.topic, ref.partition, failure.error, now_ms)
        self._metrics.on_retry(ref.topic, ref.record_count, now_ms)
        ref.requeue(now_ms, self._backoff_ms(ref), maybe_persisted)
        if ref.partition_needs_new_epoch:
            self._free_stuck_batches(ref.topic, ref.partition, now_ms)

    def _fail(self, ref: BatchRef, failure: BatchFailure, now_ms: int) -> None:
        """Give the records of a batch their error."""
        if ref.is_done:
            return
        error = failure.error or error_for(failure.code, topic=ref.topic, partition=ref.partition)
        self._metrics.on_error(ref.topic, ref.record_count, now_ms)
        self._identity.on_batch_failed(ref, error)
        if self._spool is not None:
            self._spool.note_refusal(ref, error)
        maybe_persisted = may_be_persisted(failure.code) if failure.maybe_persisted is None else failure.maybe_persisted
        ref.fail(error, failure.record_errors, maybe_persisted)
        if failure.code == ErrorCode.UNKNOWN_PRODUCER_ID:
            ref.note_producer_unknown()
        if isinstance(failure.error, OutOfOrderSequenceError):
            _log_lost_records(ref)

    def _backoff_ms(self, ref: BatchRef) -> int:
        return self._backoff.delay_ms(ref.attempts, self._random)

    def _free_stuck_batches(self, topic: str, partition: int, now_ms: int) -> None:
        """Remove the sequences of the batches queued after one that lost its own, which waits until none is left.

        Batches in flight are judged by their own answers. One that may be in the log keeps its sequence for ever and
        cannot be sent after a gap: it fails, as it would when the broker refused it.
        """
        is_behind = False
        for ref in incomplete_batches(self._accumulator):  # oldest first, which is the order of the queue
            if (ref.topic, ref.partition) != (topic, partition):
                continue
            if ref.producer[2] < 0:
                is_behind = True
            elif is_behind and ref.state == "closed" and not ref.forget_sequence():
                code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                self._fail(ref, BatchFailure(code), now_ms)


def _log_lost_records(ref: BatchRef) -> None:
    logger.error(
        "%s[%d]: the broker misses earlier records of this producer, which may be lost; what follows gets a new epoch",
        ref.topic,
        ref.partition,
    )
