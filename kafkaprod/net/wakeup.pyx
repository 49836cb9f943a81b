"""What ends a poller's wait from any thread: one byte into a socket pair, however many wakeups there are.

Compiled, and not for speed: no signal handler runs between the lines of compiled code. In Python, a handler could
interrupt a wakeup that has raised its flag, or the lock of one, and not yet written its byte; if it then waited for
what the sleeping thread does (it calls Producer.flush, say) it would wait for ever.
"""

cimport cython

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t write(int descriptor, const void *data, size_t count)


@cython.final
cdef class Wakeup:
    """Called, it makes its descriptor's other end readable. Thread-safe, safe in signal handlers.

    Args:
        descriptor: Written to; non-blocking. It stays the caller's, who calls close() before closing it.
    """
    cdef int _descriptor
    cdef bint _is_pending       # a byte was written and the poller has not said that it took it

    def __cinit__(self, int descriptor):
        self._descriptor = descriptor

    def __call__(self):
        """Write a byte, unless one is on its way or close() was called."""
        # The GIL is kept, or the object's lock taken: close() comes before or after, never amid the write.
        with cython.critical_section(self):
            if not self._is_pending and self._descriptor >= 0:
                self._is_pending = True
                write(self._descriptor, b"\0", 1)

    def rearm(self):
        """The next call writes again. To be said when no byte is left to read."""
        with cython.critical_section(self):
            self._is_pending = False

    def close(self):
        """Later calls do nothing, and no call that has begun goes on."""
        with cython.critical_section(self):
            self._descriptor = -1
