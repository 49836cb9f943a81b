"""Calls of purge(), which fail records that have no outcome yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.requests.settlement import incomplete_batches
from kafkaprod.engine.identity import Identity
from kafkaprod.engine.parking import Parking
from kafkaprod.errors import PurgedError
from kafkaprod.metrics import ProducerMetrics
from kafkaprod.text import counted


class Purge:
    """A call of purge().

    Attributes:
        in_queue: Whether it fails records that wait to be sent, for the first time or again.
        in_flight: Whether it fails records in requests that were not answered yet.
        wake: Called when it is over, by the sender thread, or in `Sender.add_purge` if that thread has ended.
        is_over: Set before `wake` is called.
        record_count: How many records it has failed.
    """

    __slots__ = ("in_flight", "in_queue", "is_over", "record_count", "wake")

    def __init__(self, wake: Callable[[], None], *, in_queue: bool, in_flight: bool) -> None:
        self.in_queue = in_queue
        self.in_flight = in_flight
        self.wake = wake
        self.is_over = False
        self.record_count = 0

    def end(self) -> None:
        """Let the caller continue."""
        self.is_over = True
        self.wake()


class Purges:
    """The purges of one producer. `add` is thread-safe; the rest is the sender thread's.

    Attributes:
        waiting: What the next `run` takes.
    """

    def __init__(
        self, accumulator: Accumulator, identity: Identity, metrics: ProducerMetrics, parking: Parking
    ) -> None:
        self._accumulator = accumulator
        self._parking = parking
        self._identity = identity
        self._metrics = metrics
        self.waiting: deque[Purge] = deque()

    def add(self, purge: Purge) -> None:
        """Queue a purge for the next `run`."""
        self.waiting.append(purge)

    def run(self, now_ms: int) -> None:
        """Fail the records of the purges added since the last call."""
        while self.waiting:
            purge = self.waiting[0]  # removed afterwards: if memory runs out, the next turn does the rest
            self._fail_records(purge, now_ms)
            self.waiting.popleft()
            purge.end()

    def end_all(self) -> None:
        """Let every caller continue: the thread has ended, and all records have their outcome."""
        while self.waiting:
            self.waiting.popleft().end()

    def _fail_records(self, purge: Purge, now_ms: int) -> None:
        if purge.in_queue and self._parking:
            purge.record_count += self._parking.fail_all(PurgedError("purged while it waited for its topic's metadata"))
        for ref in incomplete_batches(self._accumulator):
            is_in_flight = ref.state == "sent"
            if not (purge.in_flight if is_in_flight else purge.in_queue):
                continue
            may_be_in_log = is_in_flight or ref.maybe_persisted
            error = PurgedError(
                f"{counted(ref.record_count, 'record')} for {ref.topic}[{ref.partition}] purged "
                + ("in flight: the broker had not answered" if is_in_flight else "in the queue")
                + ("; they may be in the log" if may_be_in_log else ""),
                possibly_persisted=may_be_in_log,
                was_in_flight=is_in_flight,
                topic=ref.topic,
                partition=ref.partition,
            )
            self._identity.on_batch_failed(ref, error)
            if ref.fail(error):
                self._metrics.on_error(ref.topic, ref.record_count, now_ms)
                purge.record_count += ref.record_count
