"""Calls of flush() that wait for the batches queued before them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kafkaprod._core.queues.accumulator import Accumulator


class Flush:
    """A call of flush() that waits until all that is queued now has its outcome.

    Attributes:
        wake: Called when all of it has; by the sender thread, or in `Sender.add_flush` if that thread has ended.
        mark: The last batch it waits for; None until the sender thread has seen the flush.
        is_over: Set by the caller when it no longer waits.
    """

    __slots__ = ("is_over", "mark", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.mark: int | None = None
        self.is_over = False


class Flushes:
    """The flushes of one producer. `add` is thread-safe; the rest is the sender thread's.

    Attributes:
        new: What the next `begin` takes.
        begun: Those that wait for their batches.
    """

    def __init__(self, accumulator: Accumulator) -> None:
        self._accumulator = accumulator
        self.new: deque[Flush] = deque()
        self.begun: list[Flush] = []

    @property
    def waiting(self) -> list[Flush]:
        """The flushes whose callers still wait."""
        return [flush for flush in [*self.begun, *self.new] if not flush.is_over]

    def add(self, flush: Flush) -> None:
        """Queue a flush for the next `begin`."""
        self.new.append(flush)

    def begin(self) -> None:
        """Send what is queued at once, for the flushes added since the last call."""
        while self.new:
            flush = self.new.popleft()
            flush.mark = self._accumulator.begin_flush()
            self.begun.append(flush)

    def take_finished(self, to_wake: list[Callable[[], None]], *, all_of_them: bool = False) -> None:
        """Remove the flushes whose batches all have their outcome; append what wakes their callers."""
        oldest = self._accumulator.oldest_serial
        for flush in self.begun.copy():
            assert flush.mark is not None
            if all_of_them or flush.is_over or oldest == 0 or oldest > flush.mark:
                self.begun.remove(flush)
                self._accumulator.end_flush()
                to_wake.append(flush.wake)
