"""Handing over the GIL, so that a sender thread gets it when a batch is full and not 5 ms later.

Theory. A thread that calls send() in a loop never releases the GIL by itself. CPython takes it away only after another thread
has waited for sys.getswitchinterval(), 5 ms. A sender releases the GIL for each system call; if it then waits 5 ms to get it
back, ten system calls take 50 ms, the sender falls behind, the pool fills, and the application has to wait for memory. So a
sender that wants the GIL back raises a counter (`want_gil`). The appending thread looks at the counter when it fills a batch,
which is rare, and if it is raised, releases the GIL and yields the processor until the sender has it, for at most
LONGEST_TURN_US (`let_others_in`). Releasing is not enough: a sleeping thread takes microseconds to wake, and the appending
thread would have taken the GIL again by then. Where several threads append they take the GIL from each other anyway, and one
that yields would only let the next appender in; so a thread yields only if no other appended for ALONE_AFTER_US.

Any thread may call this. The counter belongs to the process, as the GIL does.
"""

from libc.stdint cimport int64_t

from kafkaprod._core.machine.clock cimport monotonic_us
from kafkaprod._core.machine.lock cimport FREE_THREADED, add32, load32

import os

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long thread_t "pthread_t"
    thread_t pthread_self()

cdef enum:
    LONGEST_TURN_US = 200       # given to the other thread to wake up
    ALONE_AFTER_US = 20_000     # four switch intervals: another appending thread would have had a turn by then

cdef int _waiting = 0           # add32, load32
# Read and written with the GIL: the thread that appended last, and since when it is the only one.
cdef thread_t _appender = 0
cdef int64_t _appends_since_us = 0


cdef void want_gil() noexcept nogil:
    """Announce that this thread wants the GIL back; the last call without it."""
    add32(&_waiting, 1)


cdef void have_gil() noexcept:
    """Undo want_gil(); the first call with the GIL."""
    add32(&_waiting, -1)


cdef void let_others_in() noexcept:
    """Release the GIL until the thread that wants it has it; do nothing if none does. Needs the GIL."""
    global _appender, _appends_since_us
    cdef int64_t now_us
    cdef int64_t end_us
    if FREE_THREADED:
        return
    if _appender != pthread_self():
        _appender = pthread_self()
        _appends_since_us = monotonic_us()
    if load32(&_waiting) <= 0:
        return
    now_us = monotonic_us()
    if now_us - _appends_since_us < ALONE_AFTER_US:
        return
    end_us = now_us + LONGEST_TURN_US
    with nogil:
        # Releasing the GIL is not enough: the waiter takes microseconds to wake, and by then we would hold it again.
        while load32(&_waiting) > 0 and monotonic_us() < end_us:
            sched_yield()


def _forget():
    global _waiting
    _waiting = 0


os.register_at_fork(after_in_child=_forget)     # threads that waited are not in the child
