"""Results people hold: one per batch underneath, a handle per record (`block_result` has those of blocks).

On the record's line this is the end: the sender thread settles a batch (`_core.settlement`), which calls
`BatchCompletion.on_done` once; that wakes waiters, runs callbacks and tells each waiting event loop once.
Reading and waiting are thread-safe. Callbacks run on the sender thread; one that raises is logged and counted.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Final

from kafkaprod._core.completion import BatchResult, DeliveryFuture
from kafkaprod.errors import ForkedProducerError, IllegalStateError
from kafkaprod.waiting import Waiter

if TYPE_CHECKING:
    import asyncio

__all__ = ["BatchCompletion", "DeliveryFuture", "FailureLedger", "WaitGuard"]

MAX_UNSEEN_BATCHES: Final = 1000  # failed batches kept to be looked at; of older ones only the count

_log = logging.getLogger("kafkaprod.completion")
# One lock for all completions: it is held for a few assignments, and most batches are never waited for.
_lock = threading.Lock()


def _renew_lock() -> None:
    """After a fork, in the child: the thread that held the lock does not exist there."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


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
        self._lock = threading.Lock()
        # guarded by _lock:
        self._unseen: dict[BatchCompletion, None] = {}  # in order of failure
        self._older_count = 0  # records of batches that found no place in _unseen
        self._older_error: Exception | None = None
        self.callback_error_count = 0

    def after_fork_in_child(self) -> None:
        """The thread that held the lock does not exist in the child."""
        self._lock = threading.Lock()

    def add(self, completion: BatchCompletion) -> None:
        """A batch failed."""
        with self._lock:
            self._unseen[completion] = None
            if len(self._unseen) > MAX_UNSEEN_BATCHES:
                oldest = next(iter(self._unseen))
                del self._unseen[oldest]
                self._older_count += oldest.record_count
                self._older_error = self._older_error or oldest.error

    def discard(self, completion: BatchCompletion) -> None:
        """Somebody looked at the failure of a batch."""
        with self._lock:
            self._unseen.pop(completion, None)

    def take(self) -> tuple[int, Exception | None]:
        """Return how many records failed unseen and the first one's error; they count as seen from now on."""
        with self._lock:
            unseen = list(self._unseen)
            self._unseen.clear()
            count, self._older_count = self._older_count, 0
            error, self._older_error = self._older_error, None
        for completion in unseen:
            count += completion.record_count
            error = error or completion.error
        return count, error


class BatchCompletion(BatchResult):
    """The outcome of one batch, with those who wait for it."""

    def __init__(
        self, topic: str, partition: int, ledger: FailureLedger | None = None, guard: WaitGuard | None = None
    ) -> None:
        super().__init__(topic, partition)
        self._ledger = ledger
        self._guard = guard
        self._waiters: list[Waiter] | None = None  # guarded by _lock
        self._loop_futures: dict[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None  # guarded by _lock
        self._is_told = False  # guarded by _lock

    def on_done(self) -> None:
        """Wake everybody who waits; once, on the sender thread."""
        with _lock:
            self._is_told = True
            waiters, self._waiters = self._waiters, None
            loop_futures, self._loop_futures = self._loop_futures, None
        if self.error is not None and self._ledger is not None:
            self._ledger.add(self)
        for waiter in waiters or ():
            waiter.wake()
        for loop, future in (loop_futures or {}).items():
            try:
                loop.call_soon_threadsafe(_set_done, future)
            except RuntimeError:  # the loop was closed while its tasks waited: nobody is left to tell
                _log.debug("an event loop was closed before its records of %s were delivered", self.topic)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the outcome is known; False after `timeout` seconds.

        Raises: IllegalStateError, ForkedProducerError where it could never become known while waiting.
        """
        if self._guard is not None and timeout != 0:
            self._guard.check()
        waiter = Waiter()
        with _lock:
            if self._is_told:
                return True
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
        try:
            return waiter.wait(timeout)
        finally:
            with _lock:
                if self._waiters is not None:
                    self._waiters.remove(waiter)

    def mark_seen(self) -> None:
        """Somebody looked at the failure: flush() need not report it."""
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
        with _lock:
            if self._is_told:
                return None
            if self._loop_futures is None:
                self._loop_futures = {}
            if loop not in self._loop_futures:
                self._loop_futures[loop] = loop.create_future()
            return self._loop_futures[loop]

    def on_callback_error(self) -> None:
        """Log and count."""
        if self._ledger is not None:
            self._ledger.callback_error_count += 1
        _log.exception("a delivery callback for %s[%d] raised", self.topic, self.partition)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
