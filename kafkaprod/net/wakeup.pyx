"""Ends a poller's wait from any thread: one byte into a socket pair, however many wakeups there are.

It is compiled because no signal handler runs between the lines of compiled code, not for speed. In Python, a handler
could interrupt a wakeup that has set its flag, or holds a lock, and has not written its byte; if the handler then waits
for the sleeping thread (it calls Producer.flush, for example) it would wait for ever.
"""

cimport cython

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t write(int descriptor, const void *data, size_t count)


@cython.final
cdef class Wakeup:
    """Makes its descriptor's other end readable when called. Thread-safe, safe in signal handlers.

    Args:
        descriptor: Written to; non-blocking. The caller owns it, and calls close() before closing it.
    """
    cdef int _descriptor
    cdef bint _is_pending       # a byte was written and not read yet

    def __cinit__(self, int descriptor):
        self._descriptor = descriptor

    def __call__(self):
        """Write a byte, unless one is unread or close() was called."""
        # The GIL or the object's lock is held: close() runs before or after the write, never during it.
        with cython.critical_section(self):
            if not self._is_pending and self._descriptor >= 0:
                self._is_pending = True
                write(self._descriptor, b"\0", 1)

    def rearm(self):
        """Let the next call write again. The poller calls this when it has read all bytes."""
        with cython.critical_section(self):
            self._is_pending = False

    def close(self):
        """Disable later calls; a call in progress has ended when this returns."""
        with cython.critical_section(self):
            self._descriptor = -1
