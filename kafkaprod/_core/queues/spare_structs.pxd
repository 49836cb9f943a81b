"""Structs of one size that one thread takes and another gives back. See spare_structs.pyx."""

from kafkaprod._core.machine.lock cimport mutex_t


cdef enum:
    MOST_SPARES = 16384         # batch structs kept: 6 MB


cdef struct Spare:
    Spare *next                 # the rest of the struct means nothing


cdef struct SpareStructs:
    mutex_t lock
    # guarded by the lock:
    Spare *first
    int count


cdef void *spare_take(SpareStructs *spares, size_t size) noexcept nogil
cdef void spare_give(SpareStructs *spares, void *memory) noexcept nogil
cdef void spares_free(SpareStructs *spares) noexcept
cdef void spares_abandon(SpareStructs *spares) noexcept
