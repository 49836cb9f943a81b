"""What a task of an event loop awaits: one record of a batch. The loop's thread only.

It has the methods by which asyncio's tasks wait for a future (`_asyncio_future_blocking`, see
`asyncio.futures.isfuture`), but is no such object: all waits of a batch end in one callback of the loop, and each
then runs its task at once, where a future would have the loop make and queue a callback of its own.
"""

cimport cython


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
    cdef object _future
    cdef object _callback           # of the task
    cdef object _context
    cdef object _inner              # iterator of a later wait, if the batch was split
    cdef bint _has_begun
    cdef bint _is_done
    cdef bint _is_cancelled
    cdef object _cancel_message

    def __cinit__(self, loop, future not None):
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
            if self._future.done():
                raise StopIteration(self._future.result(0))
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
        from asyncio import CancelledError, InvalidStateError

        if self._is_cancelled:
            raise CancelledError() if self._cancel_message is None else CancelledError(self._cancel_message)
        if not self._is_done:
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
