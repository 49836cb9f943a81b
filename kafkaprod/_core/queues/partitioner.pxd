"""The built-in sticky choice of a partition for records without a key (KIP-480, KIP-794)."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from kafkaprod._core.machine.lock cimport mutex_t


cdef class StickyPartitioner:
    cdef mutex_t _lock
    cdef int _current               # observe32, publish32; written by who holds the current partition's lock
    cdef int64_t _looked_us         # the sender's turn that a record last looked at: see sticky.pxd; load_i64, store_i64
    # guarded by _lock:
    cdef uint64_t _random
    cdef int32_t *_candidates       # partitions to draw from
    cdef int64_t *_cumulative       # cumulative weights up to each; the last one 0: uniform
    cdef int32_t _candidate_count

    cdef int32_t draw(self) noexcept nogil
    cdef uint64_t _next_random(self) noexcept nogil
