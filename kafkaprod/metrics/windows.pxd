"""Windowed statistics: see windows.pyx."""

from libc.stdint cimport int64_t


cdef class Sample:
    pass


cdef class SampleRing:
    cdef object _make
    cdef Py_ssize_t _sample_count
    cdef int64_t _window_ms
    cdef object _state
    cdef readonly Sample newest
    cdef readonly int64_t end_ms

    cdef Sample at(self, int64_t now_ms)
    cdef Sample _begin_window(self, int64_t now_ms)
