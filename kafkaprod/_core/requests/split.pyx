"""Splitting a batch that a broker called too large (MESSAGE_TOO_LARGE, KIP-126). Sender thread only.

Records are moved, not decoded: from the key on a record's bytes do not depend on its batch, so only its length and its
two deltas are rewritten. The children take the original's place in the queue, its sequence numbers and its age.
"""

from cpython.ref cimport PyObject, Py_INCREF
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from kafkaprod._core.queues.accumulator cimport Accumulator
from kafkaprod._core.queues.backlog cimport backlog_insert
from kafkaprod._core.queues.batch cimport (
    CLOSED,
    DONE,
    SENT,
    SPLIT,
    Batch,
    Partition,
    batch_release,
    batch_size_bytes,
)
from kafkaprod._core.records.batch_layout cimport BATCH_HEADER_BYTES
from kafkaprod._core.queues.slabs cimport Slab
from kafkaprod._core.queues.spare_structs cimport spare_give, spare_take
from kafkaprod._core.queues.topic_queues cimport TopicQueues
from kafkaprod._core.queues.completion cimport batch_result
from kafkaprod._core.machine.lock cimport mutex_lock, mutex_unlock, store64
from kafkaprod._core.records.record_writer cimport RECORD_OVERHEAD_BOUND
from kafkaprod._core.queues.sequences cimport advance_sequence, insert_outstanding, is_outstanding
from kafkaprod._core.requests.settlement cimport BatchRef, finish_batch, insert_queued
from kafkaprod._core.records.varint cimport get_varint, get_varlong, put_uvarint, put_varint, uvarint_size, varint_size

from kafkaprod.errors import IllegalStateError


cdef struct MovedRecord:
    int64_t timestamp
    const char *rest            # from the key length on
    Py_ssize_t rest_size


def split_batch(BatchRef ref not None, Py_ssize_t target_bytes):
    """Replace a sent batch by smaller ones of up to `target_bytes` each (a larger record goes alone); return how many.

    The children have no attempts; the original's result points at theirs. Their memory may go beyond the pool's
    capacity until the request gives the original's back. Returns 0 if the records had their outcome before.
    Raises IllegalStateError for a batch of one record or one that is not in a request, MemoryError; nothing has changed then.
    """
    cdef Batch *b = ref.batch
    cdef Accumulator accumulator = ref.accumulator
    cdef TopicQueues topic = accumulator.topic_list[b.partition.topic_index]
    cdef Batch *child
    cdef list children
    if b.state == DONE:
        return 0
    if b.record_count < 2 or b.state != SENT:
        raise IllegalStateError(f"cannot split {ref!r}")
    cdef Batch *first = _move_records(accumulator, b, target_bytes)
    if first is NULL:
        raise MemoryError(f"no memory to split a batch of {batch_size_bytes(b)} bytes")
    children = []
    child = first
    while child is not NULL:
        children.append((child.rank - b.rank, batch_result(child, accumulator.completion_factory, topic.name)))
        child = child.next
    _link(accumulator, b, first)
    Py_INCREF(children)
    b.children = <PyObject *>children
    finish_batch(accumulator, b, SPLIT, -1, -1, None, None)
    return len(children)


def limit_batches(BatchRef ref not None, int32_t most_bytes):
    """Let batches of this batch's topic grow to `most_bytes` and no more, until the topic is created again.

    What is queued keeps its size. A limit that was learned before stays if it is lower.
    """
    cdef TopicQueues topic = ref.accumulator.topic_list[ref.batch.partition.topic_index]
    cdef Partition *p
    cdef int32_t i
    for i in range(topic.allocated_count):
        p = topic.partitions[i]
        mutex_lock(&p.lock)
        if p.topic_most == 0 or most_bytes < p.topic_most:
            p.topic_most = most_bytes
        mutex_unlock(&p.lock)


cdef Batch *_move_records(Accumulator accumulator, Batch *b, Py_ssize_t target_bytes) noexcept:
    """Write all records into new batches, chained by `next`; NULL if memory ran out: nothing is left behind then."""
    cdef Batch *first = NULL
    cdef Batch *child = NULL
    cdef Batch *fresh
    cdef Slab *slab = b.first
    cdef const char *at
    cdef MovedRecord record
    cdef int32_t index = 0
    while slab is not NULL:
        at = slab.data + (BATCH_HEADER_BYTES if slab == b.first else 0)
        while at < slab.data + slab.used:
            at = _read(b, at, slab.data + slab.used, &record)
            if child is NULL or batch_size_bytes(child) + _moved_size(child, &record) > target_bytes:
                fresh = _open_child(accumulator, b, index, &record, target_bytes)
                if fresh is NULL:
                    _drop(accumulator, first)
                    return NULL
                if first is NULL:
                    first = fresh
                else:
                    child.next = fresh
                child = fresh
            _write(child, &record)
            index += 1
        slab = slab.next
    return first


cdef void _drop(Accumulator accumulator, Batch *child) noexcept:
    cdef Batch *following
    while child is not NULL:
        following = child.next
        batch_release(child, accumulator.pool)
        child = following


cdef const char *_read(const Batch *b, const char *at, const char *end, MovedRecord *record) noexcept nogil:
    cdef int32_t length
    cdef int32_t offset_delta
    cdef int64_t timestamp_delta
    at = get_varint(at, end, &length)
    end = at + length
    at = get_varint(get_varlong(at + 1, end, &timestamp_delta), end, &offset_delta)
    record.timestamp = b.base_timestamp + timestamp_delta
    record.rest = at
    record.rest_size = end - at
    return end


cdef Py_ssize_t _moved_body(const Batch *child, const MovedRecord *record) noexcept nogil:
    return (1 + varint_size(record.timestamp - child.base_timestamp)
            + uvarint_size(<unsigned long long>child.record_count << 1) + record.rest_size)


cdef Py_ssize_t _moved_size(const Batch *child, const MovedRecord *record) noexcept nogil:
    cdef Py_ssize_t body = _moved_body(child, record)
    return uvarint_size(<unsigned long long>body << 1) + body


cdef void _write(Batch *child, const MovedRecord *record) noexcept nogil:
    cdef char *p = put_uvarint(child.position, <unsigned long long>_moved_body(child, record) << 1)
    p[0] = 0
    p = put_varint(p + 1, record.timestamp - child.base_timestamp)
    p = put_uvarint(p, <unsigned long long>child.record_count << 1)
    memcpy(p, record.rest, <size_t>record.rest_size)
    child.position = p + record.rest_size
    child.record_count += 1
    if record.timestamp > child.max_timestamp:
        child.max_timestamp = record.timestamp


cdef Batch *_open_child(Accumulator accumulator, Batch *b, int32_t index, const MovedRecord *record,
                        Py_ssize_t target_bytes) noexcept nogil:
    cdef Py_ssize_t need = BATCH_HEADER_BYTES + RECORD_OVERHEAD_BOUND + record.rest_size
    cdef Batch *child = <Batch *>spare_take(&accumulator.pool.spares, sizeof(Batch))
    if child is NULL:
        return NULL
    child.limit = target_bytes if target_bytes > need else need
    child.first = accumulator.pool.acquire_beyond_capacity(b.account, child.limit)
    if child.first is NULL:
        spare_give(&accumulator.pool.spares, child)
        return NULL
    child.partition = b.partition
    child.account = b.account
    child.references = 1
    child.state = CLOSED
    child.last = child.first
    child.last_generation = child.first.generation
    child.position = child.first.data + BATCH_HEADER_BYTES
    store64(&child.held_bytes, child.first.total)
    child.rank = b.rank + index
    child.created_ms = b.created_ms
    child.linger_end_us = b.linger_end_us
    child.last_attempt_ms = b.last_attempt_ms
    child.base_timestamp = record.timestamp
    child.max_timestamp = record.timestamp
    child.transactional = b.transactional
    child.maybe_persisted = b.maybe_persisted
    child.is_stored = b.is_stored
    child.journal_rank = b.journal_rank + index
    child.journal_position = -1
    child.ordinal = b.ordinal
    child.producer_id = b.producer_id
    child.producer_epoch = b.producer_epoch
    child.base_sequence = -1 if b.base_sequence < 0 else advance_sequence(b.base_sequence, index)
    child.base_offset = -1
    child.log_append_time = -1
    return child


cdef void _link(Accumulator accumulator, Batch *b, Batch *child) noexcept:
    """Put the children in the original's place: incomplete list, outstanding list, queue."""
    cdef Partition *p = b.partition
    cdef Batch *following
    cdef Batch *behind = b
    mutex_lock(&p.lock)
    while child is not NULL:
        following = child.next
        child.next = NULL
        backlog_insert(&accumulator.backlog, child, behind)
        if is_outstanding(p, b):
            insert_outstanding(p, child, behind)
        p.incomplete_count += 1
        insert_queued(p, child)
        behind = child
        child = following
    mutex_unlock(&p.lock)
