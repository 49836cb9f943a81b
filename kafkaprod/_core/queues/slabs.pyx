"""Slabs made, begun, kept for reuse and given back to the system.

Nothing here locks: the pool's lock is held for each call.
"""

from libc.stdint cimport int8_t
from libc.stdlib cimport free, malloc

from kafkaprod._core.machine.prefetch cimport prefetch_write


cdef Slab *slab_new(int size_class, Py_ssize_t total) noexcept nogil:
    """Allocate a slab of `total` bytes, header included; NULL: the system has no memory."""
    cdef Slab *slab = <Slab *>malloc(<size_t>total)
    if slab is NULL:
        return NULL
    slab.data = <char *>slab + sizeof(Slab)
    slab.size = total - <Py_ssize_t>sizeof(Slab)
    slab.total = total
    slab.generation = 0
    slab.size_class = <int8_t>size_class
    return slab


cdef void slab_begin(Slab *slab) noexcept nogil:
    """Make a slab empty and owned."""
    slab.next = NULL
    slab.used = 0
    slab.summed = 0
    slab.crc = 0
    slab.state = SLAB_OWNED


cdef Slab *cache_take(SlabCache *cache, int size_class) noexcept nogil:
    """Take a free slab of a class; NULL: there is none, or it is of no class."""
    cdef Slab *slab
    if size_class < 0 or cache.free[size_class] is NULL:
        return NULL
    slab = cache.free[size_class]
    cache.free[size_class] = slab.next
    prefetch_write(slab.next)       # the one to be taken next lies in no cache
    cache.bytes -= slab.total
    return slab


cdef void cache_keep(SlabCache *cache, Slab *slab) noexcept nogil:
    """Keep a slab of a class for reuse."""
    slab.next = cache.free[slab.size_class]
    cache.free[slab.size_class] = slab
    cache.bytes += slab.total


cdef void cache_shrink(SlabCache *cache, Py_ssize_t room) noexcept nogil:
    """Give `room` bytes back to the system, or all that there is; the largest slabs first."""
    cdef int size_class
    cdef Slab *slab
    for size_class in range(LARGEST_CLASS, -1, -1):
        while room > 0 and cache.free[size_class] is not NULL:
            slab = cache.free[size_class]
            cache.free[size_class] = slab.next
            cache.bytes -= slab.total
            room -= slab.total
            free(slab)
