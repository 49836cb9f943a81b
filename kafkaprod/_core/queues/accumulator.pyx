"""topic -> partition -> queue of batches: where application threads append and the sender drains (drain.pyx).

On a record's way this comes after the partitioner and before drain. Three callers append: send_path one record of bytes,
`append` one record of any arguments, blocks.pyx many rows. The first two end in `append_locked`; blocks.pyx calls it where a
batch has to be opened or extended, and writes the other rows of a run itself, with the batch's state in registers.
Thread-safe. Nothing here waits: if the pool is full, POOL_EXHAUSTED is returned and nothing has changed.
"""

cimport cython
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, uint64_t
from libc.stdlib cimport free, malloc

from kafkaprod._core.queues.backlog cimport (
    backlog_add,
    backlog_begin_flush,
    backlog_end,
    backlog_end_flush,
    backlog_oldest_serial,
    backlog_set_gate,
)
from kafkaprod._core.queues.batch cimport (
    CLOSED,
    SUM_FROM,
    OpenBatch,
    batch_append,
    batch_extend,
    batch_fit,
    batch_hold,
    batch_move,
    batch_open,
    batch_release,
    batch_release_memory,
    batch_sum,
    delta_between,
    most_batch,
    prefetch_ahead,
    prefetch_hinted,
    publish_batch,
    remember,
)
from kafkaprod._core.records.batch_layout cimport BATCH_HEADER_BYTES
from kafkaprod._core.queues.slabs cimport LARGEST_CLASS, slab_total
from kafkaprod._core.queues.spare_structs cimport spare_give
from kafkaprod._core.machine.clock cimport READ_CLOCK, monotonic_us
from kafkaprod._core.queues.completion cimport (
    BatchResult,
    DeliveryFuture,
    ResultMaker,
    batch_result,
    fill_future,
    new_future,
)
from kafkaprod._core.machine.gil_turns cimport let_others_in
from kafkaprod._core.machine.lock cimport (
    FREE_THREADED,
    fence,
    load32,
    load64,
    load_i64,
    mark32,
    mutex_lock,
    mutex_unlock,
    observe32,
    observe_size,
    store32,
)
from kafkaprod._core.records.murmur2 cimport fast_modulo, partition_for_key
from kafkaprod._core.machine.prefetch cimport prefetch_write
from kafkaprod._core.queues.sticky cimport MOST_DRAWS, leave_sticky, must_leave
from kafkaprod._core.queues.topic_queues cimport FEW_PARTITIONS, make_topic_queues, partition_count
from kafkaprod._core.records.integers cimport to_int64
from kafkaprod._core.records.record_arguments cimport RecordArguments
from kafkaprod._core.records.record_view cimport (
    APPENDED,
    BATCH_FULL,
    EVENT_BATCH_FULL,
    EVENT_NEW_BATCH,
    EVENT_SHORT_LINGER,
    NODE_EXHAUSTED,
    OUT_OF_MEMORY,
    POOL_EXHAUSTED,
)
from kafkaprod._core.records.record_writer cimport record_body_size, record_size_bound
from kafkaprod._core.records.varint cimport uvarint_size

from kafkaprod.errors import IllegalStateError, InvalidRecordError, ProducerClosedError, RecordTooLargeError


@cython.final
@cython.no_gc_clear
cdef class Accumulator:
    """The queues of all topics.

    Args:
        pool: Where batches take their memory.
        batch_size: From these bytes on a batch is sendable, uncompressed, header included; a larger record gets its own.
        max_record_bytes: Upper bound of one record's size; larger ones are refused.
        completion_factory: Called as factory(topic, partition), returns a BatchResult.
        wakeup: Called without arguments when the sender sleeps and there is news for it.
        max_batch_size: Up to these bytes a batch takes records until the sender takes it; None: `batch_size`.
    """

    def __cinit__(self, BufferPool pool not None, Py_ssize_t batch_size=262144, Py_ssize_t max_record_bytes=1048576,
                  completion_factory=BatchResult, wakeup=None, max_batch_size=None):
        self.pool = pool
        self.topics = {}
        self.held_topics = {}
        self.topic_list = []
        self._all_topics = ()
        self._idle_topics = {}
        self.defaults.batch_size = max(batch_size, 1)
        self.defaults.max_batch_size = max(self.defaults.batch_size, 0 if max_batch_size is None else max_batch_size)
        self.defaults.new_batch_events = EVENT_NEW_BATCH
        self.max_record_bytes = min(max_record_bytes, pool.capacity - 256)
        self.completion_factory = completion_factory
        self.wakeup = wakeup
        self.seed = <uint64_t>id(self)

    def __dealloc__(self):
        cdef Batch *b = self.backlog.oldest
        cdef Batch *newer
        while b is not NULL:
            newer = b.newer
            b.references = 1
            batch_release(b, self.pool)
            b = newer

    def set_topic(self, str name not None, leaders not None, epochs=None, bytes topic_id=None):
        """Create or update a topic from metadata. Sender thread only.

        Args:
            leaders: Node id per partition, -1 where there is none. Fewer than before: the topic was re-created. The
                partitions that are gone get no more records; what they hold is the sender's to fail.
            epochs: Leader epoch per partition, -1 where unknown.
            topic_id: 16 bytes or None.
        """
        cdef TopicQueues topic = self.topics.get(name) or self._idle_topics.get(name)
        if len(leaders) < 1:
            raise InvalidRecordError(f"topic {name!r} needs at least one partition")
        is_new = topic is None
        if is_new:
            topic = make_topic_queues(name, <int32_t>len(self.topic_list))
            _choose_batching(self, topic)
        topic.update(leaders, [-1] * len(leaders) if epochs is None else epochs, topic_id, self.seed,
                     self.pool)
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
        return topic is not None and topic.take_used()

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

    def hold(self, str name not None):
        """Let no send of one record find the topic's queues without a look at what waits in `held_topics`. Any thread."""
        self.topics_generation += 1
        return self.held_topics.setdefault(name, {})

    cdef int set_sending(self, int64_t linger_us, bint sums_records) except -1:
        """Take what the drain knows: how long batches linger, and whether anything compresses them."""
        cdef TopicQueues topic
        self.defaults.linger_us, self.defaults.sums_records = linger_us, sums_records
        for topic in self.topic_list:
            topic.batching.linger_us, topic.batching.sums_records = linger_us, sums_records
        return 0

    cdef AppendStatus append_locked(self, Partition *p, const RecordView *r, int64_t now_ms, int64_t ticket,
                                    int *events) noexcept nogil:
        """Append to the partition, whose lock the caller holds. The record is the last one of `p.open.batch`.

        POOL_EXHAUSTED, NODE_EXHAUSTED, OUT_OF_MEMORY: nothing written; the open batch may have been closed because the
        record did not fit.
        """
        cdef OpenBatch *o = &p.open
        cdef Batch *b = o.batch
        cdef Py_ssize_t body, size
        cdef AppendStatus status
        cdef int64_t now_us
        cdef bint was_full
        if b is not NULL:
            if batch_append(o, r) > 0:
                return APPENDED
            body = record_body_size(r, delta_between(r.timestamp, o.base_timestamp), o.record_count)
            if p.batching.sums_records and o.position - b.last.data >= SUM_FROM:
                batch_sum(b, o.position, True)
            was_full = b.is_full
            status = batch_extend(
                b, self.pool, uvarint_size(<unsigned long long>body << 1) + body, most_batch(p), ticket
            )
            if status == APPENDED:
                batch_append(o, r)
                if b.is_full and not was_full:
                    p.first_class = LARGEST_CLASS
                    if p.head is b:         # one behind it cannot leave yet
                        events[0] |= EVENT_BATCH_FULL
                return APPENDED
            if status != BATCH_FULL:
                return status
            batch_move(b, CLOSED)
            p.first_class = LARGEST_CLASS
            events[0] |= EVENT_BATCH_FULL
        size = min(p.batching.batch_size, most_batch(p))
        b = batch_open(self.pool, p, r, size, ticket, &status)
        if b is NULL:
            return status
        now_us = now_ms * 1000 if now_ms != READ_CLOCK else monotonic_us()
        b.linger_end_us = now_us + p.batching.linger_us
        b.created_ms = b.last_attempt_ms = now_us // 1000
        if not backlog_add(&self.backlog, b):
            o.batch = NULL
            batch_release_memory(b, self.pool)
            spare_give(&self.pool.spares, b)
            return POOL_EXHAUSTED       # the next attempt raises ProducerClosedError
        if p.tail is NULL:
            publish_batch(&p.head, b)
        else:
            p.tail.next = b
        p.tail = b
        store32(&p.queue_length, p.queue_length + 1)
        p.incomplete_count += 1
        batch_append(o, r)
        events[0] |= p.batching.new_batch_events
        if b.limit > size and batch_fit(b, size) and p.head is b:
            events[0] |= EVENT_BATCH_FULL
        return APPENDED

    cdef AppendStatus append_sticky(self, TopicQueues topic, const RecordView *r, int64_t now_ms, int64_t ticket,
                                    Partition **partition, int *events) noexcept nogil:
        """Append a record without a key to the sticky partition, and leave that locked."""
        cdef Partition *p
        cdef AppendStatus status
        cdef int current
        cdef int draws = MOST_DRAWS
        cdef int64_t turn_us = load_i64(&self.turn_us)
        mark32(&topic.sticky_used)
        while True:
            current = observe32(&topic.sticky._current)     # before the array, which is older
            p = topic.partitions[current]
            mutex_lock(&p.lock)
            if current != load32(&topic.sticky._current):
                mutex_unlock(&p.lock)           # switched while we waited for the lock
                continue
            if must_leave(topic.sticky, p, r, topic.batching.batch_size, turn_us, &draws):
                leave_sticky(topic.sticky, p, r, events)
                mutex_unlock(&p.lock)
                continue
            status = self.append_locked(p, r, now_ms, ticket, events)
            if status == NODE_EXHAUSTED and draws > 0:
                draws -= 1
                leave_sticky(topic.sticky, p, r, events)
                mutex_unlock(&p.lock)
                continue
            if status == APPENDED:
                p.sticky_bytes += record_size_bound(r)
            partition[0] = p
            return status

    cdef int tell_sender(self, int events) except -1:
        """Wake the sender once if it sleeps and the append made news for it. Needs the GIL."""
        cdef int awaited
        if events != 0:         # once a batch
            fence()             # the sender sees the batch when it scans, or this sees that it sleeps
        awaited = load32(&self.awaited_events)
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
            partition: A partition number, or -1: by key hash, by the sticky partitioner without a key.
            timestamp: ms since the epoch, or -1 for none. now_ms: monotonic, starts linger and delivery timeout.
            ticket: The ticket of a queued memory waiter, 0 if none.

        Returns: a DeliveryFuture, or None if the pool is exhausted; then nothing was appended.
        Raises: InvalidRecordError, RecordTooLargeError, ProducerClosedError; then nothing was appended.
        """
        cdef RecordArguments arguments = RecordArguments()
        cdef int64_t chosen = to_int64(partition, "partition", INT32_MIN, INT32_MAX)
        cdef RecordView *r = arguments.fill(key, value, headers, to_int64(timestamp, "timestamp", -1, INT64_MAX))
        try:
            # Only now: the arguments' own code may have changed the topic.
            if not ANY_PARTITION <= chosen < partition_count(topic):
                raise InvalidRecordError(
                    f"partition={chosen} of topic {topic.name!r} is outside 0..{partition_count(topic) - 1}"
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
        cdef bint is_scattered = False
        cdef AppendStatus status
        if record_size_bound(r) > self.max_record_bytes:
            raise RecordTooLargeError(
                f"record of up to {record_size_bound(r)} bytes for topic {topic.name!r} exceeds "
                f"{self.max_record_bytes} bytes, the limit by max_request_size and buffer_memory",
                topic=topic.name,
            )
        if self.backlog.is_closed:
            raise self.refusal()
        # What may fail for want of memory comes before the append: afterwards the record is on its way.
        cdef DeliveryFuture future = new_future()
        if type(self.completion_factory) is ResultMaker and (<ResultMaker>self.completion_factory)._spare is None:
            (<ResultMaker>self.completion_factory).prepare()
        mark32(&topic.was_used)
        if partition == ANY_PARTITION and r.key_length >= 0 and not self.ignore_keys:
            partition = partition_for_key(
                r.key, r.key_length, fast_modulo(partition_count(topic)) if FREE_THREADED else topic.modulo
            )
        if partition == ANY_PARTITION:
            status = self.append_sticky(topic, r, now_ms, ticket, &p, &events)
        else:
            p = topic.partitions[partition]
            is_scattered = topic._partition_count > FEW_PARTITIONS
            if is_scattered:
                prefetch_write(p)
                prefetch_hinted(&topic.hints[partition])
            mutex_lock(&p.lock)
            status = self.append_locked(p, r, now_ms, ticket, &events)
        o = &p.open
        if status == APPENDED:
            b = o.batch
            index = o.record_count - 1
            completion = o.completion
            if completion is not NULL:
                Py_INCREF(<object>completion)       # the lock keeps it: an open batch has no outcome
            else:
                batch_hold(o)                       # making the object runs Python code
            if is_scattered:
                remember(&topic.hints[partition], o)
            prefetch_ahead(o)
        mutex_unlock(&p.lock)
        if status != APPENDED:
            self.tell_sender(EVENT_BATCH_FULL)      # a waiter makes everything sendable
            if status == OUT_OF_MEMORY:
                raise MemoryError(f"the system has no memory for a record of topic {topic.name!r}")
            return None
        if completion is not NULL:
            fill_future(future, completion, index, r)
            if events != 0:
                self.tell_sender(events)
            return future
        self.tell_sender(events)    # first: making the result runs Python code, where a signal handler may wait for the record
        try:
            result = batch_result(b, self.completion_factory, topic.name)
        finally:
            batch_release(b, self.pool)
        Py_INCREF(result)
        fill_future(future, <PyObject *>result, index, r)
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
        cdef int64_t mark = backlog_begin_flush(&self.backlog)
        self.tell_sender(EVENT_BATCH_FULL)
        return mark

    def end_flush(self):
        """Undo begin_flush()."""
        backlog_end_flush(&self.backlog)

    @property
    def oldest_serial(self):
        """Serial of the oldest batch that has no outcome yet; 0 if there is none."""
        return backlog_oldest_serial(&self.backlog)

    @property
    def incomplete_batch_count(self):
        """Batches without an outcome: open, queued or in flight."""
        return self.backlog.count

    @property
    def unpublished_batch_count(self):
        """`incomplete_batch_count` plus the batches whose callbacks are still running."""
        cdef Py_ssize_t count = observe_size(&self.backlog.count)   # first: a batch is counted there, then here
        return count + load32(&self.backlog.publishing_count)

    def close(self):
        """Refuse further appends; everything queued becomes sendable."""
        backlog_end(&self.backlog)
        self.tell_sender(EVENT_BATCH_FULL)

    def set_gate(self, bint is_open):
        """Let a transactional producer's records in, or refuse them; closing it makes everything queued sendable.

        It does not wake the sender: whoever closes the gate then waits for the sender, and wakes it without the GIL. A
        sender that is woken before that waits for the GIL, sends, and is woken a second time.

        An append that came first is in a batch without outcome once this returns; none gets in afterwards unless the batch
        it goes to still has no outcome. After close() the gate stays shut.
        """
        backlog_set_gate(&self.backlog, is_open)

    cdef object refusal(self):
        """Return the error for an append while the gate is shut."""
        if self.backlog.has_ended:
            return ProducerClosedError("the producer is closed: no record can be sent after close() or a `with` block")
        return IllegalStateError("no transaction is open, or it is being ended: no record can be sent")

    def abandon(self):
        """Refuse further appends in a forked child, and results of blocks: no lock is taken, its holder may not exist here."""
        self.is_abandoned = True
        self.pool.abandon()
        self.backlog.has_ended = True
        self.backlog.is_closed = True

    def set_sender_sleeps(self, bint sleeps):
        """The sender calls this before it scans for work. While set, an append that opens or fills a batch wakes it."""
        store32(&self.awaited_events, EVENT_NEW_BATCH | EVENT_BATCH_FULL if sleeps else 0)
        fence()     # the scan comes after it; see tell_sender()

    def let_new_batches_linger(self):
        """Called before a sleep of at most linger_ms: only a full batch, or one that lingers less, wakes the sender."""
        store32(&self.awaited_events, EVENT_BATCH_FULL | EVENT_SHORT_LINGER)


cdef int _choose_batching(Accumulator accumulator, TopicQueues topic) except -1:
    """Say how the topic's batches are made, before it has partitions."""
    topic.batching = accumulator.defaults
    given = None if accumulator.topic_batching is None else accumulator.topic_batching(topic.name)
    if given is None:
        return 0
    batch_size, max_batch_size, linger_ms, codec, compresses = given
    topic.batching.batch_size = max(<Py_ssize_t>batch_size, 1)
    topic.batching.max_batch_size = max(<Py_ssize_t>max_batch_size, topic.batching.batch_size)
    topic.batching.linger_us = <int64_t>linger_ms * 1000
    topic.batching.codec = codec
    topic.batching.sums_records = not compresses
    if topic.batching.linger_us < accumulator.defaults.linger_us:
        topic.batching.new_batch_events |= EVENT_SHORT_LINGER
    return 0


def memory_holders(Accumulator accumulator not None, int limit=5):
    """Say who holds the pool's memory.

    Returns: up to `limit` tuples (topic, partition, leader node id, bytes, batches without outcome), largest first.
    """
    cdef Backlog *backlog = &accumulator.backlog
    cdef Py_ssize_t count
    cdef Py_ssize_t i = 0
    cdef Batch *b
    cdef (int, int, int, long long) *rows
    mutex_lock(&backlog.lock)
    count = backlog.count
    rows = <(int, int, int, long long) *>malloc((count + 1) * sizeof(rows[0]))
    if rows is not NULL:
        b = backlog.oldest
        while b is not NULL and i < count:
            rows[i] = (b.partition.topic_index, b.partition.index, b.partition.leader, load64(&b.held_bytes))
            i += 1
            b = b.newer
    mutex_unlock(&backlog.lock)
    if rows is NULL:
        raise MemoryError
    held = {}
    for i in range(i):
        slot = held.setdefault((rows[i][0], rows[i][1]), [rows[i][2], 0, 0])
        slot[1] += rows[i][3]
        slot[2] += 1
    free(rows)
    largest = sorted(held.items(), key=lambda item: -item[1][1])[:limit]
    return [(accumulator.topic_list[topic].name, partition, leader, size, batches)
            for (topic, partition), (leader, size, batches) in largest]
