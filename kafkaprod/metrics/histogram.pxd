"""Latency histograms: see histogram.pyx."""

from libc.stdint cimport int64_t

cdef enum:
    BUCKETS = 1024


cdef class LatencyHistogram:
    cdef int64_t[BUCKETS] _counts
    cdef readonly int64_t count
    cdef readonly int64_t total
    cdef readonly int64_t highest

    cdef void add(self, int64_t value, int64_t count) noexcept nogil
    cdef list _all_counts(self)
