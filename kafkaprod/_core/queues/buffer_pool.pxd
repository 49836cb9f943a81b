"""Bounded memory for record batches, in slabs of seven size classes: 1, 2, 4, 8, 16, 32 and 64 KiB, slab header included.

A batch that begins small takes a slab of each class in turn, then more of the largest: an idle open batch is cheap, and
of what a slow one holds no more than half is empty. A record that no class holds gets a slab of its own size (class -1).

Every byte handed out counts against the capacity; freed slabs stay cached per class and are given back to the
system when another class needs the room. One owner at a time: pool, batch (open or sealed) or request; who owns a
slab is its batch's state (batch.pxd), the pool knows only POOLED and OWNED and refuses a second release.
Waiters come first, in the order in which they came: what they need is kept back from everybody else, and who comes
later is served beside them only if that leaves enough. (Serving no one else while a thread waits would make every thread
queue behind one that was woken and has not run yet, for every slab.)

What is handed out is counted by node, too: in the account of the node that leads the partition (-1: none does). An account
may have a limit; then those who wait for that node form a line of their own, and do not hold up others.
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

from kafkaprod._core.machine.lock cimport mutex_t
from kafkaprod._core.records.record_view cimport AppendStatus


cdef extern from "kafkaprod/_core/machine/machine.h" nogil:
    const bint KP_DEBUG     # freed memory is poisoned with 0xDD and generations are checked before writes


cdef enum:
    TOLD_AT_ONCE = 16           # waiters found with the lock held once
    MOST_SPARES = 16384         # batch structs kept: 6 MB
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


cdef struct Account:
    # What one node holds. It lives as long as the pool; all but `next` and `node_id` is guarded by the pool's lock.
    Account *next
    int32_t node_id
    bint was_refused            # since the last take_refused(): a try found no room
    Py_ssize_t held             # bytes in slabs of its batches
    Py_ssize_t limit            # most that it may hold; what it has nothing of, it may always take once
    Py_ssize_t promised         # what the waiters bound to it need
    Py_ssize_t planned          # of that, what a scan of the waiters has seen so far


cdef struct Waiter:
    Waiter *next
    Account *account            # the one whose memory its last try found no room in; NULL: it has not tried
    int64_t ticket
    Py_ssize_t need
    bint is_told                # that its bytes are free, and it has not tried since


cdef struct Spare:
    Spare *next                 # the rest of the struct means nothing


cdef class BufferPool:
    cdef mutex_t _spares_lock
    # guarded by _spares_lock: batch structs, which one thread takes and another gives back. malloc() would carry each of
    # them from one thread's heap to the other's, through cold memory: a tenth of the cost of many small batches.
    cdef Spare *_spares
    cdef int _spare_count
    cdef mutex_t _lock
    # guarded by _lock:
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _in_use
    cdef Py_ssize_t _cached
    cdef Slab *_free[SIZE_CLASS_COUNT]
    cdef Account *_accounts             # grows at the front
    cdef Waiter *_first_waiter
    cdef Waiter *_last_waiter
    cdef int _waiter_count
    cdef Py_ssize_t _promised           # what all waiters need
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
    cdef void *take_struct(self, size_t size) noexcept nogil
    cdef void give_struct(self, void *memory) noexcept nogil
    cdef bint is_exhausted(self) noexcept nogil
    cdef bint is_short(self, Account *account) noexcept nogil
    cdef void abandon(self) noexcept
    cdef Account *_find_account(self, int32_t node_id) noexcept nogil
    cdef Waiter *_keep_back(self, Account *account, int64_t ticket, Py_ssize_t *for_all, Py_ssize_t *in_line) noexcept nogil
    cdef Slab *_take(self, Account *account, int size_class, Py_ssize_t total) noexcept nogil
    cdef void _refuse(self, Account *account, Waiter *waiter) noexcept nogil
    cdef int _find_servable(self, int64_t *tickets, int most) noexcept nogil
    cdef void _shrink_cache(self, Py_ssize_t room) noexcept nogil
    cdef int _remove_waiter(self, int64_t ticket) noexcept nogil


cdef inline bint account_takes(const Account *account, Py_ssize_t need, Py_ssize_t before) noexcept nogil:
    """Whether the account may take `need` bytes beside the `before` that others in its line need."""
    cdef Py_ssize_t held = account.held + before
    return held == 0 or held + need <= account.limit


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
