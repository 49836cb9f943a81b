"""How a thread of the application and the sender thread wait for each other, and wake each other, without the GIL.

A thread that is woken wants the GIL at once. If the waker still holds it, the woken one takes a processor only to find that
out, and sleeps again; where both are on one processor, each such hand-over is five switches instead of one. So who wakes
the other and then waits itself releases the GIL first, wakes, and waits: `Waiter.wait` after `start_with`, and
`net.ready_files.ReadyFiles.poll` with its `to_wake`.

Both classes are compiled also because no signal handler runs between the lines of compiled code. In Python, a handler could
interrupt a wakeup that has set its flag, or holds a lock, and has not written its byte; if the handler then waits for the
sleeping thread (it calls Producer.flush, for example) it would wait for ever. `threading.Event` and `Condition` are Python
code around locks: Ctrl-C at the wrong instruction leaves such a lock held for ever, and whatever sets the event hangs.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint64_t

from kafkaprod._core.machine.clock cimport monotonic_us
from kafkaprod._core.machine.lock cimport add32, mutex_lock, mutex_unlock, swap32

cdef extern from "pythread.h" nogil:
    ctypedef long long PY_TIMEOUT_T
    ctypedef enum PyLockStatus:
        PY_LOCK_FAILURE
        PY_LOCK_ACQUIRED
        PY_LOCK_INTR
    PyThread_type_lock PyThread_allocate_lock()
    void PyThread_free_lock(PyThread_type_lock lock)
    int PyThread_acquire_lock(PyThread_type_lock lock, int waits)
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock lock, PY_TIMEOUT_T timeout_us, int ends_for_signals)
    void PyThread_release_lock(PyThread_type_lock lock)

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t write(int descriptor, const void *data, size_t count)
    Py_ssize_t read(int descriptor, void *data, size_t count)

cdef enum:
    LOOK_US = 50_000        # a signal just before the system call that waits does not end it: look for one so often
    LONGEST_S = 1_000_000_000
    NEVER_US = 0x7FFFFFFFFFFFFFFF
    MOST_UNREAD = 64


cdef void wake_state(WaitState *state) noexcept nogil:
    """Wake a Waiter; the caller keeps it alive."""
    if add32(&state.wake_count, 1) == 1:
        PyThread_release_lock(state.lock)


@cython.no_gc_clear
cdef class Waiter:
    """One thread waits, any thread wakes it. A wake that comes first is not lost. A call wakes it."""

    def __cinit__(self):
        self.state.lock = PyThread_allocate_lock()
        if self.state.lock is NULL:
            raise MemoryError
        PyThread_acquire_lock(self.state.lock, 0)

    def __dealloc__(self):
        if self.state.lock is not NULL:
            if self.state.wake_count == 0:
                PyThread_release_lock(self.state.lock)      # some systems do not destroy a lock that is held
            PyThread_free_lock(self.state.lock)

    def start_with(self, start not None):
        """Call `start`, which wakes the thread to wait for, right before the next wait; a Wakeup without the GIL."""
        self._start = start

    def wake(self):
        """Make the current or next `wait` return True. Never blocks; may be called again."""
        wake_state(&self.state)

    def __call__(self):
        """Do as `wake`."""
        wake_state(&self.state)

    def wait(self, timeout=None):
        """Wait for `wake`, at most `timeout` seconds; return whether it came. Uses it up."""
        cdef int64_t end_us = NEVER_US
        cdef int64_t left_us = NEVER_US
        cdef double seconds
        cdef object start = self._start
        cdef Wakeup wakeup = None
        cdef bint is_to_start = False
        cdef PyLockStatus status
        if timeout is not None:
            seconds = timeout
            left_us = <int64_t>(min(seconds, <double>LONGEST_S) * 1_000_000) if seconds > 0 else 0
            end_us = monotonic_us() + left_us
        if start is not None:
            self._start = None
            if type(start) is Wakeup:
                wakeup = <Wakeup>start
                is_to_start = True
            else:
                start()
        while True:
            with nogil:
                if is_to_start:
                    wakeup.write_byte()
                    is_to_start = False
                status = PyThread_acquire_lock_timed(self.state.lock, min(left_us, <int64_t>LOOK_US), 1)
            if status == PY_LOCK_ACQUIRED:
                # Not a plain store: the caller looks at its condition next, and a wake that finds the old count must have
                # made it true for that look.
                swap32(&self.state.wake_count, 0)
                return True
            PyErr_CheckSignals()
            if status == PY_LOCK_FAILURE and left_us <= LOOK_US:
                return False
            if end_us != NEVER_US:
                left_us = max(end_us - monotonic_us(), <int64_t>0)


@cython.final
cdef class Wakeup:
    """Ends a poller's wait from any thread: one write into what it watches, however many calls there are.

    Thread-safe, safe in signal handlers.

    Args:
        descriptor: Written to; non-blocking. The caller owns it, and calls close() before closing it.
        reader: What the poller watches, and `rearm` empties: the other end of a pair, or the same descriptor if that is an
            eventfd. -1: the caller empties it.
    """

    def __cinit__(self, int descriptor, int reader=-1):
        self._descriptor = descriptor
        self._reader = reader

    cdef void write_byte(self) noexcept nogil:
        cdef uint64_t count = 1     # an eventfd takes eight bytes; a socket takes any
        # Under the lock: close() runs before or after the write, never during it.
        mutex_lock(&self._lock)
        if not self._is_pending and self._descriptor >= 0:
            self._is_pending = True
            write(self._descriptor, &count, sizeof(count))
        mutex_unlock(&self._lock)

    cdef void take(self) noexcept nogil:
        """Read what was written, then let the next call write again.

        The other order would lose wakeups: what is written in between would be read here, and every later call would take
        it for still unread. There is never more than one write to be read.
        """
        cdef char[MOST_UNREAD] unread
        if self._reader >= 0 and self._descriptor >= 0:
            read(self._reader, unread, MOST_UNREAD)
        mutex_lock(&self._lock)
        self._is_pending = False
        mutex_unlock(&self._lock)

    def __call__(self):
        """Write, unless something is unread or close() was called."""
        self.write_byte()

    def rearm(self):
        """Empty `reader`, and let the next call write again. The poller calls this when it is woken; never blocks."""
        self.take()

    def close(self):
        """Disable later calls; a call in progress has ended when this returns."""
        mutex_lock(&self._lock)
        self._descriptor = -1
        mutex_unlock(&self._lock)
