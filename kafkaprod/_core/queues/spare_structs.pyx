"""Structs kept for reuse. malloc() would carry each batch from the heap of the thread that appends to that of the sender,
through cold memory: a tenth of the cost of many small batches.

Thread-safe but for spares_free(); the lock is held for a few instructions.
"""

from libc.stdlib cimport free
from libc.string cimport memset

from kafkaprod._core.machine.cache_lines cimport allocate_lines
from kafkaprod._core.machine.lock cimport mutex_lock, mutex_t, mutex_unlock
from kafkaprod._core.machine.prefetch cimport prefetch_write


cdef extern from "kafkaprod/_core/machine/machine.h" nogil:
    const bint KP_DEBUG


cdef void *spare_take(SpareStructs *spares, size_t size) noexcept nogil:
    """Hand out a zeroed struct, of the one size that is ever taken from here; NULL: no memory."""
    cdef Spare *spare
    mutex_lock(&spares.lock)
    spare = spares.first
    if spare is not NULL:
        spares.first = spare.next
        spares.count -= 1
        prefetch_write(spare.next)
    mutex_unlock(&spares.lock)
    if spare is NULL:
        return allocate_lines(size)
    memset(spare, 0, size)
    return spare


cdef void spare_give(SpareStructs *spares, void *memory) noexcept nogil:
    """Take a struct back; debug builds free it, so that a sanitizer sees who uses it afterwards."""
    cdef Spare *spare = <Spare *>memory
    cdef bint is_kept = False
    if not KP_DEBUG:
        mutex_lock(&spares.lock)
        if spares.count < MOST_SPARES:
            spare.next = spares.first
            spares.first = spare
            spares.count += 1
            is_kept = True
        mutex_unlock(&spares.lock)
    if not is_kept:
        free(spare)


cdef void spares_free(SpareStructs *spares) noexcept:
    """Free all of them; no other thread may use them any more."""
    cdef Spare *spare
    while spares.first is not NULL:
        spare = spares.first
        spares.first = spare.next
        free(spare)


cdef void spares_abandon(SpareStructs *spares) noexcept:
    """Free the lock in a forked child, which has one thread: who held it is not there."""
    memset(&spares.lock, 0, sizeof(mutex_t))
