"""The sender thread of a producer: ready -> drain -> send -> poll -> settle -> expire, until closed.

It takes records from the accumulator and gives them their results. Everything here runs on the sender thread, except
`wakeup`, `add_flush`, `add_purge` and `close`. It waits only in `NodePool.poll`; time comes from the clock given.

    answers    settles produce requests that have ended
    identity   producer id, epoch, transactions
    upkeep     metadata, expiry, failed connections, metrics
    flushes    callers of flush()
    purges     callers of purge()
    sending    gives nodes what is ready for them
    states     which nodes are slow or sick
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
from typing import TYPE_CHECKING, Final

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.queues.placement import Placement
from kafkaprod._core.requests.drain import Drain
from kafkaprod._core.requests.settlement import abort_batches, incomplete_batches
from kafkaprod.clock import Clock
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.answers import Answers
from kafkaprod.engine.flushes import Flush, Flushes
from kafkaprod.engine.identity import MAX_WAIT_MS, IdempotentIdentity, Identity
from kafkaprod.engine.identity_requests import IdentityRequests
from kafkaprod.engine.memory_shares import MemoryShares, waits_for_first_answer
from kafkaprod.engine.node_states import NodeStates
from kafkaprod.engine.parking import Parking
from kafkaprod.engine.paths import Paths
from kafkaprod.engine.purges import Purge, Purges
from kafkaprod.engine.sending import Sending
from kafkaprod.engine.telemetry import Telemetry
from kafkaprod.engine.topic_watch import TopicWatch
from kafkaprod.engine.upkeep import Upkeep
from kafkaprod.errors import ConnectionLostError, DeliveryDelayedError, KafkaError, ProducerClosedError
from kafkaprod.metadata import Metadata
from kafkaprod.metrics import ProducerMetrics
from kafkaprod.net.pool import NodePool
from kafkaprod.protocol.in_flight import InFlightRequest
from kafkaprod.retry import ExponentialBackoff
from kafkaprod.text import counted

if TYPE_CHECKING:
    from kafkaprod.spool.spooling import Spool

MAX_FAILED_TURNS: Final = 20  # consecutive turns without memory, 10 to 100 ms apart
MEMORY_WAIT_S: Final = 0.01
END_WAIT_MS: Final = 20  # for the answer that a transaction has ended; then the turns continue without it

logger = logging.getLogger("kafkaprod.engine.loop")


class Sender:
    """The loop and its state. `run` is the thread's body; `run_once` is one turn of it, for tests.

    Args:
        config: Options.
        accumulator, drain, placement, pool, metadata, topic_watch, clock, metrics: The parts it drives.
        identity: Producer id, epoch, transactions; None: an idempotent producer's, or none, as the configuration says.
        telemetry: Pushes metrics to brokers; None: nothing does.
        keeps_producer_id: Whether id and epoch never change; a batch that needs a newer epoch fails.
        random: Source of jitter.
        spool: Where records are written before they are sent; None: nowhere.

    Attributes:
        fatal_error: What ended the thread; None if `close` did, or while it runs.
        has_ended: Whether the thread is done; later calls have no effect.
        states: Which nodes are slow or sick.
        parking: Records that wait for their topic's metadata.
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
        clock: Clock,
        metrics: ProducerMetrics,
        identity: Identity | None = None,
        telemetry: Telemetry | None = None,
        *,
        keeps_producer_id: bool = False,
        random: Callable[[], float] = random.random,
        spool: Spool | None = None,
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
        self._accumulator = accumulator
        self._drain = drain
        self._pool = pool
        self._metadata = metadata
        self._topic_watch = topic_watch
        self._clock = clock
        self._metrics = metrics
        self._identity = identity
        self._spool = spool
        self._telemetry = telemetry
        shares = MemoryShares(accumulator.pool, config.delivery_timeout_ms, may_wait=waits_for_first_answer(config))
        self.states = states = NodeStates(config, pool, drain, placement, shares)
        paths = Paths(config, drain.max_request_bytes, shares, states)
        self._upkeep = upkeep = Upkeep(
            config, accumulator, drain, placement, pool, metadata, topic_watch, metrics, identity, shares, states, spool
        )
        self._answers = answers = Answers(
            config.retries, backoff, random, accumulator, pool, metadata, metrics, identity, upkeep, paths, spool
        )
        self._sending = Sending(
            config, drain, placement, pool, metadata, metrics, identity, upkeep, answers, paths, states, spool
        )
        self._identity_requests = IdentityRequests(identity, pool, self._upkeep, config.request_timeout_ms)
        self._flushes = Flushes(accumulator)
        self.parking = Parking(accumulator, topic_watch, clock, config.max_block_ms, pool.wakeup)
        self._purges = Purges(accumulator, identity, metrics, self.parking)
        self._ended: deque[InFlightRequest] = deque()  # requests whose outcome was not settled yet
        self._just_ended: list[InFlightRequest] = []  # those of the last poll, before they are in `_ended`
        self._must_reconnect = False  # memory ran out: bytes of a request or an answer may be lost
        self._close_deadlines_ms: list[int] = []  # appended by any thread
        self.fatal_error: BaseException | None = None
        self.has_ended = False

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

    def why_records_wait(self) -> KafkaError | None:
        """Return the newest reason why some records wait or are sent again; None: nothing is known. Thread-safe."""
        return self._upkeep.why_records_wait()

    @property
    def waiting_flushes(self) -> list[Flush]:
        """The flushes whose callers still wait."""
        return self._flushes.waiting

    def close(self, deadline_ms: int) -> None:
        """End the loop when all has its outcome; at the earliest `deadline_ms` (monotonic) the rest fails."""
        self._close_deadlines_ms.append(deadline_ms)
        if not self.parking:  # else the turn in which the last of them is in its batch
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
        unsent = self._sending.unsent
        if unsent is not None:  # the last turn ran out of memory with part of it in the connection's queue
            self._pool.disconnect(unsent.node_id, ConnectionLostError("no memory for a request"))
        if self._must_reconnect:
            self._disconnect_all()
        self._note_ended()
        now_us = self._clock.now_us()
        now_ms = now_us // 1000
        if self._purges.waiting:
            self._purges.run(now_ms)
        parked_ms = self.parking.run(now_ms) if self.parking else MAX_WAIT_MS
        refresh_ms = min(self._upkeep.refresh_metadata(now_ms), parked_ms)
        wait_ms: float = min(self._upkeep.observe(now_ms), refresh_ms, self._identity_requests.send_next(now_ms))
        if self._telemetry is not None:
            wait_ms = min(wait_ms, self._telemetry.run(now_ms))
        # Set before the scan for work: an append after the scan wakes the poll below.
        self._accumulator.set_sender_sleeps(True)
        wait_ms = min(wait_ms, self._sending.send_ready(now_us), self._upkeep.expire(now_ms))
        if self._close_deadlines_ms:
            if not self.parking:
                self._accumulator.close()
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
        wait_ms = 0 if self._ended or self._sending.unsent is not None else max(wait_ms, 0)
        self.states.planned_ms = now_ms + wait_ms
        self._just_ended = self._pool.poll(wait_ms)
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
        if not self._identity.is_finished(now_ms) or self._accumulator.incomplete_batch_count or self.parking:
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
        if self._sending.unsent is not None:
            self._answers.take_back(self._sending.unsent, self._clock.now_ms())
            self._sending.unsent = None
        return has_ended

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

    def _leave_spool(self, spool: Spool) -> None:
        """Leave what is in the spool to the next process: what happens to it here is not noted there any more."""
        spool.close()
        record_count = 0
        for ref in incomplete_batches(self._accumulator):
            if ref.is_stored:
                what = f"{counted(ref.record_count, 'record')} for {ref.topic}[{ref.partition}]"
                error = DeliveryDelayedError(
                    f"the producer was closed before {what} had been delivered: a later process with this spool_dir "
                    "sends what is left, do not send it again",
                    topic=ref.topic,
                    partition=ref.partition,
                )
                record_count += ref.record_count
                ref.fail(error)
        if record_count:
            logger.info(
                "%s left in the spool, for a later process: %s", counted(record_count, "record"), spool.describe()
            )

    def _end_all(self, cause: BaseException | None) -> None:
        """Fail what is left, close the sockets, then release the memory, in that order."""
        self._accumulator.close()
        error = ProducerClosedError("the producer was closed before the record was delivered")
        if cause is not None:
            error = ProducerClosedError(f"the sender thread has died: {cause!r}")
            error.__cause__ = cause
        if self._spool is not None:
            self._leave_spool(self._spool)
        abort_batches(self._accumulator, error, spares_stored=False)
        self.parking.end(error)
        self._identity.on_end(error)
        self._pool.close()
        self._answers.close_all()
