"""Batches whose records are in a journal alone: those of an earlier process, and of an outage that is longer than memory.

    stored -> unload_batches(): the pool has its memory again -> load_batch(): when it could be sent next -> drain

Such a batch has its place in the queue, its sequence and its result, and no memory: the drain leaves it there until
load_batch() has given it its bytes again. Sender thread only, or before it runs.

Queues are walked without their locks, from the head to `stored_tail` and no further: this thread alone takes batches out,
and has marked each of these as stored itself. What other threads append comes after them.
"""

from cpython.ref cimport Py_XDECREF, PyObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t
from libc.string cimport memcpy, memmove

from kafkaprod._core.machine.lock cimport mutex_lock, mutex_unlock, store32, store64
from kafkaprod._core.queues.accumulator cimport Accumulator
from kafkaprod._core.queues.backlog cimport backlog_add
from kafkaprod._core.queues.batch cimport CLOSED, Batch, Partition, batch_release_memory
from kafkaprod._core.queues.slabs cimport Slab
from kafkaprod._core.queues.spare_structs cimport spare_give, spare_take
from kafkaprod._core.queues.sequences cimport BROKER_WINDOW, advance_sequence, insert_outstanding
from kafkaprod._core.queues.topic_queues cimport TopicQueues
from kafkaprod._core.records.batch_layout cimport BATCH_HEADER_BYTES, CRC_START
from kafkaprod._core.records.big_endian cimport get_i32
from kafkaprod._core.records.checksum cimport extend_crc
from kafkaprod._core.records.record_view cimport AppendStatus
from kafkaprod._core.records.varint cimport get_varint, get_varlong, put_uvarint, put_varint
from kafkaprod._core.requests.settlement cimport BatchRef, make_ref

from kafkaprod.errors import CorruptDataError, IllegalStateError, ProducerClosedError


def restore_partition(Accumulator accumulator not None, str topic not None, int32_t partition, int64_t next_rank,
                      int64_t resolved_rank, int64_t producer_id, int16_t producer_epoch, int64_t first_rank):
    """Continue a partition where an earlier process stopped: before its batches are restored, after it has its reference.

    Args:
        producer_id: That of the batches that may have been sent; what follows them is sent under the drain's.
        first_rank: The rank of its sequence 0.
    """
    cdef TopicQueues queues = accumulator.topics[topic]
    cdef Partition *p = queues.partitions[partition]
    mutex_lock(&p.lock)
    p.next_journal_rank = next_rank
    p.resolved_rank = resolved_rank
    p.producer_id = producer_id
    p.producer_epoch = producer_epoch
    p.journal_producer_id = producer_id + 1
    p.journal_epoch = producer_epoch
    p.journal_first_rank = first_rank
    p.last_acked_sequence = -1
    mutex_unlock(&p.lock)


def restore_batch(Accumulator accumulator not None, str topic not None, int32_t partition, entry not None,
                  int32_t base_sequence, int64_t now_ms):
    """Queue a batch whose entry is in a journal.

    Args:
        entry: (Segment, position, bytes, rank of the first record, records, records to skip, first and last timestamp).
        base_sequence: It may have been sent under this one and the partition's producer id. -1: it was not.

    Raises MemoryError, ProducerClosedError; nothing is queued then.
    """
    cdef TopicQueues queues = accumulator.topics[topic]
    cdef Partition *p = queues.partitions[partition]
    cdef Batch *b = <Batch *>spare_take(&accumulator.pool.spares, sizeof(Batch))
    if b is NULL:
        raise MemoryError
    b.partition = p
    b.account = p.account
    b.references = 1
    b.state = CLOSED
    b.created_ms = b.last_attempt_ms = now_ms
    b.linger_end_us = now_ms * 1000
    b.producer_id = b.producer_epoch = b.base_sequence = -1
    b.base_offset = b.log_append_time = -1
    b.is_stored = True
    b.journal_segment, b.journal_position, b.journal_bytes, b.journal_rank = entry[:4]
    b.record_count, b.journal_skipped, b.base_timestamp, b.max_timestamp = entry[4:]
    if not backlog_add(&accumulator.backlog, b):
        spare_give(&accumulator.pool.spares, b)
        raise ProducerClosedError("the producer is closed")
    mutex_lock(&p.lock)
    if p.tail is NULL:
        p.head = b
    else:
        p.tail.next = b
    p.tail = p.stored_tail = b
    store32(&p.queue_length, p.queue_length + 1)
    p.incomplete_count += 1
    if base_sequence >= 0:
        b.producer_id = p.producer_id
        b.producer_epoch = p.producer_epoch
        b.base_sequence = base_sequence
        b.maybe_persisted = True
        p.last_ordinal += 1
        b.ordinal = p.last_ordinal
        p.next_sequence = advance_sequence(base_sequence, b.record_count)
        insert_outstanding(p, b, p.last_outstanding)
    mutex_unlock(&p.lock)


def unloaded_leaders(Accumulator accumulator not None):
    """Return the node ids of the leaders of partitions whose next batch waits for its bytes."""
    cdef TopicQueues topic
    cdef Partition *p
    cdef int32_t i
    cdef set found = set()
    for topic in accumulator.topic_list:
        for i in range(topic.allocated_count):
            p = topic.partitions[i]
            if p.leader >= 0 and p.stored_tail is not NULL and _is_unloaded(p.head):
                found.add(p.leader)
    return found


def first_unloaded(Accumulator accumulator not None, Py_ssize_t most_bytes, set nodes not None):
    """Return the batches that wait for their bytes and could be sent next, as BatchRefs: of each partition, as many as may
    be on their way at a time.

    Args:
        most_bytes: Most bytes of batches in queues that have got their bytes again, with those that are returned; the first
            one is returned however large it is.
        nodes: Ids of the leaders that can be sent to.
    """
    cdef TopicQueues topic
    cdef Partition *p
    cdef int32_t i
    cdef list found = []
    for topic in accumulator.topic_list:
        for i in range(topic.allocated_count):
            p = topic.partitions[i]
            if p.stored_tail is not NULL and p.leader in nodes:
                most_bytes = _find_unloaded(accumulator, p, most_bytes, found)
                if most_bytes <= 0:
                    return found
    return found


cdef Py_ssize_t _find_unloaded(Accumulator accumulator, Partition *p, Py_ssize_t most_bytes, list found) except? -1:
    """Add the partition's next batches that wait for their bytes; return how many bytes more may be added."""
    cdef Batch *b = p.head
    cdef int ahead = BROKER_WINDOW
    while b is not NULL and ahead > 0:
        if b.first is NULL:
            if found and b.journal_bytes > most_bytes:
                return 0
            found.append(make_ref(accumulator, b))
        if b.journal_position >= 0:
            most_bytes -= b.journal_bytes
        b = _next_stored(p, b)
        ahead -= 1
    return most_bytes


cdef inline Batch *_next_stored(const Partition *p, const Batch *b) noexcept nogil:
    """Return the batch behind a stored one, if it is stored, too."""
    return NULL if b == p.stored_tail else b.next


cdef inline bint _is_unloaded(const Batch *b) noexcept nogil:
    return b is not NULL and b.is_stored and b.first is NULL


def unload_batches(Accumulator accumulator not None, int64_t segment, int64_t synced_bytes, set nodes not None,
                   int64_t created_before_ms):
    """Give the memory of queued batches back to the pool: of those whose entries are on the disk.

    Args:
        segment, synced_bytes: All segments before this one are on the disk, and so many bytes of it.
        nodes: Ids of the leaders that can be sent to. Of their partitions the batches that are sent next keep their
            memory, and all do if the first is not older than `created_before_ms`.
    Return how many batches that were, and whether others wait only for the disk.
    """
    cdef TopicQueues topic
    cdef Partition *p
    cdef Py_ssize_t count = 0
    cdef int32_t i
    cdef bint waits_for_disk = False
    cdef bint is_sent_to
    for topic in accumulator.topic_list:
        for i in range(topic.allocated_count):
            p = topic.partitions[i]
            if p.stored_tail is NULL or p.stored_tail == p.unloaded_tail:
                continue
            is_sent_to = p.leader in nodes
            if not is_sent_to or p.head.created_ms <= created_before_ms:
                count += _unload_partition(accumulator, p, segment, synced_bytes, BROKER_WINDOW if is_sent_to else 0,
                                           &waits_for_disk)
    return count, waits_for_disk


cdef Py_ssize_t _unload_partition(Accumulator accumulator, Partition *p, int64_t segment, int64_t synced_bytes,
                                  int kept_count, bint *waits_for_disk) except -1:
    cdef Py_ssize_t count = 0
    cdef Batch *b = p.unloaded_tail
    if b is NULL:
        b = p.head
        while kept_count > 0 and b is not NULL:
            b = _next_stored(p, b)
            kept_count -= 1
    else:
        b = _next_stored(p, b)
    while b is not NULL:
        if b.journal_segment > segment or (b.journal_segment == segment
                                           and b.journal_position + b.journal_bytes > synced_bytes):
            waits_for_disk[0] = True
            break
        if b.first is not NULL and b.journal_position >= 0 and b.request_count == 0:
            _unload(accumulator, b)
            count += 1
        p.unloaded_tail = b
        b = _next_stored(p, b)
    return count


cdef int _unload(Accumulator accumulator, Batch *b) except -1:
    """Let a queued batch be in the journal alone: as it was stored, neither sealed nor compressed."""
    cdef PyObject *compressed
    mutex_lock(&b.partition.lock)
    compressed = b.compressed
    b.compressed = NULL
    b.codec = 0
    b.sealed = False
    store64(&b.held_bytes, 0)
    batch_release_memory(b, accumulator.pool)
    mutex_unlock(&b.partition.lock)
    Py_XDECREF(compressed)
    return 0


def load_batch(BatchRef ref not None, bytes entry not None):
    """Give a batch without memory the bytes of its entry; beyond the capacity of the pool if that is full.

    Raises MemoryError, CorruptDataError; nothing has changed then.
    """
    cdef Batch *b = ref.batch
    cdef const char *data = entry
    cdef Py_ssize_t size = len(entry)
    cdef AppendStatus status
    cdef Slab *slab
    if b.first is not NULL or b.state != CLOSED:
        raise IllegalStateError(f"{ref!r} has its bytes")
    if size != b.journal_bytes:
        raise CorruptDataError(f"{ref.topic}[{ref.partition}]: an entry of the journal has {size} of {b.journal_bytes} bytes")
    if extend_crc(0, data + CRC_START, size - CRC_START) != <uint32_t>get_i32(data + 17):
        raise CorruptDataError(f"{ref.topic}[{ref.partition}]: an entry of the journal has another checksum than its bytes")
    slab = ref.accumulator.pool.try_acquire(b.account, size, 0, 0, &status)
    if slab is NULL:
        slab = ref.accumulator.pool.acquire_beyond_capacity(b.account, size)
    if slab is NULL:
        raise MemoryError(f"no memory for a batch of {size} bytes")
    memcpy(slab.data, data, <size_t>size)
    slab.used = size
    if b.journal_skipped > 0:
        slab.used = _without_first(slab.data, size, b.journal_skipped)
    mutex_lock(&b.partition.lock)
    b.first = b.last = slab
    b.last_generation = slab.generation
    b.position = slab.data + slab.used
    b.closed_bytes = 0
    b.limit = slab.used
    b.sealed = False
    store64(&b.held_bytes, slab.total)
    mutex_unlock(&b.partition.lock)


cdef Py_ssize_t _without_first(char *data, Py_ssize_t size, int32_t skipped) noexcept nogil:
    """Remove the first records of a batch, whose CRC has been checked; return its new size. Deltas only become smaller."""
    cdef const char *at = data + BATCH_HEADER_BYTES
    cdef const char *end = data + size
    cdef const char *body
    cdef const char *rest
    cdef const char *following
    cdef char *target = data + BATCH_HEADER_BYTES
    cdef char[32] head
    cdef char *head_end
    cdef int32_t length
    cdef int32_t offset_delta
    cdef int64_t timestamp_delta
    cdef int32_t index = 0
    while at < end:
        body = get_varint(at, end, &length)
        following = body + length
        rest = get_varint(get_varlong(body + 1, following, &timestamp_delta), following, &offset_delta)
        if index >= skipped:
            head[0] = 0
            head_end = put_varint(head + 1, timestamp_delta)
            head_end = put_uvarint(head_end, <unsigned long long>(index - skipped) << 1)
            target = put_uvarint(target, <unsigned long long>((head_end - head) + (following - rest)) << 1)
            memcpy(target, head, <size_t>(head_end - head))
            target += head_end - head
            memmove(target, rest, <size_t>(following - rest))
            target += following - rest
        at = following
        index += 1
    return target - data
