"""Results people hold: one per batch underneath, a handle per record (`block_result` has those of blocks).

On the record's line this is the end: the sender thread settles a batch (`_core.requests.settlement`), which
wakes waiters, notifies each waiting event loop once, and runs callbacks.
Reading and waiting are thread-safe. Callbacks run on the sender thread, or in the event loop of an AsyncProducer that
added them; one that raises is logged and counted.

There are no locks: a signal handler may interrupt any of this, and wait for the sender thread or for a thread that
waits for it; either would wait for the lock. A waiter enters a list of the compiled base, where nothing interrupts,
and gets the outcome at once if it is there.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from kafkaprod._core.machine.waking import Waiter
from kafkaprod._core.queues.completion import BatchResult, DeliveryFuture
from kafkaprod.clock import seconds_of
from kafkaprod.errors import DeliveryDelayedError, ForkedProducerError, IllegalStateError, copy_to_raise
from kafkaprod.results.record_wait import await_record, call_in_loop, forget_in_loop, loop_waiter

if TYPE_CHECKING:
    import asyncio

__all__ = ["BatchCompletion", "DeliveryFuture", "FailureLedger", "LoopBatchCompletion", "WaitGuard"]

MAX_UNSEEN_BATCHES: Final = 1000  # failed batches kept to be looked at; of older ones only the count

logger = logging.getLogger("kafkaprod.results.batch")


class WaitGuard:
    """Refuses waits that could never end. One per producer.

    Attributes:
        thread_id: The id of the sender thread, which gives records their outcome and runs the callbacks.
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
    """Failed records that no one has looked at yet; flush() and close() report them. Thread-safe."""

    def __init__(self) -> None:
        self._unseen: deque[BatchCompletion] = deque()  # in order of failure
        self._older: deque[tuple[int, Exception | None]] = deque()  # sums of those that found no place in _unseen
        self.callback_error_count = 0

    def add(self, completion: BatchCompletion) -> None:
        """A batch failed."""
        self._unseen.append(completion)
        if completion.unseen_count == 0:
            self.discard(completion)
        elif len(self._unseen) > MAX_UNSEEN_BATCHES:
            self._older.append(self._take(1))

    def discard(self, completion: BatchCompletion) -> None:
        """Forget a batch: the failures of all its records were looked at."""
        with contextlib.suppress(ValueError):
            self._unseen.remove(completion)

    def take(self) -> tuple[int, Exception | None]:
        """Return how many records failed unseen and the first one's error; they count as seen from now on."""
        total, first = self._take(2 * MAX_UNSEEN_BATCHES)
        return total, None if first is None else copy_to_raise(first)

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
                total, first = total + completion.unseen_count, first or completion.first_unseen_error
        return total, first


class BatchCompletion(BatchResult):
    """The outcome of one batch, with those who wait for it. Its `ledger` and `guard` are the classes above, or None."""

    __slots__ = ()

    def on_failure(self) -> None:
        """Book it, for flush() to report; but for one that a later process delivers."""
        if self.ledger is not None and not isinstance(self.error, DeliveryDelayedError):
            self.ledger.add(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the outcome is known; False after `timeout` seconds.

        Raises: IllegalStateError, ForkedProducerError where it could never become known while waiting.
        """
        timeout = seconds_of(timeout)
        if self.guard is not None and timeout != 0:
            self.guard.check()
        waiter = Waiter()
        try:
            return not self.add_waiter(waiter) or waiter.wait(timeout)
        finally:
            self.remove_waiter(waiter)

    def wait_stored(self, timeout: float | None = None) -> bool:
        """Wait until it is in the spool, or its outcome is known; False after `timeout` seconds.

        Raises: IllegalStateError, ForkedProducerError where neither could become so while waiting.
        """
        timeout = seconds_of(timeout)
        if self.guard is not None and timeout != 0:
            self.guard.check()
        waiter = Waiter()
        try:
            return not self.add_stored_waiter(waiter) or waiter.wait(timeout)
        finally:
            self.remove_waiter(waiter)

    def on_all_seen(self) -> None:
        """Take it off the books: flush() need not report it."""
        if self.ledger is not None:
            self.ledger.discard(self)

    await_record = await_record

    async def settled(self) -> bool:
        """Wait inside the running event loop until the outcome is known; False if it was known already."""
        waiter = loop_waiter(self)
        if waiter is None:
            return False
        wait: asyncio.Future[None] = waiter.loop.create_future()  # a task's own, so that it can be cancelled alone
        waiter.waits.append(wait)
        await wait
        return True

    def on_callback_error(self) -> None:
        """Log and count."""
        if self.ledger is not None:
            self.ledger.callback_error_count += 1
        logger.exception("a delivery callback for %s[%d] raised", self.topic, self.partition)


class LoopBatchCompletion(BatchCompletion):
    """The outcome of one batch of an AsyncProducer: an event loop calls the callbacks that were added in it."""

    __slots__ = ()

    call_in_loop = call_in_loop
    forget_in_loop = forget_in_loop
