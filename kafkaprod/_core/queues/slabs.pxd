"""Slabs in seven size classes: 1, 2, 4, 8, 16, 32 and 64 KiB, slab header included. See slabs.pyx.

A batch that begins small takes a slab of each class in turn, then more of the largest: an idle open batch is cheap, and
of what a slow one holds no more than half is empty. A record that no class holds gets a slab of its own size (class -1).
"""

from libc.stdint cimport int8_t, uint8_t, uint32_t


cdef enum:
    SIZE_CLASS_COUNT = 7
    LARGEST_CLASS = 6
    EXACT_SIZE = -1
    SLAB_OWNED = 0x5A           # not 0 or 1: garbage should not look like a state
    SLAB_POOLED = 0xA5


cdef struct Slab:
    Slab *next                  # in a batch's chain or in a free list
    char *data                  # payload, directly behind this header
    Py_ssize_t size             # payload bytes
    Py_ssize_t used             # payload bytes written
    Py_ssize_t total            # bytes counted against the pool
    Py_ssize_t summed           # the CRC covers the payload's records up to here; 0: none
    uint32_t crc
    uint32_t generation         # grows with each release: a stale reference is recognised by its old value
    uint8_t state
    int8_t size_class


cdef struct SlabCache:
    # Free slabs, by size class.
    Slab *free[SIZE_CLASS_COUNT]
    Py_ssize_t bytes            # of all of them


cdef Slab *slab_new(int size_class, Py_ssize_t total) noexcept nogil
cdef void slab_begin(Slab *slab) noexcept nogil
cdef Slab *cache_take(SlabCache *cache, int size_class) noexcept nogil
cdef void cache_keep(SlabCache *cache, Slab *slab) noexcept nogil
cdef void cache_shrink(SlabCache *cache, Py_ssize_t room) noexcept nogil


cdef inline Py_ssize_t class_total(int size_class) noexcept nogil:
    return <Py_ssize_t>1024 << size_class


cdef inline Py_ssize_t class_payload(int size_class) noexcept nogil:
    return class_total(size_class) - <Py_ssize_t>sizeof(Slab)


cdef inline int8_t size_class_for(Py_ssize_t payload) noexcept nogil:
    """Return the smallest class that holds `need` bytes, or the largest class."""
    cdef int size_class = 0
    while size_class < LARGEST_CLASS and class_payload(size_class) < payload:
        size_class += 1
    return <int8_t>size_class


cdef inline Py_ssize_t slab_total(Py_ssize_t need) noexcept nogil:
    """What a slab for `need` payload bytes counts against the pool, in the smallest class that holds it."""
    cdef int size_class = 0
    while size_class < SIZE_CLASS_COUNT:
        if class_payload(size_class) >= need:
            return class_total(size_class)
        size_class += 1
    return (need + <Py_ssize_t>sizeof(Slab) + 15) & ~<Py_ssize_t>15
