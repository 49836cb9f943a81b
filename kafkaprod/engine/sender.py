"""The one thread behind a producer: ready -> drain -> send -> poll -> settle -> expire, until closed.

On the record's line between the accumulator and the results. Everything here runs on the sender thread, except
`wakeup`, `add_flush` and `close`. Waiting happens in one place, `NodePool.poll`; time comes from the clock given.
Memory: a request's slabs are given back by `ProduceRequest.finish()`, which is called when its answer is there or its
socket is closed, never when its records merely expired.
Source: org.apache.kafka.clients.producer.internals.Sender.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.requests.drain import Drain
from kafkaprod._core.requests.produce_request import ProduceRequest
from kafkaprod._core.requests.produce_response import settle_all
from kafkaprod._core.requests.settlement import BatchRef, abort_batches, expired_batches, oldest_created_ms
from kafkaprod._core.requests.split import split_batch
from kafkaprod.clock import Clock
from kafkaprod.engine.delivery_rules import (
    MAYBE_PERSISTED,
    NETWORK_EXCEPTION,
    REQUEST_TIMED_OUT,
    BatchFacts,
    Verdict,
    judge,
)
from kafkaprod.engine.topic_watch import TopicWatch
from kafkaprod.errors import (
    AuthenticationError,
    CorruptDataError,
    DeliveryTimeoutError,
    KafkaError,
    OutOfOrderSequenceError,
    ProducerClosedError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kafkaprod.metadata import Metadata
from kafkaprod.metrics import ProducerMetrics
from kafkaprod.net.completion import Completion
from kafkaprod.net.node_state import ConnectionFailure
from kafkaprod.net.pool import NodePool
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode, describe, error_for
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaprod.protocol.messages.produce import ProduceResponse, TopicProduceResponse
from kafkaprod.protocol.outgoing import ByteChain
from kafkaprod.protocol.schema import Request
from kafkaprod.retry import ExponentialBackoff

PRODUCE_VERSIONS: Final = (3, 13)
LAST_VERSION_BY_NAME: Final = 12  # version 13 names topics by id
CLIENT_THROTTLES_FROM: Final = 6
MAX_WAIT_MS: Final = 60_000
NEVER_MS: Final = (1 << 63) - 1
LOAD_UPDATE_MS: Final = 10  # how often the sticky partitioners hear of queue lengths
OBSERVATION_MS: Final = 100  # how often at most the network's counters go into the metrics
MAX_EPOCH: Final = 32_767
NO_TRANSACTION_TIMEOUT: Final = 0x7FFFFFFF

_log = logging.getLogger("kafkaprod.engine.sender")


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """Options of the sender; names and units as in the configuration."""

    acks: int = -1
    retries: int = 0x7FFFFFFF
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    enable_idempotence: bool = True
    preferred_rack: str | None = None  # whose leaders records without a key go to rather; None: no preference
    keeps_producer_id: bool = False  # one id and epoch for ever: what would need a newer epoch fails
    checks_cluster: bool = True  # tell brokers which cluster they are expected to belong to (KIP-1242)


class Flush:
    """Somebody who waits until all that is queued now has its outcome.

    Attributes:
        wake: Called once all of it has; by the sender thread, or in `Sender.add_flush` if that has ended.
        mark: Up to which batch; None until the sender has seen the flush.
        is_over: Written by the one who waits: no longer interested.
    """

    __slots__ = ("is_over", "mark", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.mark: int | None = None
        self.is_over = False


class Sender:
    """The loop and its state. `run` is the thread's body; `run_once` is one turn of it, for tests."""

    def __init__(
        self,
        settings: SenderSettings,
        accumulator: Accumulator,
        drain: Drain,
        pool: NodePool,
        metadata: Metadata,
        topic_watch: TopicWatch,
        clock: Clock,
        metrics: ProducerMetrics,
    ) -> None:
        self._settings = settings
        self._accumulator = accumulator
        self._drain = drain
        self._pool = pool
        self._metadata = metadata
        self._topic_watch = topic_watch
        self._clock = clock
        self._metrics = metrics
        self._backoff = ExponentialBackoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._random = random.Random()
        self._producer_id_asked = False
        self._producer_id_failures = 0
        self._next_producer_id_ms = 0
        self._next_load_update_ms = 0
        self._next_observation_ms = 0
        self._is_observed = True  # whether the metrics know all that the network counted
        self._new_flushes: deque[Flush] = deque()  # appended by any thread
        self._flushes: list[Flush] = []
        self._topic_names: dict[uuid.UUID, str] = {}  # of every id ever seen: an answer may name one that is gone
        self._close_deadlines_ms: list[int] = []  # appended by any thread
        self.fatal_error: BaseException | None = None
        self.is_running = False
        self.thread_id: int | None = None

    # --- called by other threads -----------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the loop look for work soon. Thread-safe."""
        self._pool.wakeup()

    def add_flush(self, flush: Flush) -> None:
        """Send what is queued at once, and wake `flush` when all of it has its outcome. Thread-safe."""
        self._new_flushes.append(flush)
        if not self.is_running:
            flush.wake()
        self.wakeup()

    def close(self, deadline_ms: int) -> None:
        """End the loop when everything has its outcome; at `deadline_ms` (monotonic) what is left fails.

        Thread-safe. Of several deadlines the earliest holds.
        """
        self._close_deadlines_ms.append(deadline_ms)
        self._accumulator.close()
        self.wakeup()

    # --- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Loop until closed and drained. Whatever goes wrong here fails every record with the cause: nothing hangs."""
        self.is_running = True
        self.thread_id = threading.get_ident()
        cause: BaseException | None = None
        try:
            while not self._is_finished():
                self.run_once()
        except BaseException as error:
            _log.exception("the sender thread ends with an error: all records without an outcome fail")
            self.fatal_error = cause = error
        finally:
            self._shut_down(cause)

    def run_once(self) -> None:
        """One turn: look after metadata and the producer id, send what is ready, wait, settle what came back."""
        now_us = self._clock.now_us()
        now_ms = now_us // 1000
        wait_ms: float = min(
            self._observe(now_ms), self._look_after_metadata(now_ms), self._look_after_producer_id(now_ms)
        )
        # Said before looking: an append after the look wakes the poll below.
        self._accumulator.set_sender_sleeps(True)
        wait_ms = min(wait_ms, self._send_ready(now_us), self._expire(now_ms))
        if self._close_deadlines_ms:
            wait_ms = min(wait_ms, max(min(self._close_deadlines_ms) - now_ms, 0))
            if self._accumulator.incomplete_batch_count == 0:
                wait_ms = 0
        if wait_ms <= self._drain.linger_ms:
            self._accumulator.let_new_batches_linger()
        self._tell_waiters()  # of what expired or was refused just now: nothing else may end the poll for long
        completions = self._pool.poll(max(wait_ms, 0))
        self._accumulator.set_sender_sleeps(False)
        self._is_observed = self._is_observed and not completions
        for completion in completions:
            self._settle(completion)
        for failure in self._pool.take_failures():
            self._on_connection_failure(failure)
        self._begin_flushes()  # not before the poll, which would not end for a flush that is over already
        self._tell_waiters()

    def _observe(self, now_ms: int) -> int:
        """Take the counters of nodes and loop over into the metrics now and then; return when that is due again."""
        if now_ms >= self._next_observation_ms:
            self._next_observation_ms = now_ms + OBSERVATION_MS
            self._is_observed = True
            self._metrics.observe_nodes(self._pool.metrics(), now_ms)
            self._metrics.observe_loop(self._pool.poll_count, self._pool.wait_ns, now_ms)
        return MAX_WAIT_MS if self._is_observed else self._next_observation_ms - now_ms

    def _is_finished(self) -> bool:
        if not self._close_deadlines_ms:
            return False
        return self._accumulator.incomplete_batch_count == 0 or self._clock.now_ms() >= min(self._close_deadlines_ms)

    def _shut_down(self, cause: BaseException | None) -> None:
        """Fail what is left, close the sockets, then give the memory back; in that order."""
        self._accumulator.close()
        error = ProducerClosedError("the producer was closed before the record was delivered")
        if cause is not None:
            error = ProducerClosedError(f"the sender thread has died: {cause!r}")
            error.__cause__ = cause
        try:
            abort_batches(self._accumulator, error)
            for completion in self._pool.close():
                if isinstance(completion.token, ProduceRequest):
                    completion.token.finish()
        finally:
            self.is_running = False
            self._begin_flushes()
            self._tell_waiters(all_of_them=True)
            self._topic_watch.tell_end()

    def _begin_flushes(self) -> None:
        while self._new_flushes:
            flush = self._new_flushes.popleft()
            flush.mark = self._accumulator.begin_flush()
            self._flushes.append(flush)

    def _tell_waiters(self, *, all_of_them: bool = False) -> None:
        if self._accumulator.pool.waiter_count:
            self._accumulator.pool.wake_waiters()
        if not self._flushes:
            return
        oldest = self._accumulator.oldest_serial
        for flush in self._flushes.copy():
            assert flush.mark is not None
            if all_of_them or flush.is_over or oldest == 0 or oldest > flush.mark:
                self._flushes.remove(flush)
                self._accumulator.end_flush()
                flush.wake()

    # --- metadata and producer id ----------------------------------------------------------------------------------

    def _look_after_metadata(self, now_ms: int) -> int:
        """Ask for metadata if that is due; return how long nothing more will be due."""
        for topic in self._topic_watch.take_wanted():
            self._metadata.add_topic(topic, now_ms)
        delay_ms = self._metadata.next_refresh_ms(now_ms)
        if delay_ms > 0 and not self._pool.is_rebootstrap_required:
            return delay_ms
        node_id = self._pool.least_loaded_node(now_ms)
        if self._pool.is_rebootstrap_required or self._metadata.should_rebootstrap(
            now_ms, is_any_node_usable=node_id is not None or self._pool.is_any_connected
        ):
            self._metadata.on_rebootstrap(now_ms)
            self._pool.rebootstrap()
            return 0
        if node_id is None:
            return self._shortest_delay(now_ms)
        if not self._pool.is_ready(node_id, now_ms):
            return MAX_WAIT_MS  # connecting: that ends the poll by itself
        for topic in self._metadata.forget_idle_topics(now_ms, self._accumulator.take_used):
            self._accumulator.forget_topic(topic)
        for topic in self._accumulator.forgotten_topics_in_use():
            self._metadata.add_topic(topic, now_ms)
        return self._ask(node_id, self._metadata.make_request(now_ms), "metadata", now_ms)

    def _ask(self, node_id: int, request: Request, token: str, now_ms: int) -> int:
        """Send a request to a node that is ready; a node too old for it is a failure like any other."""
        try:
            self._pool.send(node_id, request, token=token, now_ms=now_ms, timeout_ms=self._settings.request_timeout_ms)
        except UnsupportedVersionError as error:
            self._settle(Completion(node_id, token, request.api, -1, error=error))
            return 0
        return MAX_WAIT_MS

    def _shortest_delay(self, now_ms: int) -> int:
        delays = [self._pool.ready_delay_ms(node_id, now_ms) for node_id in self._pool.node_ids()]
        return min((delay for delay in delays if delay is not None), default=MAX_WAIT_MS)

    def _on_metadata(self, completion: Completion, now_ms: int) -> None:
        if completion.error is not None:
            self._metadata.on_failure(completion.error, now_ms)
            return
        refused = self._metadata.on_response(completion.response, completion.version, now_ms)
        if refused is not None:
            self._topic_watch.tell_trouble(refused, is_hopeless=False)
            return
        self._take_over_cluster()
        self._topic_watch.tell(self._metadata.take_topic_errors(), self._metadata.take_missing())

    def _take_over_cluster(self) -> None:
        """Bring the core's leaders and the pool's nodes up to what the metadata says."""
        changed = self._metadata.take_changes()
        snapshot = self._metadata.snapshot
        self._pool.update_nodes(snapshot.nodes, snapshot.cluster_id if self._settings.checks_cluster else None)
        if self._settings.preferred_rack is not None:
            rack = self._settings.preferred_rack
            self._drain.prefer_nodes(node_id for node_id, node in snapshot.nodes.items() if node.rack == rack)
        for name in changed:
            topic = snapshot.topics[name]
            queues = self._accumulator.set_topic(name, topic.leaders, topic.leader_epochs, topic.topic_id)
            if topic.topic_uuid is not None:
                self._topic_names[topic.topic_uuid] = name
            if queues.has_removed_partitions:
                self._fail_removed_partitions(name)
        if changed:
            self._drain.update_leaders()

    def _fail_removed_partitions(self, topic: str) -> None:
        """The topic was deleted and made anew with fewer partitions: records of those gone can go nowhere."""
        for ref in expired_batches(self._accumulator, NEVER_MS):
            if ref.topic == topic and ref.is_partition_removed:
                ref.fail(
                    error_for(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        f"topic {topic!r} was made anew with fewer partitions",
                        topic=topic,
                        partition=ref.partition,
                    )
                )

    def _look_after_producer_id(self, now_ms: int) -> int:
        """Get a producer id before the first drain, and a new epoch where a partition needs one."""
        if not self._settings.enable_idempotence:
            return MAX_WAIT_MS
        if self._drain.wants_epoch:
            self._start_epoch()
        if self._drain.producer_id >= 0 or self._producer_id_asked:
            return MAX_WAIT_MS
        if now_ms < self._next_producer_id_ms:
            return self._next_producer_id_ms - now_ms
        node_id = self._pool.least_loaded_node(now_ms)
        if node_id is None or not self._pool.is_ready(node_id, now_ms):
            return MAX_WAIT_MS if node_id is not None else self._shortest_delay(now_ms)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT)
        self._producer_id_asked = True
        return self._ask(node_id, request, "producer id", now_ms)

    def _start_epoch(self) -> None:
        """A plain idempotent producer raises its epoch by itself (KIP-360); used up, it needs a new id."""
        if self._settings.keeps_producer_id:
            what = "records before these were not written, and the producer must keep its id and epoch"
            abort_batches(self._accumulator, error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, what))
            self._drain.set_producer(self._drain.producer_id, self._drain.producer_epoch)
            return
        if self._drain.producer_epoch < MAX_EPOCH:
            self._drain.set_producer(self._drain.producer_id, self._drain.producer_epoch + 1)
        else:
            self._drain.set_producer(-1, -1)

    def _on_producer_id(self, completion: Completion, now_ms: int) -> None:
        self._producer_id_asked = False
        response: InitProducerIdResponse | None = completion.response
        error = completion.error
        if response is not None and response.error_code == 0:
            self._producer_id_failures = 0
            self._drain.set_producer(response.producer_id, response.producer_epoch)
            return
        if response is not None:
            error = error_for(response.error_code, "the cluster gave no producer id", node=completion.node_id)
        assert error is not None
        if not error.retriable:
            abort_batches(self._accumulator, error)
        delay_ms = self._backoff.delay_ms(self._producer_id_failures, self._random.random)
        self._producer_id_failures += 1
        self._next_producer_id_ms = now_ms + delay_ms

    # --- sending ---------------------------------------------------------------------------------------------------

    def _send_ready(self, now_us: int) -> float:
        """Send to every node that has something sendable and can take it; return when to look again, in ms."""
        now_ms = now_us // 1000
        ready, unknown = self._drain.ready(now_us)
        for topic in unknown:
            self._metadata.request_update()
            queues = self._accumulator.topics.get(topic)
            if queues is not None and queues.has_removed_partitions:
                self._fail_removed_partitions(topic)
        if now_ms >= self._next_load_update_ms:
            self._drain.update_loads()
            self._next_load_update_ms = now_ms + LOAD_UPDATE_MS
        wait_ms = max(self._drain.next_check_us - now_us, 0) / 1000
        if unknown:
            wait_ms = min(wait_ms, self._metadata.next_refresh_ms(now_ms))
        if self._drain.wants_epoch:
            wait_ms = 0
        for node_id in ready:
            self._drain.note_node(node_id, now_ms, self._pool.is_ready(node_id, now_ms))
            while self._pool.is_ready(node_id, now_ms):
                started_ns = time.monotonic_ns()
                request = self._drain.drain(node_id, now_ms)
                if request is None:
                    break
                self._metrics.on_stage("seal", (time.monotonic_ns() - started_ns) // 1000, len(request))
                self._send(request, now_ms)
            delay_ms = self._pool.ready_delay_ms(node_id, now_ms)
            if delay_ms:
                wait_ms = min(wait_ms, delay_ms)
        return wait_ms

    def _send(self, request: ProduceRequest, now_ms: int) -> None:
        node_id = request.node_id
        highest = PRODUCE_VERSIONS[1] if request.all_topic_ids_known else LAST_VERSION_BY_NAME
        version = self._pool.api_version(node_id, ApiKey.PRODUCE, PRODUCE_VERSIONS[0], highest)
        if version is None:
            self._fail_request(
                request, UnsupportedVersionError(f"node {node_id} speaks no Produce version of {PRODUCE_VERSIONS}")
            )
            return
        body = request.body(version, self._settings.acks, self._settings.request_timeout_ms)
        self._metrics.on_request(node_id, request.sums(now_ms), body.nbytes, now_ms)
        self._pool.send_body(
            node_id,
            ApiKey.PRODUCE,
            version,
            [cast(ByteChain, body)],  # exported slab memory is a buffer, too
            body.nbytes,
            token=request,
            now_ms=now_ms,
            timeout_ms=self._settings.request_timeout_ms,
            expects_response=self._settings.acks != 0,
        )

    def _fail_request(self, request: ProduceRequest, error: KafkaError) -> None:
        for ref in request.refs():
            ref.fail(error)
        request.finish()

    def _expire(self, now_ms: int) -> int:
        """Fail what is older than delivery_timeout_ms, sent or not; return when the next one will be."""
        timeout_ms = self._settings.delivery_timeout_ms
        oldest = oldest_created_ms(self._accumulator)
        if oldest is None:
            return MAX_WAIT_MS
        if oldest + timeout_ms > now_ms:
            return int(oldest + timeout_ms - now_ms)
        for ref in expired_batches(self._accumulator, now_ms - timeout_ms):
            was_sent = ref.was_sent
            self._metrics.on_error(ref.topic, ref.record_count, now_ms)
            ref.fail(
                DeliveryTimeoutError(
                    f"{ref.record_count} records for {ref.topic}[{ref.partition}] had no outcome within "
                    f"delivery_timeout_ms={timeout_ms}" + ("; they may be in the log" if was_sent else ""),
                    possibly_persisted=was_sent,
                    topic=ref.topic,
                    partition=ref.partition,
                )
            )
        oldest = oldest_created_ms(self._accumulator)
        return MAX_WAIT_MS if oldest is None else int(oldest + timeout_ms - now_ms)

    # --- what came back --------------------------------------------------------------------------------------------

    def _settle(self, completion: Completion) -> None:
        now_ms = self._clock.now_ms()
        if completion.token == "metadata":
            self._on_metadata(completion, now_ms)
        elif completion.token == "producer id":
            self._on_producer_id(completion, now_ms)
        else:
            self._on_produce(completion, now_ms)

    def _on_produce(self, completion: Completion, now_ms: int) -> None:
        request: ProduceRequest = completion.token
        try:
            if completion.error is not None:
                self._on_no_answer(request, completion, now_ms)
            elif completion.body is None:
                self._metrics.on_stage("send", completion.write_ms * 1000, len(request))
                for ref in request.refs():  # acks=0: written to the socket is all there is to know
                    ref.succeed()
            else:
                self._metrics.on_stage("send", completion.write_ms * 1000, len(request))
                self._metrics.on_response(completion.node_id, completion.latency_ms, now_ms)
                throttle_ms = settle_all(request, completion.body, completion.version)
                if throttle_ms is None:
                    throttle_ms = self._on_answer(request, completion, now_ms)
                if throttle_ms > 0:
                    self._metrics.on_throttle(throttle_ms, now_ms)
                    if completion.version >= CLIENT_THROTTLES_FROM:
                        self._pool.throttle(completion.node_id, throttle_ms, now_ms)
        finally:
            request.finish()

    def _on_no_answer(self, request: ProduceRequest, completion: Completion, now_ms: int) -> None:
        error = completion.error
        assert error is not None
        code = REQUEST_TIMED_OUT if isinstance(error, RequestTimedOutError) else NETWORK_EXCEPTION
        self._metadata.request_update()
        for ref in request.refs():
            if isinstance(error, AuthenticationError | UnsupportedVersionError):
                ref.fail(error)
            else:
                self._apply(ref, code, now_ms, error, maybe_persisted=completion.is_possibly_persisted)

    def _on_answer(self, request: ProduceRequest, completion: Completion, now_ms: int) -> int:
        """Judge an answer that is not plain success, batch by batch; return the throttle time in ms."""
        open_refs = {(ref.topic, ref.partition): ref for ref in request.refs()}
        try:
            assert completion.body is not None
            response = ProduceResponse.decode(completion.body, completion.version)
            answers = [
                ((self._topic_name(topic, completion.version), partition.index), partition)
                for topic in response.responses
                for partition in topic.partition_responses
            ]
            for key, _ in answers:
                if key not in open_refs:
                    raise CorruptDataError(f"produce response for {key[0]}[{key[1]}], which was not asked for")
        except CorruptDataError as error:
            # Nothing this connection says can be believed: what is in flight on it fails and is retried.
            _log.error(
                "node %d: %s; the connection is closed and its records are sent again", completion.node_id, error
            )
            self._pool.disconnect(completion.node_id, error)
            for ref in open_refs.values():
                self._apply(ref, NETWORK_EXCEPTION, now_ms, error, maybe_persisted=True)
            return 0
        for key, partition in answers:
            answered = open_refs.pop(key, None)
            if answered is not None:  # a repeated partition: the first one counts
                self._on_partition(answered, partition, response, now_ms)
        for ref in open_refs.values():  # left out by the broker: as good as no answer
            self._apply(ref, NETWORK_EXCEPTION, now_ms, None, maybe_persisted=True)
        self._take_over_cluster()
        return int(response.throttle_time_ms)

    def _topic_name(self, topic: TopicProduceResponse, version: int) -> str:
        """Raises CorruptDataError for an id that no topic ever had."""
        if version <= LAST_VERSION_BY_NAME:
            return topic.name
        if topic.topic_id not in self._topic_names:
            raise CorruptDataError(f"produce response for topic id {topic.topic_id}, which was not asked for")
        return self._topic_names[topic.topic_id]

    def _on_partition(self, ref: BatchRef, partition: Any, response: ProduceResponse, now_ms: int) -> None:
        code = partition.error_code
        if code == 0:
            ref.succeed(partition.base_offset, partition.log_append_time_ms)
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
        self._apply(ref, code, now_ms, error, record_errors=record_errors)

    def _apply(
        self,
        ref: BatchRef,
        code: int,
        now_ms: int,
        error: KafkaError | None,
        *,
        maybe_persisted: bool | None = None,
        record_errors: dict[int, Exception] | None = None,
    ) -> None:
        """Judge a batch and do what the verdict says."""
        if ref.is_done:
            return
        if maybe_persisted is None:
            maybe_persisted = code in MAYBE_PERSISTED
        if describe(code).needs_metadata:
            self._metadata.request_update()
        facts = BatchFacts(
            record_count=ref.record_count,
            attempts=ref.attempts,
            has_sequence=ref.producer[2] >= 0,
            is_first_outstanding=ref.is_first_outstanding,
            partition_has_gap=ref.partition_needs_new_epoch,
            maybe_persisted=ref.maybe_persisted,
        )
        verdict = judge(code, facts, self._settings.retries)
        if self._settings.keeps_producer_id and verdict in (Verdict.RENUMBER, Verdict.SPLIT):
            verdict = Verdict.FAIL
        backoff_ms = self._backoff.delay_ms(ref.attempts, self._random.random)
        if verdict is Verdict.SUCCEED:
            ref.succeed()
        elif verdict is Verdict.SPLIT:
            self._metrics.on_split(now_ms)
            split_batch(ref, ref.size_bytes // 2)
        elif verdict is Verdict.RENUMBER:
            ref.forget_sequence()
            ref.requeue(now_ms, backoff_ms)
            self._free_stuck_batches(ref.topic, ref.partition, now_ms)
        elif verdict is Verdict.RETRY:
            self._metrics.on_retry(ref.topic, ref.record_count, now_ms)
            ref.requeue(now_ms, backoff_ms, maybe_persisted)
            if ref.partition_needs_new_epoch:
                self._free_stuck_batches(ref.topic, ref.partition, now_ms)
        else:
            self._metrics.on_error(ref.topic, ref.record_count, now_ms)
            ref.fail(error or error_for(code, topic=ref.topic, partition=ref.partition), record_errors)
            if isinstance(error, OutOfOrderSequenceError):
                _log.error("%s[%d]: the broker misses earlier records of this producer", ref.topic, ref.partition)

    def _free_stuck_batches(self, topic: str, partition: int, now_ms: int) -> None:
        """Take their numbers from the queued batches behind one that lost its own: it waits until none is outstanding.

        Those in flight are judged by their own answers. One that may be in the log keeps its number for ever and cannot
        go out after a gap: it fails, as it would when the broker refused it.
        """
        is_behind = False
        for ref in expired_batches(self._accumulator, NEVER_MS):  # oldest first, which is the order of the queue
            if (ref.topic, ref.partition) != (topic, partition):
                continue
            if ref.producer[2] < 0:
                is_behind = True
            elif is_behind and ref.state == "closed" and not ref.forget_sequence():
                self._metrics.on_error(topic, ref.record_count, now_ms)
                ref.fail(error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, topic=topic, partition=partition))

    def _on_connection_failure(self, failure: ConnectionFailure) -> None:
        """Tell those who wait for a first connection; refused credentials fail what waits to be sent."""
        level = logging.WARNING if failure.attempt == 1 else logging.DEBUG
        _log.log(level, "connection to %s:%d ended at stage %s: %s", *failure.node[1:3], failure.stage, failure.error)
        self._metadata.request_update()
        if isinstance(failure.error, AuthenticationError):
            abort_batches(self._accumulator, failure.error, unsent_only=True)
        if not self._topic_watch.is_connected:
            self._topic_watch.tell_trouble(self._pool.bootstrap_error(), is_hopeless=self._pool.is_bootstrap_hopeless)
