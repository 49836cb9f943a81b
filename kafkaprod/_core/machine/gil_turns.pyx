"""Handing the GIL over: a sender that has come back from the kernel gets it when a batch is full, not 5 ms later.

A thread that calls send() in a loop never lets go of the GIL by itself, and CPython takes it away from it only when
another thread has waited for sys.getswitchinterval(), 5 ms. A sender that waits so long after each system call falls
behind, the pool fills, and then the application waits. So senders say that they wait, and the appending thread lets
them in when it has news for them anyway: that is a batch, not a record. Where several threads append, they take the GIL
from each other all the time, and one that steps aside for a sender would only let the next one in: they do not.

Any thread. Counts are of the whole process, as the GIL is.
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
    LONGEST_TURN_US = 200       # for the other thread to wake up in; then it is on its own
    ALONE_AFTER_US = 20_000     # four switch intervals: by then another thread that appends would have had its turn

cdef int _waiting = 0           # add32, load32
# Read and written with the GIL: who appended last, and since when nobody else did.
cdef thread_t _appender = 0
cdef int64_t _appends_since_us = 0


cdef void want_gil() noexcept nogil:
    """Say that the GIL is wanted back; the last thing to do without it."""
    add32(&_waiting, 1)


cdef void have_gil() noexcept:
    """Take that back; the first thing to do with it."""
    add32(&_waiting, -1)


cdef void let_others_in() noexcept:
    """Let go of the GIL until whoever wants it has it; nothing if nobody does. Needs the GIL."""
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
        # Let go alone does not do: a thread that is asleep would find the GIL taken again when it is awake.
        while load32(&_waiting) > 0 and monotonic_us() < end_us:
            sched_yield()


def _forget():
    global _waiting
    _waiting = 0


os.register_at_fork(after_in_child=_forget)     # whoever waited is not in the child
