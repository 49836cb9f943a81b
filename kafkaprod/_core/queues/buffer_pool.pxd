"""Bounded memory for record batches, in slabs.

Every byte handed out counts against the capacity; freed slabs stay cached per class and are given back to the
system when another class needs the room. One owner at a time: pool, batch (open or sealed) or request; who owns a
slab is its batch's state (batch.pxd), the pool knows only POOLED and OWNED and refuses a second release.
Waiters come first, in the order in which they came: what they need is kept back from everybody else, and who comes
later is served beside them only if that leaves enough. (Serving no one else while a thread waits would make every thread
queue behind one that was woken and has not run yet, for every slab.)

What is handed out is counted by node, too: in the account of the node that leads the partition (-1: none does). An account
may have a limit; then those who wait for that node form a line of their own, and do not hold up others.
"""

from libc.stdint cimport int32_t, int64_t

from kafkaprod._core.machine.lock cimport mutex_t
from kafkaprod._core.queues.slabs cimport Slab, SlabCache
from kafkaprod._core.queues.spare_structs cimport SpareStructs
from kafkaprod._core.queues.waiting_line cimport Account, WaitingLine
from kafkaprod._core.records.record_view cimport AppendStatus


cdef extern from "kafkaprod/_core/machine/machine.h" nogil:
    const bint KP_DEBUG     # freed memory is poisoned with 0xDD and generations are checked before writes


cdef enum:
    TOLD_AT_ONCE = 16           # waiters found with the lock held once


cdef class BufferPool:
    cdef SpareStructs spares            # of batches; has a lock of its own
    cdef mutex_t _lock
    # guarded by _lock:
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _in_use
    cdef SlabCache _cache
    cdef Account *_accounts             # grows at the front
    cdef WaitingLine _line
    cdef int64_t _last_ticket
    cdef int64_t _refused_release_count
    # guarded by the GIL (or the critical section of the dict):
    cdef dict _wakers

    cdef Account *account_of(self, int32_t node_id) except NULL
    cdef Slab *try_acquire(self, Account *account, Py_ssize_t need, int wanted_class, int64_t ticket,
                           AppendStatus *status) noexcept nogil
    cdef Slab *acquire_beyond_capacity(self, Account *account, Py_ssize_t need) noexcept nogil
    cdef int release_chain(self, Account *account, Slab *first) noexcept nogil
    cdef void move_bytes(self, Account *source, Account *target, Py_ssize_t size) noexcept nogil
    cdef bint is_exhausted(self) noexcept nogil
    cdef bint is_short(self, Account *account) noexcept nogil
    cdef void abandon(self) noexcept
    cdef Account *_find_account(self, int32_t node_id) noexcept nogil
    cdef Slab *_take(self, Account *account, int size_class, Py_ssize_t total) noexcept nogil
