"""Waits that end without the GIL: see waking.pyx."""

cdef extern from "pythread.h" nogil:
    ctypedef void *PyThread_type_lock

from kafkaprod._core.machine.lock cimport mutex_t


cdef struct WaitState:
    int wake_count              # since the last wait; add32, swap32
    PyThread_type_lock lock     # held until the first of these wakes


cdef void wake_state(WaitState *state) noexcept nogil


cdef class Waiter:
    cdef WaitState state
    cdef object _start


cdef class Wakeup:
    cdef mutex_t _lock
    cdef int _descriptor        # with _lock
    cdef int _reader            # never changes
    cdef bint _is_pending       # something was written and not read yet; with _lock

    cdef void write_byte(self) noexcept nogil
    cdef void take(self) noexcept nogil
