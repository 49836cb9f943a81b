"""The sender thread of a producer: ready -> drain -> send -> poll -> settle -> expire, until closed.

It takes records from the accumulator and gives them their results. Everything here runs on the sender thread, except
`wakeup`, `add_flush`, `add_purge` and `close`. It waits only in `NodePool.poll`; time comes from the clock given.

    answers    settles produce requests that have ended
    identity   producer id, epoch, transactions
    upkeep     metadata, expiry, failed connections, metrics
    flushes    callers of flush()
    purges     callers of purge()
    paths      what the way to each node carries
    telemetry  metrics for brokers that request them
Source: org.apache.kafka.clients.producer.internals.Sender.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.requests.drain import Drain
from kafkaprod._core.requests.produce_request import ProduceRequest
from kafkaprod._core.requests.settlement import abort_batches
from kafkaprod.clock import Clock
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.answers import LAST_VERSION_BY_NAME, Answers
from kafkaprod.engine.flushes import Flush, Flushes
from kafkaprod.engine.identity import MAX_WAIT_MS, IdempotentIdentity, Identity
from kafkaprod.engine.identity_requests import IdentityRequests
from kafkaprod.engine.memory_shares import MemoryShares
from kafkaprod.engine.paths import Paths
from kafkaprod.engine.purges import Purge, Purges
from kafkaprod.engine.telemetry import Telemetry
from kafkaprod.engine.topic_watch import TopicWatch
from kafkaprod.engine.upkeep import Upkeep
from kafkaprod.errors import ConnectionLostError, ProducerClosedError, UnsupportedVersionError
from kafkaprod.metadata import Metadata
from kafkaprod.metrics import ProducerMetrics
from kafkaprod.net.pool import NodePool
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.in_flight import InFlightRequest, OnDone
from kafkaprod.retry import ExponentialBackoff

LOAD_UPDATE_MS: Final = 10  # how often the sticky partitioners get the queue lengths
MAX_FAILED_TURNS: Final = 20  # consecutive turns without memory, 10 to 100 ms apart
MEMORY_WAIT_S: Final = 0.01
END_WAIT_MS: Final = 20  # for the answer that a transaction has ended; then the turns continue without it

logger = logging.getLogger("kafkaprod.engine.loop")


class Sender:
    """The loop and its state. `run` is the thread's body; `run_once` is one turn of it, for tests.

    Args:
        config: Options.
        accumulator, drain, pool, metadata, topic_watch, clock, metrics: The parts it drives.
        identity: Producer id, epoch, transactions; None: an idempotent producer's, or none, as the configuration says.
        telemetry: Pushes metrics to brokers; None: nothing does.
        keeps_producer_id: Whether id and epoch never change; a batch that needs a newer epoch fails.
        random: Source of jitter.

    Attributes:
        fatal_error: What ended the thread; None if `close` did, or while it runs.
        has_ended: Whether the thread is done; later calls have no effect.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        drain: Drain,
        pool: NodePool,
        metadata: Metadata,
        topic_watch: TopicWatch,
        clock: Clock,
        metrics: ProducerMetrics,
        identity: Identity | None = None,
        telemetry: Telemetry | None = None,
        *,
        keeps_producer_id: bool = False,
        random: Callable[[], float] = random.random,
    ) -> None:
        backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        if identity is None:
            identity = IdempotentIdentity(
                accumulator,
                drain,
                backoff,
                random,
                is_idempotent=config.enable_idempotence,
                keeps_producer_id=keeps_producer_id,
            )
        self._config = config
        self._random = random
        self._accumulator = accumulator
        self._drain = drain
        self._pool = pool
        self._metadata = metadata
        self._topic_watch = topic_watch
        self._clock = clock
        self._metrics = metrics
        self._identity = identity
        self._telemetry = telemetry
        self._upkeep = Upkeep(config, accumulator, drain, pool, metadata, topic_watch, metrics, identity)
        may_wait = config.buffer_full_policy != "raise"
        self._shares = MemoryShares(accumulator.pool, config.delivery_timeout_ms, may_wait=may_wait)
        self._paths = Paths(config, drain.max_request_bytes)
        self._answers = self._make_answers(backoff)
        self._identity_requests = IdentityRequests(identity, pool, self._upkeep, config.request_timeout_ms)
        self._flushes = Flushes(accumulator)
        self._purges = Purges(accumulator, identity, metrics)
        self._next_load_update_ms = 0
        self._ended: deque[InFlightRequest] = deque()  # requests whose outcome was not settled yet
        self._just_ended: list[InFlightRequest] = []  # those of the last poll, before they are in `_ended`
        self._must_reconnect = False  # memory ran out: bytes of a request or an answer may be lost
        self._unsent: ProduceRequest | None = None  # drained, and not given to the pool yet
        self._close_deadlines_ms: list[int] = []  # appended by any thread
        self.fatal_error: BaseException | None = None
        self.has_ended = False

    def _make_answers(self, backoff: ExponentialBackoff) -> Answers:
        return Answers(
            self._config.retries,
            backoff,
            self._random,
            self._accumulator,
            self._pool,
            self._metadata,
            self._metrics,
            self._identity,
            self._upkeep,
            self._shares,
            self._paths,
        )

    # -- called by other threads ---------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the loop look for work soon. Thread-safe."""
        self._pool.wakeup()

    def add_flush(self, flush: Flush) -> None:
        """Send what is queued, and wake `flush` when all of it has its outcome; `wakeup` starts it. Thread-safe."""
        self._flushes.add(flush)
        if self.has_ended:
            flush.wake()

    def add_purge(self, purge: Purge) -> None:
        """Fail the records that `purge` names in the next turn, then wake it. Thread-safe."""
        self._purges.add(purge)
        if self.has_ended:
            self._purges.end_all()
        self.wakeup()

    @property
    def waiting_flushes(self) -> list[Flush]:
        """The flushes whose callers still wait."""
        return self._flushes.waiting

    def close(self, deadline_ms: int) -> None:
        """End the loop when all has its outcome; at the earliest `deadline_ms` (monotonic) the rest fails."""
        self._close_deadlines_ms.append(deadline_ms)
        self._accumulator.close()
        self.wakeup()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Loop until closed and drained.

        An unexpected error costs what it touches: the connections, whose requests are sent again, never the thread.
        Only MAX_FAILED_TURNS of them in a row end it, and fail every record with the last one as the cause.
        """
        cause: BaseException | None = None
        failed_turns = 0
        try:
            while True:
                try:
                    if self._close_deadlines_ms and self._is_finished():
                        break
                    self.run_once()
                    failed_turns = 0
                except MemoryError:
                    self._must_reconnect = True
                    failed_turns += 1
                    if failed_turns > MAX_FAILED_TURNS:
                        raise
                    self._after_memory_error(failed_turns)
                except Exception as error:
                    failed_turns += 1
                    if failed_turns > MAX_FAILED_TURNS:
                        raise
                    self._after_error(error, failed_turns)
        except BaseException as error:
            self.fatal_error = cause = error
            with suppress(MemoryError):  # the error of each record has the cause, too
                logger.exception("the sender thread ends with an error: all records without an outcome fail")
        finally:
            self._shut_down(cause)

    def run_once(self) -> None:
        """Run one turn: update metadata and producer id, send what is ready, wait, settle the answers."""
        if self._unsent is not None:  # the last turn ran out of memory with part of it in the connection's queue
            self._pool.disconnect(self._unsent.node_id, ConnectionLostError("no memory for a request"))
        if self._must_reconnect:
            self._disconnect_all()
        self._note_ended()
        now_us = self._clock.now_us()
        now_ms = now_us // 1000
        if self._purges.waiting:
            self._purges.run(now_ms)
        refresh_ms = self._upkeep.refresh_metadata(now_ms)
        wait_ms: float = min(self._upkeep.observe(now_ms), refresh_ms, self._identity_requests.send_next(now_ms))
        if self._telemetry is not None:
            wait_ms = min(wait_ms, self._telemetry.run(now_ms))
        # Set before the scan for work: an append after the scan wakes the poll below.
        self._accumulator.set_sender_sleeps(True)
        wait_ms = min(wait_ms, self._send_ready(now_us), self._upkeep.expire(now_ms))
        if self._close_deadlines_ms:
            wait_ms = min(wait_ms, max(min(self._close_deadlines_ms) - now_ms, 0))
            if self._has_nothing_to_do():
                wait_ms = 0
        self._accumulator.pool.wake_waiters()  # for what expired or was refused just now: the poll may last long
        if self._flushes.begun:
            self._flushes.take_finished(self._pool.to_wake)  # the poll wakes them, when it has released the GIL
        if self._drain.linger_ms and self._pool.to_wake:
            wait_ms = min(wait_ms, self._drain.linger_ms)  # the caller may send at once: let that linger
        if wait_ms <= self._drain.linger_ms:
            self._accumulator.let_new_batches_linger()
        self._just_ended = self._pool.poll(0 if self._ended or self._unsent is not None else max(wait_ms, 0))
        self._accumulator.set_sender_sleeps(False)
        if self._settle_ended() and self._identity.is_ending and self._accumulator.incomplete_batch_count == 0:
            # End the transaction without a turn for it: records are refused now, and other calls end the poll.
            self._just_ended = self._pool.poll(
                min(self._identity_requests.send_next(self._clock.now_ms()), END_WAIT_MS)
            )
            self._settle_ended()
        for failure in self._pool.take_failures():
            self._upkeep.on_connection_failure(failure)
        if self._flushes.new:
            self._flushes.begin()  # after the poll, which does not end for a flush that is already complete
        self._accumulator.pool.wake_waiters()  # now: they can append while the next turn sends

    def _is_finished(self) -> bool:
        return self._clock.now_ms() >= min(self._close_deadlines_ms) or self._has_nothing_to_do()

    def _has_nothing_to_do(self) -> bool:
        """Return whether a producer that closes has no batch, no transaction and no metrics left."""
        now_ms = self._clock.now_ms()
        if not self._identity.is_finished(now_ms) or self._accumulator.incomplete_batch_count:
            return False
        return self._telemetry is None or self._telemetry.is_finished(now_ms)

    def _note_ended(self) -> None:
        """Queue what the poll returned, one by one: none is lost if memory runs out."""
        while self._just_ended:
            self._ended.append(self._just_ended[0])
            del self._just_ended[0]

    def _settle_ended(self) -> bool:
        """Settle the requests that have ended; return whether there were any."""
        self._note_ended()
        if has_ended := bool(self._ended):
            self._upkeep.is_observed = False
        while self._ended:
            request = self._ended[0]  # removed afterwards: if memory runs out, the next turn settles it
            try:
                request.on_done(request, self._clock.now_ms())
            except MemoryError:
                raise
            except Exception:
                logger.exception("the outcome of a request to node %d could not be handled", request.node_id)
            self._ended.popleft()
        if self._unsent is not None:
            self._answers.take_back(self._unsent, self._clock.now_ms())
            self._unsent = None
        return has_ended

    # -- sending -------------------------------------------------------------------------------------------------------

    def _send_ready(self, now_us: int) -> float:
        """Send to every node that is ready and has batches due; return in how many ms to check again."""
        now_ms = now_us // 1000
        ready, unknown = self._drain.ready(now_us)
        for topic in unknown:
            self._metadata.request_update()
            self._upkeep.fail_removed_partitions(topic)
        if now_ms >= self._next_load_update_ms:
            self._drain.update_loads()
            self._next_load_update_ms = now_ms + LOAD_UPDATE_MS
        wait_ms = max(self._drain.next_check_us - now_us, 0) / 1000
        if unknown:
            # Now, or in how long it can be sent: one that waits for a connection must not keep the loop awake.
            wait_ms = min(wait_ms, self._upkeep.refresh_metadata(now_ms))
        if self._drain.has_held:  # no answer wakes the sender, which may have to avoid the node
            wait_ms = min(wait_ms, self._availability_check_ms())
        if self._drain.wants_epoch or self._drain.has_new_members:
            wait_ms = 0
        if not self._identity.may_drain() or self._unsent is not None:
            return wait_ms
        for node_id in ready:
            wait_ms = min(wait_ms, self._send_to(node_id, now_ms))
        return wait_ms

    def _send_to(self, node_id: int, now_ms: int) -> float:
        """Send what a node has, as far as its path allows; return in how many ms to check it again."""
        path = self._paths.to(node_id)
        room_bytes = 0
        can_send = self._pool.is_ready(node_id, now_ms) and (path is None or path.may_send())
        self._drain.note_node(node_id, now_ms, can_send)
        if path is not None:
            self._drain.limit_path(node_id, path.most_batch_bytes())
            if not can_send:
                path.on_waiting()
        while can_send:
            if path is not None:
                distance_ms = path.wait_ms(now_ms)
                if distance_ms and self._drain.may_wait(node_id, now_ms):
                    return distance_ms
                room_bytes = path.room_bytes()
            started_ns = time.monotonic_ns()
            request = self._unsent = self._drain.drain(node_id, now_ms, room_bytes)
            if request is None:
                return MAX_WAIT_MS
            seal_us = (time.monotonic_ns() - started_ns) // 1000
            self._send(request, self._answers.expect(request), now_ms, seal_us)
            self._unsent = None
            can_send = self._pool.is_ready(node_id, now_ms) and (path is None or path.may_send())
            if path is not None and not can_send and self._drain.has_queued(node_id):
                path.on_waiting()
        wait_ms: float = self._pool.ready_delay_ms(node_id, now_ms) or MAX_WAIT_MS
        if self._drain.availability_timeout_ms > 0:
            # Neither a silent broker nor records that join a batch which waits for it wake this thread.
            wait_ms = min(wait_ms, self._availability_check_ms())
        return wait_ms

    def _availability_check_ms(self) -> float:
        return max(self._drain.availability_timeout_ms / 2, LOAD_UPDATE_MS)

    def _send(self, request: ProduceRequest, on_done: OnDone, now_ms: int, seal_us: int) -> None:
        node_id = request.node_id
        lowest, highest = self._identity.produce_versions
        if not request.all_topic_ids_known:
            highest = min(highest, LAST_VERSION_BY_NAME)
        version = self._pool.api_version(node_id, ApiKey.PRODUCE, lowest, highest)
        if version is None:
            what = f"{self._pool.members.name_of(node_id)} supports no Produce version of {lowest}..{highest}"
            self._answers.refuse(request, UnsupportedVersionError(what), now_ms)
            return
        body = request.body(
            version, self._config.acks, self._config.request_timeout_ms, self._identity.transactional_id
        )
        sums = request.sums(now_ms)
        self._metrics.on_request(node_id, sums, body.nbytes, now_ms, seal_us)
        if self._config.acks != 0:  # without answers nothing is known of a rate
            self._shares.on_sent(request, sums.size_bytes, now_ms)
        self._pool.send_body(
            node_id,
            ApiKey.PRODUCE,
            version,
            [body],
            body.nbytes,
            on_done=on_done,
            now_ms=now_ms,
            timeout_ms=self._config.request_timeout_ms,
            expects_response=self._config.acks != 0,
            max_response_bytes=request.max_response_bytes,
        )
        self._paths.on_sent(request, body.nbytes, now_ms)

    # -- failure and end -----------------------------------------------------------------------------------------------

    def _after_memory_error(self, failed_turns: int) -> None:
        """Clean up a turn that ran out of memory, and wait a little before the next."""
        try:
            time.sleep(MEMORY_WAIT_S * min(failed_turns, 10))
            logger.warning(
                "no memory in the sender thread: trying again, attempt %d of %d", failed_turns, MAX_FAILED_TURNS
            )
            self._disconnect_all()
        except MemoryError:
            return  # the next turn begins with it

    def _after_error(self, error: Exception, failed_turns: int) -> None:
        """Clean up a turn that an unexpected error has ended, and wait a little before the next."""
        self._must_reconnect = True
        logger.error(
            "an unexpected error in the sender thread: connecting again, attempt %d of %d",
            failed_turns,
            MAX_FAILED_TURNS,
            exc_info=error,
        )
        time.sleep(MEMORY_WAIT_S * min(failed_turns, 10))

    def _disconnect_all(self) -> None:
        """Bytes of a request or an answer may be lost: only new connections have a known state."""
        error = ConnectionLostError("the sender thread gave up this connection after an error of its own")
        for node_id in self._pool.node_ids():
            self._pool.disconnect(node_id, error)
        self._must_reconnect = False

    def _shut_down(self, cause: BaseException | None) -> None:
        """End everything, again and again while the system has no memory for it: nothing runs after it."""
        failed = 0
        try:
            while True:
                try:
                    self._end_all(cause)
                    break
                except MemoryError:
                    failed += 1
                    if failed > MAX_FAILED_TURNS:
                        raise
                    time.sleep(MEMORY_WAIT_S)
        finally:
            self.has_ended = True
            self._flushes.begin()
            if self._accumulator.pool.waiter_count:
                self._accumulator.pool.wake_waiters()
            self._flushes.take_finished(self._pool.to_wake, all_of_them=True)
            while self._pool.to_wake:
                self._pool.to_wake.pop()()
            self._purges.end_all()
            self._topic_watch.tell_end()

    def _end_all(self, cause: BaseException | None) -> None:
        """Fail what is left, close the sockets, then release the memory, in that order."""
        self._accumulator.close()
        error = ProducerClosedError("the producer was closed before the record was delivered")
        if cause is not None:
            error = ProducerClosedError(f"the sender thread has died: {cause!r}")
            error.__cause__ = cause
        abort_batches(self._accumulator, error)
        self._identity.on_end(error)
        self._pool.close()
        self._answers.close_all()
