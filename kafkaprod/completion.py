"""Results people hold: one per batch underneath, a handle per record (`block_result` has those of blocks).

On the record's line this is the end: the sender thread settles a batch (`_core.settlement`), which calls
`BatchCompletion.on_done` once; that wakes waiters, runs callbacks and tells each waiting event loop once.
Reading and waiting are thread-safe. Callbacks run on the sender thread; one that raises is logged and counted.

There are no locks: a signal handler may interrupt any of this, and wait for the sender thread or for a thread that
waits for it; either would wait for the lock. Who waits enters a list and looks then whether the outcome is there; the
sender says so first and reads the list then. So one of the two always sees the other.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kafkaprod._core.completion import BatchResult, DeliveryFuture
from kafkaprod.errors import ForkedProducerError, IllegalStateError
from kafkaprod.waiting import Waiter

if TYPE_CHECKING:
    import asyncio

__all__ = ["BatchCompletion", "DeliveryFuture", "FailureLedger", "WaitGuard"]

MAX_UNSEEN_BATCHES: Final = 1000  # failed batches kept to be looked at; of older ones only the count

_log = logging.getLogger("kafkaprod.completion")


class WaitGuard:
    """Refuses waits that could never end. One per producer.

    Attributes:
        thread_id: Of the sender thread, which gives records their outcome and runs the callbacks.
        is_forked: Whether this is the child of the process in which that thread runs.
    """

    def __init__(self) -> None:
        self.thread_id: int | None = None
        self.is_forked = False

    def check(self) -> None:
        """Raises ForkedProducerError in a child, IllegalStateError inside a delivery callback."""
        if self.is_forked:
            raise ForkedProducerError("the record was sent by the parent process: its outcome is known only there")
        if threading.get_ident() == self.thread_id:
            raise IllegalStateError("waiting for a record inside a delivery callback would wait for itself")


class FailureLedger:
    """Failed records that nobody has looked at yet; what flush() and close() report. Thread-safe."""

    def __init__(self) -> None:
        self._unseen: deque[BatchCompletion] = deque()  # in order of failure
        self._older: deque[tuple[int, Exception | None]] = deque()  # sums of those that found no place in _unseen
        self.callback_error_count = 0

    def add(self, completion: BatchCompletion) -> None:
        """A batch failed."""
        self._unseen.append(completion)
        if completion.is_seen:
            self.discard(completion)
        elif len(self._unseen) > MAX_UNSEEN_BATCHES:
            self._older.append(self._take(1))

    def discard(self, completion: BatchCompletion) -> None:
        """Somebody looked at the failure of a batch."""
        with contextlib.suppress(ValueError):
            self._unseen.remove(completion)

    def take(self) -> tuple[int, Exception | None]:
        """Return how many records failed unseen and the first one's error; they count as seen from now on."""
        return self._take(2 * MAX_UNSEEN_BATCHES)

    def _take(self, most: int) -> tuple[int, Exception | None]:
        """Take the sums and the oldest batches, `most` of them."""
        total = 0
        first: Exception | None = None
        with contextlib.suppress(IndexError):  # there are no more
            while True:
                count, error = self._older.popleft()
                total, first = total + count, first or error
        with contextlib.suppress(IndexError):
            for _ in range(most):
                completion = self._unseen.popleft()
                if not completion.is_seen:
                    total, first = total + completion.record_count, first or completion.error
        return total, first


class BatchCompletion(BatchResult):
    """The outcome of one batch, with those who wait for it.

    Attributes:
        is_seen: Somebody looked at its failure.
    """

    def __init__(
        self, topic: str, partition: int, ledger: FailureLedger | None = None, guard: WaitGuard | None = None
    ) -> None:
        super().__init__(topic, partition)
        self._ledger = ledger
        self._guard = guard
        self._waiters: list[Waiter] = []
        self._loop_futures: dict[asyncio.AbstractEventLoop, asyncio.Future[None]] = {}
        self._is_told = False
        self.is_seen = False

    def on_done(self) -> None:
        """Wake everybody who waits; once, on the sender thread."""
        if self.error is not None and self._ledger is not None:
            self._ledger.add(self)
        self._is_told = True
        for waiter in list(self._waiters):
            waiter.wake()
        for loop in list(self._loop_futures):
            try:
                loop.call_soon_threadsafe(_set_done, self._loop_futures.pop(loop))
            except RuntimeError:  # the loop was closed while its tasks waited: nobody is left to tell
                _log.debug("an event loop was closed before its records of %s were delivered", self.topic)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the outcome is known; False after `timeout` seconds.

        Raises: IllegalStateError, ForkedProducerError where it could never become known while waiting.
        """
        if self._guard is not None and timeout != 0:
            self._guard.check()
        waiter = Waiter()
        try:
            self._waiters.append(waiter)
            return self._is_told or waiter.wait(timeout)
        finally:
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)

    def mark_seen(self) -> None:
        """Somebody looked at the failure: flush() need not report it."""
        if not self.is_seen:
            self.is_seen = True
            if self._ledger is not None:
                self._ledger.discard(self)

    async def await_record(self, future: DeliveryFuture) -> Any:
        """Wait inside the running event loop, then return the record's metadata or raise its error."""
        while not future.done():
            if not await self.settled():  # split meanwhile: the record lives on in a part of this batch
                return await future
        return future.result(0)

    async def settled(self) -> bool:
        """Wait inside the running event loop until the outcome is known; False if it was known already."""
        import asyncio

        waiting = self._future_in(asyncio.get_running_loop())
        if waiting is None:
            return False
        # Shielded: one task that is cancelled must not take the others' wait away.
        await asyncio.shield(waiting)
        return True

    def _future_in(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None] | None:
        """One future for all tasks of a loop; None if the outcome is known."""
        future = self._loop_futures.get(loop)
        if future is None:
            future = self._loop_futures[loop] = loop.create_future()
        return None if self._is_told else future

    def on_callback_error(self) -> None:
        """Log and count."""
        if self._ledger is not None:
            self._ledger.callback_error_count += 1
        _log.exception("a delivery callback for %s[%d] raised", self.topic, self.partition)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
