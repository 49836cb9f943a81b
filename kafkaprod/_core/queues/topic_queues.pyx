"""One topic: the memory of its partitions, and what the latest metadata says about them."""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kafkaprod._core.machine.cache_lines cimport CACHE_LINE, allocate_lines
from kafkaprod._core.machine.lock cimport load32, mutex_lock, mutex_unlock, publish_i32, store32
from kafkaprod._core.machine.types cimport forbid_new
from kafkaprod._core.queues.batch cimport Batch
from kafkaprod._core.queues.sticky cimport leave_partition
from kafkaprod._core.queues.waiting_line cimport Account
from kafkaprod._core.records.murmur2 cimport fast_modulo

from kafkaprod.errors import InvalidRecordError


cdef void _free_array(object capsule) noexcept:
    free(PyCapsule_GetPointer(capsule, NULL))


cdef void _move_queue(Partition *p, Account *account, BufferPool pool) noexcept nogil:
    """Count what waits in the partition's queue to its new leader; what is in flight stays with the old one."""
    cdef Batch *b = p.head
    p.account = account
    while b is not NULL:
        pool.move_bytes(b.account, account, b.held_bytes)
        b.account = account
        b = b.next


@cython.final
@cython.no_gc_clear     # batches and requests that are collected with it touch its partitions when they go
cdef class TopicQueues:
    """One topic's partitions; made by Accumulator.set_topic()."""

    def __init__(self, *_):
        raise TypeError("TopicQueues are made by Accumulator.set_topic()")

    def __cinit__(self, str name not None, int32_t index):
        try:
            self.name_utf8 = name.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidRecordError(f"topic {name!r:.80} cannot be written as UTF-8") from error
        self.name = name
        self.index = index
        self._kept = ()

    def __dealloc__(self):
        free(self.partitions)
        free(self.hints)

    cdef int update(self, object leaders, object epochs, bytes topic_id, object seed, BufferPool pool) except -1:
        """Take over new metadata: see Accumulator.set_topic().

        Args: seed: of the sticky draws, used by the first call. pool: whose accounts the leaders have.
        """
        cdef int32_t count = <int32_t>len(leaders)
        cdef int32_t i
        cdef int32_t leader
        cdef int32_t epoch
        cdef Partition *p
        cdef Account *account
        if count > self.allocated_count:
            self._grow(count, pool)
        # Records without a key go where a leader takes them, from the first draw on (KIP-480).
        self._update_sticky(count, [i for i in range(count) if leaders[i] >= 0] or list(range(count)), seed)
        publish_i32(&self._partition_count, count)      # after the arrays: who sees it sees those
        self.modulo = fast_modulo(count)
        is_recreated = self.topic_id is not None and topic_id is not None and self.topic_id != topic_id
        self.topic_id = topic_id
        latest = tuple(leaders)
        with cython.critical_section(self):
            self._leaders = latest
        for i in range(self.allocated_count):
            p = self.partitions[i]
            leader = leaders[i] if i < count else -1
            epoch = epochs[i] if i < count else -1
            account = p.account if leader == p.leader else pool.account_of(leader)
            mutex_lock(&p.lock)
            if p.account != account:
                _move_queue(p, account, pool)
            p.leader = leader
            p.leader_epoch = epoch
            p.is_removed = i >= count
            if is_recreated:
                p.topic_generation += 1
                p.last_acked_sequence = -1      # its log knows nothing of this producer
                p.topic_most = 0                # it has other options
            mutex_unlock(&p.lock)
        return 0

    cdef int _update_sticky(self, int32_t count, list led, object seed) except -1:
        """Draw among the partitions `led`; leave the current one if it is not among them."""
        cdef int32_t current
        if self.sticky is None:
            self.sticky = StickyPartitioner(count, <uint64_t>seed + <uint64_t>self.index, led)
        elif count != self._partition_count or self.sticky.current not in led:
            self.sticky.set_loads(led)
            if self.sticky.current not in led:
                current = load32(&self.sticky._current)
                leave_partition(self.sticky, self.partitions[current], current)
        return 0

    cdef int _grow(self, int32_t count, BufferPool pool) except -1:
        cdef int32_t i
        cdef Account *account = pool.account_of(-1)
        cdef Partition *p
        cdef size_t stride = (sizeof(Partition) + CACHE_LINE - 1) & ~<size_t>(CACHE_LINE - 1)
        cdef Partition **grown = <Partition **>calloc(count, sizeof(Partition *))
        cdef Hint *hints = <Hint *>calloc(count, sizeof(Hint))
        cdef char *fresh = <char *>allocate_lines(<size_t>(count - self.allocated_count) * stride)
        if grown is NULL or hints is NULL or fresh is NULL:
            free(grown)
            free(hints)
            free(fresh)
            raise MemoryError
        self._kept += (PyCapsule_New(fresh, NULL, _free_array),)
        if self.allocated_count:
            memcpy(grown, self.partitions, self.allocated_count * sizeof(Partition *))
        for i in range(self.allocated_count, count):
            p = <Partition *>(fresh + <size_t>(i - self.allocated_count) * stride)
            p.index = i
            p.topic_index = self.index
            p.batching = &self.batching
            p.codec = self.batching.codec
            p.leader = -1
            p.leader_epoch = -1
            p.account = account
            p.topic_most = self.partitions[0].topic_most if self.allocated_count else 0
            p.producer_id = -1
            p.producer_epoch = -1
            p.last_acked_sequence = -1
            grown[i] = p
        if self.partitions is not NULL:
            self._kept += (
                PyCapsule_New(self.partitions, NULL, _free_array), PyCapsule_New(self.hints, NULL, _free_array)
            )
        self.partitions = grown
        self.hints = hints
        self.allocated_count = count
        return 0

    cdef tuple leaders_now(self):
        cdef tuple latest
        with cython.critical_section(self):     # the next update drops the tuple
            latest = self._leaders
        return latest

    @property
    def leaders(self):
        """Node id per partition by the latest metadata, -1: none."""
        return self.leaders_now()

    @property
    def partition_count(self):
        """How many partitions records choose among."""
        return partition_count(self)

    cdef bint take_used(self) noexcept:
        """Whether records were appended, or wait, since the last call."""
        cdef int32_t i
        cdef bint used = load32(&self.was_used)
        store32(&self.was_used, 0)
        for i in range(self.allocated_count):
            if self.partitions[i].incomplete_count > 0:
                return True
        return used

    @property
    def has_removed_partitions(self):
        """Whether the topic once had more partitions; a block begun then may still append to those."""
        return self.allocated_count > self._partition_count


cdef TopicQueues make_topic_queues(str name, int32_t index):
    """Make the queues of a topic without partitions; update() brings them."""
    return TopicQueues.__new__(TopicQueues, name, index)


forbid_new(TopicQueues)
