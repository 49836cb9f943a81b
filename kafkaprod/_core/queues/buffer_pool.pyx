"""Bounded memory for record batches: acquire, release, and the queue of those who wait. See the .pxd for the classes.

Thread-safe. Nothing here waits: try_acquire answers NULL, the producer queues a waiter and sleeps on its own
primitive, the sender calls wake_waiters() once a loop. Source of the rules: Kafka's BufferPool (FIFO; memory that no
waiter needs goes to the next caller).
"""

cimport cython
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kafkaprod._core.machine.lock cimport mutex_lock, mutex_t, mutex_unlock
from kafkaprod._core.queues.slabs cimport (
    EXACT_SIZE,
    LARGEST_CLASS,
    SLAB_OWNED,
    SLAB_POOLED,
    cache_keep,
    cache_shrink,
    cache_take,
    class_payload,
    class_total,
    slab_begin,
    slab_new,
    slab_total,
)
from kafkaprod._core.queues.spare_structs cimport spares_abandon, spares_free
from kafkaprod._core.queues.waiting_line cimport (
    Waiter,
    account_takes,
    line_add,
    line_keep_back,
    line_refuse,
    line_remove,
    line_servable,
)
from kafkaprod._core.records.record_view cimport (
    APPENDED,
    NODE_EXHAUSTED,
    OUT_OF_MEMORY,
    POOL_EXHAUSTED,
    AppendStatus,
)

from kafkaprod.errors import InvalidRecordError


cdef extern from "Python.h":
    const Py_ssize_t NO_LIMIT "PY_SSIZE_T_MAX"


@cython.final
cdef class BufferPool:
    """Slabs within a byte bound.

    Args:
        capacity: bytes that may be handed out at once (buffer_memory).
    """

    def __cinit__(self, Py_ssize_t capacity):
        if capacity < class_total(0):
            raise InvalidRecordError(f"capacity={capacity} bytes is below the smallest slab of {class_total(0)} bytes")
        self._capacity = capacity
        self._wakers = {}

    def __dealloc__(self):
        cdef Waiter *waiter
        cdef Account *account
        cache_shrink(&self._cache, self._capacity)
        spares_free(&self.spares)
        while self._line.first is not NULL:
            waiter = self._line.first
            self._line.first = waiter.next
            free(waiter)
        while self._accounts is not NULL:
            account = self._accounts
            self._accounts = account.next
            free(account)

    cdef Account *account_of(self, int32_t node_id) except NULL:
        """Return a node's account, made by the first call; -1: that of partitions without a leader."""
        cdef Account *account
        cdef Account *fresh
        mutex_lock(&self._lock)
        account = self._find_account(node_id)
        mutex_unlock(&self._lock)
        if account is not NULL:
            return account
        fresh = <Account *>calloc(1, sizeof(Account))
        if fresh is NULL:
            raise MemoryError
        fresh.node_id = node_id
        fresh.limit = NO_LIMIT
        mutex_lock(&self._lock)
        account = self._find_account(node_id)
        if account is NULL:
            account = fresh
            fresh.next = self._accounts
            self._accounts = fresh
        mutex_unlock(&self._lock)
        if account is not fresh:
            free(fresh)
        return account

    cdef Account *_find_account(self, int32_t node_id) noexcept nogil:
        cdef Account *account = self._accounts
        while account is not NULL and account.node_id != node_id:
            account = account.next
        return account

    cdef Slab *try_acquire(self, Account *account, Py_ssize_t need, int wanted_class, int64_t ticket,
                           AppendStatus *status) noexcept nogil:
        """Hand out a slab of at least `need` payload bytes, of `wanted_class` or the largest smaller one that there is room for.

        The caller owns it until release_chain() for the same account. NULL: nothing has changed; `status` says whether
        there is no room beside what is kept for others (POOL_EXHAUSTED), the account may hold no more (NODE_EXHAUSTED),
        or the system has no memory (OUT_OF_MEMORY).
        `ticket` is that of a queued waiter (0: none); the waiter leaves the queue with the slab, or waits for this account.
        """
        cdef Slab *slab = NULL
        cdef Waiter *waiter = NULL
        cdef int size_class = wanted_class
        cdef Py_ssize_t total
        cdef Py_ssize_t for_all = 0
        cdef Py_ssize_t in_line = 0
        if need > class_payload(LARGEST_CLASS):
            size_class = EXACT_SIZE
        else:
            while class_payload(size_class) < need:
                size_class += 1
        mutex_lock(&self._lock)
        if self._line.first is not NULL:
            waiter = line_keep_back(&self._line, account, ticket, &for_all, &in_line)
        while True:
            total = slab_total(need) if size_class == EXACT_SIZE else class_total(size_class)
            if self._in_use + total + for_all > self._capacity:
                status[0] = POOL_EXHAUSTED
            elif not account_takes(account, total, in_line):
                status[0] = NODE_EXHAUSTED
            else:
                slab = self._take(account, size_class, total)
                status[0] = APPENDED if slab is not NULL else OUT_OF_MEMORY
            size_class -= 1
            if slab is not NULL or size_class < 0 or class_payload(size_class) < need:
                break
        if slab is NULL:
            line_refuse(account, waiter)
        elif ticket != 0:
            line_remove(&self._line, ticket)
        mutex_unlock(&self._lock)
        return slab

    cdef bint is_exhausted(self) noexcept nogil:
        """Whether a thread waits for bytes that are not free."""
        cdef bint is_exhausted
        mutex_lock(&self._lock)
        is_exhausted = self._line.promised > 0 and self._in_use + self._line.promised > self._capacity
        mutex_unlock(&self._lock)
        return is_exhausted

    cdef void abandon(self) noexcept:
        """Free the locks in a forked child, which has one thread: who held them is not there, and the pool's end takes them."""
        memset(&self._lock, 0, sizeof(mutex_t))
        spares_abandon(&self.spares)

    cdef bint is_short(self, Account *account) noexcept nogil:
        """Whether a thread waits for bytes that this account may not hold yet."""
        cdef bint is_short
        mutex_lock(&self._lock)
        is_short = account.promised > 0 and not account_takes(account, account.promised, 0)
        mutex_unlock(&self._lock)
        return is_short

    cdef Slab *acquire_beyond_capacity(self, Account *account, Py_ssize_t need) noexcept nogil:
        """Hand out a slab although the pool is full: for a split, whose original is released right after.

        NULL only when the system has no memory.
        """
        cdef Slab *slab
        cdef Py_ssize_t capacity
        mutex_lock(&self._lock)
        capacity = self._capacity
        self._capacity = capacity + need + class_total(LARGEST_CLASS) + self._in_use
        slab = self._take(account, EXACT_SIZE, (need + <Py_ssize_t>sizeof(Slab) + 15) & ~<Py_ssize_t>15)
        self._capacity = capacity
        mutex_unlock(&self._lock)
        return slab

    cdef Slab *_take(self, Account *account, int size_class, Py_ssize_t total) noexcept nogil:
        """Take a slab that there is room for; NULL: the system has no memory."""
        cdef Slab *slab
        slab = cache_take(&self._cache, size_class)
        if slab is NULL:
            if self._in_use + self._cache.bytes + total > self._capacity:
                cache_shrink(&self._cache, self._in_use + self._cache.bytes + total - self._capacity)
            slab = slab_new(size_class, total)
            if slab is NULL:
                return NULL
        slab_begin(slab)
        self._in_use += total
        account.held += total
        return slab

    cdef int release_chain(self, Account *account, Slab *first) noexcept nogil:
        """Take back a chain of an account's slabs. Return how many of them were not owned by anyone: those are left alone and
        counted.

        The caller must hold the last reference: no request can still read these bytes.
        """
        cdef Slab *slab = first
        cdef Slab *next_slab
        cdef int refused = 0
        if KP_DEBUG:
            while slab is not NULL:
                if slab.state == SLAB_OWNED:
                    memset(slab.data, 0xDD, <size_t>slab.size)
                slab = slab.next
        mutex_lock(&self._lock)
        slab = first
        while slab is not NULL:
            next_slab = slab.next
            if slab.state != SLAB_OWNED:
                refused += 1
                slab = next_slab if refused < 1024 else NULL      # a chain run into itself must end
                continue
            slab.state = SLAB_POOLED
            slab.generation += 1
            self._in_use -= slab.total
            account.held -= slab.total
            if slab.size_class >= 0 and self._in_use + self._cache.bytes + slab.total <= self._capacity:
                cache_keep(&self._cache, slab)
            else:
                free(slab)
            slab = next_slab
        self._refused_release_count += refused
        mutex_unlock(&self._lock)
        return refused

    cdef void move_bytes(self, Account *source, Account *target, Py_ssize_t size) noexcept nogil:
        """Count slabs that are in use to another account; its limit may be passed by that."""
        mutex_lock(&self._lock)
        source.held -= size
        target.held += size
        mutex_unlock(&self._lock)

    def new_ticket(self):
        """A ticket for enqueue_waiter(). Having it first, a caller can leave the queue however it is interrupted."""
        mutex_lock(&self._lock)
        self._last_ticket += 1
        cdef int64_t ticket = self._last_ticket
        mutex_unlock(&self._lock)
        return ticket

    def enqueue_waiter(self, Py_ssize_t need, wake, int64_t ticket=0):
        """Queue for `need` bytes; return the ticket for the append that follows: `ticket`, or a new one if that is 0.

        `wake()` is called once the bytes are free beside what earlier waiters need, from the thread that noticed; it is
        called again after a try that failed, and must not block. End every wait with dequeue_waiter(ticket).
        Raises InvalidRecordError if need exceeds the capacity.
        """
        if need < 0:
            raise InvalidRecordError(f"need={need} bytes is negative")
        if need > self._capacity:
            raise InvalidRecordError(f"{need} bytes can never be free in a pool of capacity={self._capacity} bytes")
        cdef Waiter *waiter = <Waiter *>calloc(1, sizeof(Waiter))
        if waiter is NULL:
            raise MemoryError
        waiter.need = need
        if ticket == 0:
            try:
                ticket = self.new_ticket()
            except BaseException:
                free(waiter)
                raise
        waiter.ticket = ticket
        try:
            self._wakers[ticket] = wake         # first: who finds the waiter in the queue wakes it once
        except BaseException:
            free(waiter)
            raise
        mutex_lock(&self._lock)
        line_add(&self._line, waiter)
        mutex_unlock(&self._lock)
        return ticket

    def dequeue_waiter(self, int64_t ticket):
        """Leave the queue, served or not; a second call does nothing. Waiters that can be served now are woken."""
        self._wakers.pop(ticket, None)
        mutex_lock(&self._lock)
        line_remove(&self._line, ticket)
        mutex_unlock(&self._lock)
        self.wake_waiters()

    def wake_waiters(self):
        """Wake every waiter whose bytes are free beside those of the waiters before it; return whether there was one."""
        cdef int64_t[TOLD_AT_ONCE] tickets
        cdef int count = TOLD_AT_ONCE
        cdef int i
        was_woken = False
        while count == TOLD_AT_ONCE:
            mutex_lock(&self._lock)
            count = line_servable(&self._line, self._accounts, self._in_use, self._capacity, tickets, TOLD_AT_ONCE)
            mutex_unlock(&self._lock)
            for i in range(count):
                was_woken = True
                wake = self._wakers.get(tickets[i])
                if wake is not None:
                    wake()
        return was_woken

    def set_limit(self, int32_t node_id, Py_ssize_t limit):
        """Let the batches of a node hold `limit` bytes at most; what they hold beyond that stays until it is delivered."""
        cdef Account *account = self.account_of(node_id)
        mutex_lock(&self._lock)
        account.limit = limit
        mutex_unlock(&self._lock)

    def node_in_the_way(self, int64_t ticket):
        """The node that may hold no more, for which alone a waiter waits; None: for memory of all, or it has not tried."""
        cdef Waiter *waiter
        mutex_lock(&self._lock)
        waiter = self._line.first
        while waiter is not NULL and waiter.ticket != ticket:
            waiter = waiter.next
        cdef bint is_found = (waiter is not NULL and waiter.account is not NULL
                              and not account_takes(waiter.account, waiter.need, 0))
        cdef int32_t node_id = waiter.account.node_id if is_found else -1
        mutex_unlock(&self._lock)
        return node_id if is_found else None

    def take_refused(self, int32_t node_id):
        """Whether a try found no room for a record of the node since the last call."""
        cdef Account *account = self.account_of(node_id)
        mutex_lock(&self._lock)
        cdef bint was_refused = account.was_refused
        account.was_refused = False
        mutex_unlock(&self._lock)
        return was_refused

    def shares(self):
        """Return (node id, bytes held, most that it may hold or None) for each node; -1: partitions without a leader."""
        cdef list found = []
        cdef Account *account
        mutex_lock(&self._lock)
        account = self._accounts
        mutex_unlock(&self._lock)
        while account is not NULL:          # nothing is ever taken out of this list
            mutex_lock(&self._lock)
            held, limit = account.held, account.limit
            mutex_unlock(&self._lock)
            found.append((account.node_id, held, None if limit == NO_LIMIT else limit))
            account = account.next
        return found

    @property
    def capacity(self):
        """Bytes that may be handed out at once."""
        return self._capacity

    @property
    def in_use(self):
        """Bytes handed out now."""
        mutex_lock(&self._lock)
        cdef Py_ssize_t n = self._in_use
        mutex_unlock(&self._lock)
        return n

    @property
    def available(self):
        """Bytes that can still be handed out; the cached ones included."""
        return self._capacity - self.in_use

    @property
    def cached(self):
        """Bytes of free slabs that the pool keeps for reuse."""
        mutex_lock(&self._lock)
        cdef Py_ssize_t n = self._cache.bytes
        mutex_unlock(&self._lock)
        return n

    @property
    def waiter_count(self):
        """How many wait for memory now."""
        return self._line.count

    @property
    def refused_release_count(self):
        """Slabs released that had no owner; anything but 0 is a bug of the engine."""
        return self._refused_release_count
