"""What a task of an event loop awaits, one record of a batch, and what ends all waits of a batch at once.

Callbacks that were added in the loop run in the same turn: asyncio.wait() and the like see a record as one of its futures.

The loop's thread only, but for LoopWaiter.wake(). A RecordWait has the methods by which asyncio's tasks wait for a
future (`_asyncio_future_blocking`, see `asyncio.futures.isfuture`), but is no such object: all waits of a batch end
in one callback of the loop, and each then runs its task at once, where a future would have the loop make and queue a
callback of its own.
"""

cimport cython
from libc.stdint cimport int32_t

from kafkaprod._core.queues.batch cimport PENDING, SUCCEEDED
from kafkaprod._core.queues.completion cimport BatchResult, DeliveryFuture

cdef extern from "Python.h":
    void PyErr_SetObject(object kind, object error)

import logging
from contextvars import copy_context

logger = logging.getLogger("kafkaprod.results.record_wait")

cdef object _get_running_loop = None    # of asyncio, which a producer without tasks never imports


@cython.final
@cython.freelist(1024)
cdef class RecordWait:
    """The wait of one task for a record.

    Args:
        loop: The running event loop.
        future: The record's DeliveryFuture.
    """

    cdef public bint _asyncio_future_blocking
    cdef object _loop
    cdef DeliveryFuture _future
    cdef object _callback           # of the task
    cdef object _context
    cdef object _inner              # iterator of a later wait, if the batch was split
    cdef bint _has_begun
    cdef bint _is_done
    cdef bint _is_cancelled
    cdef object _cancel_message

    def __cinit__(self, loop, DeliveryFuture future not None):
        self._loop = loop
        self._future = future

    def __iter__(self):
        return self

    def __next__(self):
        if self._inner is None:
            if not self._has_begun:
                self._has_begun = True
                self._asyncio_future_blocking = True
                return self
            if not self._is_done:
                raise RuntimeError("the record's wait was not ended by its event loop")
            if is_known(self._future):
                PyErr_SetObject(StopIteration, StopIteration(outcome_of(self._future)))
                raise StopIteration     # a bare one makes no traceback, and leaves the exception set above
            self._inner = self._future.__await__()      # the record lives on in a part of its batch
        return next(self._inner)

    def add_done_callback(self, callback, *, context=None):
        """Have the task continued; asyncio calls this once."""
        if self._is_done or self._is_cancelled:
            self._loop.call_soon(callback, self, context=context)
        else:
            self._callback = callback
            self._context = context

    def remove_done_callback(self, callback):
        """Undo add_done_callback(); return how many were removed."""
        if self._callback is None or self._callback != callback:
            return 0
        self._callback = None
        return 1

    def cancel(self, msg=None):
        """End the wait because its task is cancelled; False if it has ended."""
        if self._is_done or self._is_cancelled:
            return False
        self._is_cancelled = True
        self._cancel_message = msg
        if self._callback is not None:
            self._loop.call_soon(self._callback, self, context=self._context)
            self._callback = None
        return True

    def cancelled(self):
        """Whether its task was cancelled meanwhile."""
        return self._is_cancelled

    def done(self):
        """Whether it has ended."""
        return self._is_done or self._is_cancelled

    def result(self):
        """Return None, as the wait has no value of its own. Raises CancelledError, or InvalidStateError before its end."""
        if self._is_cancelled:
            from asyncio import CancelledError

            raise CancelledError() if self._cancel_message is None else CancelledError(self._cancel_message)
        if not self._is_done:
            from asyncio import InvalidStateError

            raise InvalidStateError("the record has no outcome yet")

    def exception(self):
        """As result(): a record's error is raised where its task continues."""
        return self.result()

    def get_loop(self):
        """Return the event loop of its task."""
        return self._loop

    cdef int _end(self) except -1:
        cdef object callback = self._callback
        if self._is_cancelled:
            return 0
        self._is_done = True
        self._callback = None
        if callback is None:
            return 0
        if self._context is None:
            callback(self)
        else:
            self._context.run(callback, self)
        return 0


@cython.final
cdef class LoopWaiter:
    """The tasks of one event loop that wait for a batch: the loop is woken once for all of them.

    Attributes:
        loop: Where they run.
        waits: Futures of those that wait for the whole batch; touched in the loop's thread only.
        records: The RecordWaits of those that wait for one of its records; touched in the loop's thread only.
        calls: (future, callback, context) of the records' callbacks; touched in the loop's thread only.
    """

    cdef readonly object loop
    cdef readonly list waits
    cdef readonly list records
    cdef readonly list calls

    def __cinit__(self, loop):
        self.loop = loop
        self.waits = []
        self.records = []
        self.calls = []

    def wake(self):
        """Have all waits ended by the event loop. Any thread, once."""
        try:
            self.loop.call_soon_threadsafe(self.end)
        except RuntimeError:    # the loop was closed while its tasks waited: no task is left
            logger.debug("an event loop was closed before its records were delivered")

    def end(self):
        """Continue all tasks that wait and run the callbacks, here and now. The loop's thread only."""
        for wait in self.waits:
            if not wait.done():     # else its task was cancelled
                wait.set_result(None)
        if self.calls:
            calls, self.calls = self.calls, []
            self.loop.call_soon(run_calls, calls)
        end_waits(self.records)


def loop_waiter(BatchResult batch not None):
    """Return the LoopWaiter of the batch for the running event loop; None if the batch's outcome is known.

    Raises RuntimeError outside of an event loop.
    """
    loop = running_loop()
    if loop is None:
        raise RuntimeError("no running event loop")
    return waiter_of(batch, loop)


cdef object running_loop():
    """Return the event loop that runs in this thread, or None."""
    global _get_running_loop
    if _get_running_loop is None:
        import asyncio

        _get_running_loop = asyncio._get_running_loop
    return _get_running_loop()


cdef LoopWaiter known_waiter(BatchResult batch, object loop):
    with cython.critical_section(batch):    # the sender thread takes the list away at the end
        if batch._waiters is not None:
            for each in batch._waiters:
                if type(each) is LoopWaiter and (<LoopWaiter>each).loop is loop:
                    return each
    return None


cdef LoopWaiter waiter_of(BatchResult batch, object loop):
    cdef LoopWaiter waiter = known_waiter(batch, loop)
    if waiter is None:
        waiter = LoopWaiter.__new__(LoopWaiter, loop)
        if not batch.add_waiter(waiter):
            return None
    return waiter


def call_in_loop(BatchResult batch not None, DeliveryFuture future not None, callback, context):
    """Have the running event loop call `callback(future)` when the record's outcome is known; False if no loop runs.

    Args: context: the contextvars.Context to call it in; None: a copy of the current one.
    """
    loop = running_loop()
    if loop is None:
        return False
    call_later(batch, loop, (future, callback, copy_context() if context is None else context))
    return True


cdef int call_later(BatchResult batch, object loop, tuple call) except -1:
    """Add a call to those at the end of the batch; the loop's next turn has it if there is the outcome."""
    cdef LoopWaiter waiter = waiter_of(batch, loop)
    if waiter is None:
        loop.call_soon(run_calls, [call])
    else:
        waiter.calls.append(call)
    return 0


def forget_in_loop(BatchResult batch not None, DeliveryFuture future not None, callback):
    """Undo call_in_loop() in the running event loop; return how many were removed."""
    cdef LoopWaiter waiter = known_waiter(batch, running_loop())
    if waiter is None:
        return 0
    kept = [call for call in waiter.calls if (<tuple>call)[0] is not future or (<tuple>call)[1] != callback]
    removed = len(waiter.calls) - len(kept)
    waiter.calls = kept
    return removed


def run_calls(list calls not None):
    """Run callbacks, here and now, in the event loop's thread. What a loop cannot keep to itself (Ctrl-C) is raised."""
    cdef DeliveryFuture future
    cdef BatchResult batch
    cdef int32_t index
    cdef Py_ssize_t i
    for i in range(len(calls)):
        future, callback, context = <tuple>calls[i]
        batch = future._current(&index)
        if outcome_known(batch):
            try:
                context.run(callback, future)
            except Exception:
                batch.on_callback_error()
            except BaseException:
                running_loop().call_soon(run_calls, calls[i + 1:])
                raise
        else:
            call_later(batch, running_loop(), <tuple>calls[i])      # the record lives on in a part of its batch


def await_record(BatchResult batch not None, DeliveryFuture future not None):
    """Return what the running task iterates over until the metadata or the error of a record of the batch is there."""
    cdef RecordWait wait
    cdef LoopWaiter waiter = None if is_known(future) else loop_waiter(batch)
    if waiter is None:
        wait = RecordWait.__new__(RecordWait, None, future)
        wait._has_begun = True
        wait._is_done = True
        return wait
    wait = RecordWait.__new__(RecordWait, waiter.loop, future)
    waiter.records.append(wait)
    return wait


cdef inline bint is_known(DeliveryFuture future):
    cdef int32_t index
    return outcome_known(future._current(&index))


cdef inline bint outcome_known(BatchResult batch):
    return batch.outcome != PENDING


cdef inline object outcome_of(DeliveryFuture future):
    """Return what result() does, once the outcome is known."""
    cdef int32_t index
    cdef BatchResult batch = future._current(&index)
    return future._metadata(batch, index) if batch.outcome == SUCCEEDED else future.result(0)


def end_waits(list waits not None):
    """Continue the task of every wait, here and now. What a task cannot keep to itself (Ctrl-C) is raised."""
    cdef RecordWait wait
    cdef Py_ssize_t i
    for i in range(len(waits)):
        wait = waits[i]
        try:
            wait._end()
        except BaseException:
            wait._loop.call_soon(end_waits, waits[i + 1:])
            raise
