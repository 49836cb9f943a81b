"""topic -> partition -> queue of batches: where application threads append and the sender drains (drain.pyx).

On a record's way this comes after the partitioner and before drain. Three callers append: send_path one record of bytes,
`append` one record of any arguments, blocks.pyx many rows. The first two end in `append_locked`; blocks.pyx calls it where a
batch has to be opened or extended, and writes the other rows of a run itself, with the batch's state in registers.
Thread-safe. Nothing here waits: if the pool is full, POOL_EXHAUSTED is returned and nothing has changed.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from kafkaprod._core.queues.batch cimport (
    CLOSED,
    SUM_FROM,
    OpenBatch,
    batch_append,
    batch_extend,
    batch_hold,
    batch_move,
    batch_open,
    batch_release,
    batch_release_memory,
    batch_retain,
    batch_size_bytes,
    batch_sum,
    delta_between,
    prefetch_ahead,
    prefetch_hinted,
    publish_batch,
    remember,
    store_batch,
)
from kafkaprod._core.records.batch_layout cimport BATCH_HEADER_BYTES
from kafkaprod._core.queues.buffer_pool cimport LARGEST_CLASS, slab_total
from kafkaprod._core.machine.cache_lines cimport CACHE_LINE, allocate_lines
from kafkaprod._core.machine.clock cimport READ_CLOCK, monotonic_us
from kafkaprod._core.queues.completion cimport (
    BatchResult,
    DeliveryFuture,
    batch_result,
    fill_future,
    new_future,
    prepare_result,
)
from kafkaprod._core.machine.gil_turns cimport let_others_in
from kafkaprod._core.machine.lock cimport (
    FREE_THREADED,
    load32,
    load64,
    mutex_lock,
    mutex_unlock,
    store32,
)
from kafkaprod._core.records.murmur2 cimport fast_modulo, partition_for_key
from kafkaprod._core.machine.prefetch cimport prefetch_write
from kafkaprod._core.machine.types cimport forbid_new
from kafkaprod._core.records.integers cimport to_int64
from kafkaprod._core.records.record_arguments cimport RecordArguments
from kafkaprod._core.records.record_view cimport (
    APPENDED,
    BATCH_FULL,
    EVENT_BATCH_FULL,
    EVENT_NEW_BATCH,
    OUT_OF_MEMORY,
    POOL_EXHAUSTED,
)
from kafkaprod._core.records.record_writer cimport record_body_size, record_size_bound
from kafkaprod._core.records.varint cimport uvarint_size

from kafkaprod.errors import IllegalStateError, InvalidRecordError, ProducerClosedError, RecordTooLargeError


cdef void _free_array(object capsule) noexcept:
    free(PyCapsule_GetPointer(capsule, NULL))


cdef inline bint hold_for_result(OpenBatch *o) noexcept nogil:
    """Keep the batch until its result object is fetched; whether that was necessary.

    Making the object runs Python code, during which the sender may finish the batch. Where there is a GIL and an
    object already, nothing can come between.
    """
    if not FREE_THREADED and o.completion is not NULL:
        return False
    batch_hold(o)
    return True


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

    cdef int grow(self, int32_t count) except -1:
        cdef int32_t i
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
            p.leader = -1
            p.leader_epoch = -1
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

    @property
    def has_removed_partitions(self):
        """Whether the topic once had more partitions; a block begun then may still append to those."""
        return self.allocated_count > self.partition_count


forbid_new(TopicQueues)


@cython.final
@cython.no_gc_clear
cdef class Accumulator:
    """The queues of all topics.

    Args:
        pool: where batches take their memory.
        batch_size: bytes a batch may grow to, uncompressed, header included; a larger record gets its own batch.
        max_record_bytes: upper bound of one record's size; larger ones are refused.
        completion_factory: called as factory(topic, partition), returns a BatchResult.
        wakeup: called without arguments when the sender sleeps and there is news for it.
    """

    def __cinit__(self, BufferPool pool not None, Py_ssize_t batch_size=262144, Py_ssize_t max_record_bytes=1048576,
                  completion_factory=BatchResult, wakeup=None):
        self.pool = pool
        self.topics = {}
        self.topic_list = []
        self._all_topics = ()
        self._idle_topics = {}
        self.batch_size = max(batch_size, 1)
        self.max_record_bytes = min(max_record_bytes, pool.capacity - 256)
        self.completion_factory = completion_factory
        self.wakeup = wakeup
        self.seed = <uint64_t>id(self)

    def __dealloc__(self):
        cdef Batch *b = self.oldest
        cdef Batch *newer
        while b is not NULL:
            newer = b.newer
            b.references = 1
            batch_release(b, self.pool)
            b = newer

    def set_topic(self, str name not None, leaders not None, epochs=None, bytes topic_id=None):
        """Create or update a topic from metadata. Sender thread only.

        Args:
            leaders: node id per partition, -1 where there is none. Fewer than before: the topic was re-created. The
                partitions that are gone get no more records; what they hold is the sender's to fail.
            epochs: leader epoch per partition, -1 where unknown.
            topic_id: 16 bytes or None.
        """
        cdef TopicQueues topic = self.topics.get(name) or self._idle_topics.get(name)
        cdef int32_t count = <int32_t>len(leaders)
        cdef int32_t i
        cdef Partition *p
        cdef int32_t leader
        cdef int32_t epoch
        if count < 1:
            raise InvalidRecordError(f"topic {name!r} needs at least one partition")
        if epochs is None:
            epochs = [-1] * count
        is_new = topic is None
        if is_new:
            topic = TopicQueues.__new__(TopicQueues, name, <int32_t>len(self.topic_list))
        if count > topic.allocated_count:
            topic.grow(count)
        # Records without a key go where a leader takes them, from the first draw on (KIP-480).
        led = [i for i in range(count) if leaders[i] >= 0] or list(range(count))
        if is_new:
            topic.sticky = StickyPartitioner(count, self.seed + <uint64_t>topic.index, led)
        elif count != topic.partition_count or topic.sticky.current not in led:
            topic.sticky.set_loads(led)
            if topic.sticky.current not in led:
                p = topic.partitions[<int32_t>topic.sticky.current]
                mutex_lock(&p.lock)
                p.sticky_bytes = 0
                mutex_unlock(&p.lock)
                topic.sticky.next()
        topic.partition_count = count
        topic.modulo = fast_modulo(count)
        is_made_anew = topic.topic_id is not None and topic_id is not None and topic.topic_id != topic_id
        topic.topic_id = topic_id
        topic.leaders = tuple(leaders)
        for i in range(topic.allocated_count):
            p = topic.partitions[i]
            leader = leaders[i] if i < count else -1
            epoch = epochs[i] if i < count else -1
            mutex_lock(&p.lock)
            p.leader = leader
            p.leader_epoch = epoch
            p.is_removed = i >= count
            if is_made_anew:
                p.last_acked_sequence = -1      # its log knows nothing of this producer
            mutex_unlock(&p.lock)
        if is_new:
            self.topic_list.append(topic)
            self._all_topics += (topic,)
        self._idle_topics.pop(name, None)
        self.topics[name] = topic
        self.topics_generation += 1
        return topic

    def take_used(self, str name not None):
        """Whether records were appended to the topic, or wait in it, since the last call."""
        cdef TopicQueues topic = self.topics.get(name) or self._idle_topics.get(name)
        cdef int32_t i
        if topic is None:
            return False
        used = bool(load32(&topic.was_used))
        store32(&topic.was_used, 0)
        for i in range(topic.allocated_count):
            if topic.partitions[i].incomplete_count > 0:
                return True
        return used

    def forget_topic(self, str name not None):
        """Make sends to the topic request its metadata again; its queues and sequences are kept."""
        topic = self.topics.pop(name, None)
        self.topics_generation += 1
        if topic is not None:
            self._idle_topics[name] = topic

    def forgotten_topics_in_use(self):
        """Forgotten topics that still get records, from callers who looked them up before. Sender thread only.

        Their leaders are the last known ones until their metadata is requested again.
        """
        return [name for name in self._idle_topics if self.take_used(name)]

    cdef bint enlist(self, Batch *b, Batch *older) noexcept nogil:
        """Put the batch into the list of incomplete ones, with a reference: behind `older`, or last if that is NULL.

        False, with nothing done, for a new batch after close(): the abort that ends close() would not see it.
        """
        mutex_lock(&self._incomplete_lock)
        if older is NULL and self.is_closed:
            mutex_unlock(&self._incomplete_lock)
            return False
        batch_retain(b)
        if older is NULL:
            self.last_serial += 1
            b.serial = self.last_serial
            older = self.newest
        else:
            b.serial = older.serial
        b.older = older
        b.newer = self.oldest if older is NULL else older.newer
        if older is NULL:
            self.oldest = b
        else:
            store_batch(&older.newer, b)     # the sender prefetches its neighbours' memory without the lock
        if b.newer is NULL:
            self.newest = b
        else:
            b.newer.older = b
        self.incomplete_count += 1
        mutex_unlock(&self._incomplete_lock)
        return True

    cdef void delist(self, Batch *b) noexcept nogil:
        """Take the batch off the list of incomplete ones; the caller gets the list's reference."""
        mutex_lock(&self._incomplete_lock)
        if b.older is NULL:
            self.oldest = b.newer
        else:
            b.older.newer = b.newer
        if b.newer is NULL:
            self.newest = b.older
        else:
            b.newer.older = b.older
        b.older = NULL
        b.newer = NULL
        self.incomplete_count -= 1
        mutex_unlock(&self._incomplete_lock)

    cdef AppendStatus append_locked(self, Partition *p, const RecordView *r, int64_t now_ms, int64_t ticket,
                                    int *events) noexcept nogil:
        """Append to the partition, whose lock the caller holds. The record is the last one of `p.open.batch`.

        POOL_EXHAUSTED, OUT_OF_MEMORY: nothing written; the open batch may have been closed because the record did not fit.
        """
        cdef OpenBatch *o = &p.open
        cdef Batch *b = o.batch
        cdef Py_ssize_t body
        cdef AppendStatus status
        if b is not NULL:
            if batch_append(o, r) > 0:
                return APPENDED
            body = record_body_size(r, delta_between(r.timestamp, o.base_timestamp), o.record_count)
            if self.sums_records and o.position - b.last.data >= SUM_FROM:
                batch_sum(b, o.position)
            status = batch_extend(b, self.pool, uvarint_size(<unsigned long long>body << 1) + body, ticket)
            if status == APPENDED:
                batch_append(o, r)
                return APPENDED
            if status != BATCH_FULL:
                return status
            batch_move(b, CLOSED)
            p.first_class = LARGEST_CLASS
            events[0] |= EVENT_BATCH_FULL
        b = batch_open(self.pool, p, r, self.batch_size, ticket, &status)
        if b is NULL:
            return status
        b.created_us = now_ms * 1000 if now_ms != READ_CLOCK else monotonic_us()
        b.created_ms = b.created_us // 1000
        b.last_attempt_ms = b.created_ms
        if not self.enlist(b, NULL):
            o.batch = NULL
            batch_release_memory(b, self.pool)
            free(b)
            return POOL_EXHAUSTED       # the next attempt raises ProducerClosedError
        if p.tail is NULL:
            publish_batch(&p.head, b)
        else:
            p.tail.next = b
        p.tail = b
        store32(&p.queue_length, p.queue_length + 1)
        p.incomplete_count += 1
        batch_append(o, r)
        events[0] |= EVENT_NEW_BATCH
        return APPENDED

    cdef bint must_leave(self, Partition *p, const RecordView *r) noexcept nogil:
        """Whether the sticky partition has had its share (KIP-794). The caller holds its lock.

        A batch's worth of bytes and no batch that could take this record too; or two batches' worth in any case.
        """
        if p.sticky_bytes < self.batch_size:
            return False
        if p.sticky_bytes >= 2 * self.batch_size or p.open.batch is NULL:
            return True
        return not self._has_room(p.open.batch, r)

    cdef void leave_sticky(self, TopicQueues topic, Partition *p, const RecordView *r, int *events) noexcept nogil:
        """Make another partition the sticky one. The caller holds the lock of `p`, the current one."""
        p.sticky_bytes = 0
        if p.open.batch is not NULL and not self._has_room(p.open.batch, r):
            batch_move(p.open.batch, CLOSED)
            p.first_class = LARGEST_CLASS
            events[0] |= EVENT_BATCH_FULL
        store32(&topic.sticky._current, topic.sticky.draw())

    cdef bint _has_room(self, const Batch *b, const RecordView *r) noexcept nogil:
        return batch_size_bytes(b) + record_size_bound(r) <= b.limit

    cdef AppendStatus append_sticky(self, TopicQueues topic, const RecordView *r, int64_t now_ms, int64_t ticket,
                                    Partition **partition, int *events) noexcept nogil:
        """Append a record without a key to the sticky partition, and leave that locked."""
        cdef Partition *p
        cdef AppendStatus status
        cdef int current
        store32(&topic.sticky_used, 1)
        while True:
            current = load32(&topic.sticky._current)
            p = topic.partitions[current]
            mutex_lock(&p.lock)
            if current != load32(&topic.sticky._current):
                mutex_unlock(&p.lock)           # switched while we waited for the lock
                continue
            if self.must_leave(p, r):
                self.leave_sticky(topic, p, r, events)
                mutex_unlock(&p.lock)
                continue
            status = self.append_locked(p, r, now_ms, ticket, events)
            if status == APPENDED:
                p.sticky_bytes += record_size_bound(r)
            partition[0] = p
            return status

    cdef int tell_sender(self, int events) except -1:
        """Wake the sender once if it sleeps and the append made news for it. Needs the GIL."""
        cdef int awaited = load32(&self.awaited_events)
        if events & EVENT_BATCH_FULL:      # not for a new batch: yielding here would make the sender send many tiny requests
            let_others_in()
        if events & awaited and self.wakeup is not None:
            store32(&self.awaited_events, 0)
            try:
                self.wakeup()
            except BaseException:       # Ctrl-C came first: the sender still sleeps, the next append must wake it
                store32(&self.awaited_events, awaited)
                raise
        return 0

    def append(self, TopicQueues topic not None, key, value, headers=None, partition=ANY_PARTITION, timestamp=0,
               int64_t now_ms=0, int64_t ticket=0):
        """Append one record.

        Args:
            key, value: bytes-like or None. headers: pairs of (str, bytes-like or None), or None.
            partition: a partition number, or -1: by key hash, by the sticky partitioner without a key.
            timestamp: ms since the epoch, or -1 for none. now_ms: monotonic, starts linger and delivery timeout.
            ticket: of a queued memory waiter, 0 if none.

        Returns: a DeliveryFuture, or None if the pool is exhausted; then nothing was appended.
        Raises: InvalidRecordError, RecordTooLargeError, ProducerClosedError; then nothing was appended.
        """
        cdef RecordArguments arguments = RecordArguments()
        cdef int64_t chosen = to_int64(partition, "partition", INT32_MIN, INT32_MAX)
        cdef RecordView *r = arguments.fill(key, value, headers, to_int64(timestamp, "timestamp", -1, INT64_MAX))
        try:
            # Only now: the arguments' own code may have changed the topic.
            if not ANY_PARTITION <= chosen < topic.partition_count:
                raise InvalidRecordError(
                    f"partition={chosen} of topic {topic.name!r} is outside 0..{topic.partition_count - 1}"
                )
            return self.append_record(topic, <int32_t>chosen, r, now_ms, ticket)
        finally:
            arguments.clear()

    cdef object append_record(self, TopicQueues topic, int32_t partition, const RecordView *r, int64_t now_ms,
                              int64_t ticket):
        """Append a checked record; a DeliveryFuture, or None if the pool is exhausted. With the GIL."""
        cdef Partition *p = NULL
        cdef OpenBatch *o
        cdef Batch *b = NULL
        cdef PyObject *completion = NULL
        cdef int events = 0
        cdef int index = 0
        cdef bint is_held = False
        cdef bint is_scattered = False
        cdef AppendStatus status
        if record_size_bound(r) > self.max_record_bytes:
            raise RecordTooLargeError(
                f"record of up to {record_size_bound(r)} bytes for topic {topic.name!r} exceeds "
                f"max_record_bytes={self.max_record_bytes} (from max_request_size and buffer_memory)",
                topic=topic.name,
            )
        if self.is_closed:
            raise self.refusal()
        # What may fail for want of memory comes before the append: afterwards the record is on its way.
        cdef DeliveryFuture future = new_future()
        prepare_result(self.completion_factory)
        store32(&topic.was_used, 1)
        if partition == ANY_PARTITION and r.key_length >= 0 and not self.ignore_keys:
            partition = partition_for_key(
                r.key, r.key_length, fast_modulo(topic.partition_count) if FREE_THREADED else topic.modulo
            )
        if partition == ANY_PARTITION:
            status = self.append_sticky(topic, r, now_ms, ticket, &p, &events)
        else:
            p = topic.partitions[partition]
            is_scattered = topic.partition_count > FEW_PARTITIONS
            if is_scattered:
                prefetch_write(p)
                prefetch_hinted(&topic.hints[partition])
            mutex_lock(&p.lock)
            status = self.append_locked(p, r, now_ms, ticket, &events)
        o = &p.open
        if status == APPENDED:
            b = o.batch
            completion = o.completion
            index = o.record_count - 1
            is_held = hold_for_result(o)
            if is_scattered:
                remember(&topic.hints[partition], o)
            prefetch_ahead(o)
        mutex_unlock(&p.lock)
        if status != APPENDED:
            self.tell_sender(EVENT_BATCH_FULL)      # a waiter makes everything sendable
            if status == OUT_OF_MEMORY:
                raise MemoryError(f"the system has no memory for a record of topic {topic.name!r}")
            return None
        if not is_held:
            fill_future(future, <BatchResult>completion, index, r)
            if events != 0:
                self.tell_sender(events)
            return future
        self.tell_sender(events)    # first: making the result runs Python code, where a signal handler may wait for the record
        try:
            result = batch_result(b, self.completion_factory, topic.name)
        finally:
            batch_release(b, self.pool)
        fill_future(future, result, index, r)
        return future

    @staticmethod
    def memory_need(key, value, headers=None):
        """Bytes to wait for before a record can be appended to a new batch; what enqueue_waiter wants."""
        cdef RecordArguments arguments = RecordArguments()
        cdef Py_ssize_t bound = record_size_bound(arguments.fill(key, value, headers, 0)) + BATCH_HEADER_BYTES
        arguments.clear()
        return slab_total(bound)

    def begin_flush(self):
        """Make every batch sendable; return a mark: the flush is over once oldest_serial is 0 or above the mark."""
        mutex_lock(&self._incomplete_lock)
        cdef int64_t mark = self.last_serial
        self.flush_count += 1
        mutex_unlock(&self._incomplete_lock)
        self.tell_sender(EVENT_BATCH_FULL)
        return mark

    def end_flush(self):
        """Undo begin_flush()."""
        mutex_lock(&self._incomplete_lock)
        self.flush_count -= 1
        mutex_unlock(&self._incomplete_lock)

    @property
    def oldest_serial(self):
        """Serial of the oldest batch that has no outcome yet; 0 if there is none."""
        mutex_lock(&self._incomplete_lock)
        cdef int64_t serial = 0 if self.oldest is NULL else self.oldest.serial
        mutex_unlock(&self._incomplete_lock)
        return serial

    @property
    def incomplete_batch_count(self):
        """Batches without an outcome: open, queued or in flight."""
        return self.incomplete_count

    @property
    def untold_batch_count(self):
        """`incomplete_batch_count` plus the batches whose callbacks are still running."""
        cdef Py_ssize_t count = self.incomplete_count       # first: a batch is counted there, then here
        return count + load32(&self.telling_count)

    def close(self):
        """Refuse further appends; everything queued becomes sendable."""
        mutex_lock(&self._incomplete_lock)
        self.is_closed = True
        self.has_ended = True
        mutex_unlock(&self._incomplete_lock)
        self.tell_sender(EVENT_BATCH_FULL)

    def set_gate(self, bint is_open):
        """Let a transactional producer's records in, or refuse them; closing it makes everything queued sendable.

        An append that came first is in a batch without outcome once this returns; none gets in afterwards unless the batch
        it goes to still has no outcome. After close() the gate stays shut.
        """
        mutex_lock(&self._incomplete_lock)
        self.is_closed = self.has_ended or not is_open
        mutex_unlock(&self._incomplete_lock)
        if not is_open:
            self.tell_sender(EVENT_BATCH_FULL)

    cdef object refusal(self):
        """The error for an append while `is_closed`."""
        if self.has_ended:
            return ProducerClosedError("the producer is closed: no record can be sent")
        return IllegalStateError("no transaction is open, or it is being ended: no record can be sent")

    def abandon(self):
        """Refuse further appends in a forked child: no lock is taken, its holder may not exist here."""
        self.has_ended = True
        self.is_closed = True

    def set_sender_sleeps(self, bint sleeps):
        """The sender calls this before it scans for work. While set, an append that opens or fills a batch wakes it."""
        store32(&self.awaited_events, EVENT_NEW_BATCH | EVENT_BATCH_FULL if sleeps else 0)

    def let_new_batches_linger(self):
        """Called before a sleep of at most linger_ms: only a full batch wakes the sender."""
        store32(&self.awaited_events, EVENT_BATCH_FULL)

    def explain(self, int limit=5):
        """Say who holds the pool's memory.

        Returns: up to `limit` tuples (topic, partition, leader node id, bytes, batches without outcome), largest first.
        """
        cdef Py_ssize_t count
        cdef Py_ssize_t i = 0
        cdef Batch *b
        cdef (int, int, int, long long) *rows
        mutex_lock(&self._incomplete_lock)
        count = self.incomplete_count
        rows = <(int, int, int, long long) *>malloc((count + 1) * sizeof(rows[0]))
        if rows is not NULL:
            b = self.oldest
            while b is not NULL and i < count:
                rows[i] = (b.partition.topic_index, b.partition.index, b.partition.leader, load64(&b.held_bytes))
                i += 1
                b = b.newer
        mutex_unlock(&self._incomplete_lock)
        if rows is NULL:
            raise MemoryError
        held = {}
        for i in range(i):
            slot = held.setdefault((rows[i][0], rows[i][1]), [rows[i][2], 0, 0])
            slot[1] += rows[i][3]
            slot[2] += 1
        free(rows)
        largest = sorted(held.items(), key=lambda item: -item[1][1])[:limit]
        return [(self.topic_list[topic].name, partition, leader, size, batches)
                for (topic, partition), (leader, size, batches) in largest]
