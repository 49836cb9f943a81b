"""Ends and returns of batches: succeed, fail, requeue, expire, abort (split: split.pyx). Sender thread only.

Failing the records and returning the memory are two acts: finish_batch() gives every record its one outcome at once,
the slabs go back only when no request references them any more (produce_request.pyx), see batch.pxd.
"""

cimport cython
from cpython.ref cimport PyObject, Py_INCREF
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t
from libc.stdlib cimport free, malloc

from kafkaprod._core.queues.backlog cimport backlog_remove
from kafkaprod._core.queues.batch cimport (
    CLOSED,
    DONE,
    FAILED,
    OPEN,
    SENT,
    SUCCEEDED,
    batch_move,
    batch_release,
    batch_release_memory,
    batch_retain,
    batch_size_bytes,
)
from kafkaprod._core.queues.completion cimport BatchResult, batch_result, publish
from kafkaprod._core.machine.lock cimport add32, mutex_lock, mutex_unlock, store32
from kafkaprod._core.machine.types cimport forbid_new
from kafkaprod._core.queues.sequences cimport (
    SEQUENCE_MASK,
    forget_sequence,
    insert_outstanding,
    note_acked,
    note_failed,
    remove_outstanding,
)

import copy

from kafkaprod.errors import IllegalStateError, KafkaError

STATE_NAMES = {OPEN: "open", CLOSED: "closed", SENT: "sent", DONE: "done"}


@cython.final
@cython.no_gc_clear
cdef class BatchRef:
    """A batch of the accumulator; made by the core."""

    def __init__(self):
        raise TypeError("BatchRefs are made by the core")

    @property
    def topic(self):
        """Topic name."""
        return self._topic().name

    cdef TopicQueues _topic(self):
        return self.accumulator.topic_list[self.batch.partition.topic_index]

    @property
    def partition(self):
        """Partition number."""
        return self.batch.partition.index

    @property
    def leader(self):
        """Node id of the partition's leader now, -1 if there is none."""
        return self.batch.partition.leader

    @property
    def record_count(self):
        """Records in the batch."""
        cdef Batch *b = self.batch
        mutex_lock(&b.partition.lock)
        cdef int32_t count = b.partition.open.record_count if b.state == OPEN else b.record_count
        mutex_unlock(&b.partition.lock)
        return count

    @property
    def attempts(self):
        """How often it was requeued."""
        return self.batch.attempts

    @property
    def created_ms(self):
        """Monotonic time of its first record."""
        return self.batch.created_ms

    @property
    def state(self):
        """open, closed, sent or done."""
        return STATE_NAMES[self.batch.state]

    @property
    def is_done(self):
        """Whether its records have their outcome."""
        return self.batch.state == DONE

    @property
    def producer(self):
        """(producer id, epoch, base sequence); -1 each before the first drain and without idempotence."""
        return self.batch.producer_id, self.batch.producer_epoch, self.batch.base_sequence

    @property
    def is_first_outstanding(self):
        """Whether no batch of the partition with a lower sequence is without an outcome."""
        return self.batch.partition.first_outstanding == self.batch

    @property
    def is_before_acked(self):
        """Whether a later sequence of its producer id and epoch is acknowledged: then it is in the log."""
        cdef Batch *b = self.batch
        cdef Partition *p = b.partition
        mutex_lock(&p.lock)
        cdef bint found = (
            b.base_sequence >= 0 and p.last_acked_sequence >= 0 and b.producer_id == p.producer_id
            and b.producer_epoch == p.producer_epoch
            and (<uint32_t>p.last_acked_sequence - <uint32_t>b.base_sequence) & <uint32_t>SEQUENCE_MASK < 0x40000000
        )
        mutex_unlock(&p.lock)
        return found

    @property
    def was_sent(self):
        """Whether it is or was in a request, itself or as part of the batch it was split from."""
        cdef Batch *b = self.batch
        return b.attempts > 0 or b.state == SENT or b.sent_ms > 0 or b.maybe_persisted

    @property
    def maybe_persisted(self):
        """Whether some attempt ended without a definite answer."""
        return self.batch.maybe_persisted

    @property
    def is_stored(self):
        """Whether it is in a journal."""
        return self.batch.is_stored

    @property
    def place_in_journal(self):
        """(Segment, position, bytes, rank of its first record) of its entry; position -1: it is a part of one."""
        cdef Batch *b = self.batch
        return b.journal_segment, b.journal_position, b.journal_bytes, b.journal_rank

    def move_in_journal(self, int64_t segment, int32_t position):
        """Note that its entry is there now."""
        cdef Batch *b = self.batch
        mutex_lock(&b.partition.lock)
        b.journal_segment = segment
        b.journal_position = position
        mutex_unlock(&b.partition.lock)

    @property
    def partition_needs_new_epoch(self):
        """Whether a sequence of its partition may be missing from the log."""
        return self.batch.partition.needs_new_epoch

    @property
    def is_partition_removed(self):
        """Whether the topic was re-created with fewer partitions and this one is gone."""
        return self.batch.partition.is_removed

    @property
    def size_bytes(self):
        """Bytes written so far, header included, uncompressed."""
        mutex_lock(&self.batch.partition.lock)
        cdef Py_ssize_t size = batch_size_bytes(self.batch)
        mutex_unlock(&self.batch.partition.lock)
        return size

    def __dealloc__(self):
        if self.batch is not NULL:
            batch_release(self.batch, self.accumulator.pool)

    def __repr__(self):
        return (f"<BatchRef {self.topic}[{self.partition}] {self.state}, {self.record_count} records, "
                f"sequence {self.batch.base_sequence}, attempts {self.attempts}>")

    def fail(self, error not None, dict record_errors=None, bint maybe_persisted=False):
        """Fail its records with `error` (or their own in `record_errors`, index -> exception).

        Args: maybe_persisted: the last attempt ended without a definite answer. If it did, or an earlier one, the errors
        say `possibly_persisted`; an error that says so itself means the same.
        Return False if they had their outcome before. If the batch had a sequence, that is missing from the log now,
        or may be, and its partition will start a new epoch.
        """
        cdef Batch *b = self.batch
        if maybe_persisted or (isinstance(error, KafkaError) and error.possibly_persisted):
            mutex_lock(&b.partition.lock)
            b.maybe_persisted = True
            mutex_unlock(&b.partition.lock)
        if b.maybe_persisted:
            error = _possibly_persisted(error)
            if record_errors is not None:
                record_errors = {index: _possibly_persisted(each) for index, each in record_errors.items()}
        return finish_batch(self.accumulator, b, FAILED, -1, -1, error, record_errors)

    def succeed(self, int64_t base_offset=-1, int64_t log_append_time=-1):
        """Complete its records; base_offset -1 if the broker does not send it. Return False if that was done before."""
        return finish_batch(self.accumulator, self.batch, SUCCEEDED, base_offset, log_append_time, None, None)

    def requeue(self, int64_t now_ms, int64_t backoff_ms, bint maybe_persisted=False):
        """Put a sent batch back in its place in the queue, to be drained again after `backoff_ms`.

        Args: maybe_persisted: the attempt ended without a definite answer, the records may be in the log.
        Return False if its records have their outcome. Raises IllegalStateError if it is not in a request.
        """
        cdef Batch *b = self.batch
        cdef Partition *p = b.partition
        cdef int moved
        mutex_lock(&p.lock)
        if b.state == DONE:
            mutex_unlock(&p.lock)
            return False
        moved = batch_move(b, CLOSED) if b.state == SENT else -1
        if moved == 0:
            p.in_flight_count -= 1
            b.attempts += 1
            b.last_attempt_ms = now_ms
            b.backoff_ms = backoff_ms
            b.maybe_persisted = b.maybe_persisted or maybe_persisted
            batch_retain(b)
            insert_queued(p, b)
        mutex_unlock(&p.lock)
        if moved != 0:
            raise IllegalStateError(f"cannot requeue {self!r}: it is not in a request")
        return True

    def step_behind(self):
        """Let the others of its partition that have sequences be sent before it. Raises IllegalStateError: it is not queued."""
        cdef Batch *b = self.batch
        cdef Partition *p = b.partition
        cdef Batch *behind = NULL
        cdef Batch *at
        mutex_lock(&p.lock)
        cdef bint is_queued = b.state == CLOSED and _remove_queued(p, b)
        if is_queued:
            at = p.head
            while at is not NULL and at.base_sequence >= 0:
                behind = at
                at = at.next
            b.next = at
            if behind is NULL:
                p.head = b
            else:
                behind.next = b
            if at is NULL:
                p.tail = b
            if b.is_stored and (p.stored_tail is NULL or p.stored_tail == behind):
                p.stored_tail = b
            p.unloaded_tail = NULL
            store32(&p.queue_length, p.queue_length + 1)
            remove_outstanding(p, b)
            insert_outstanding(p, b, p.last_outstanding)
        mutex_unlock(&p.lock)
        if not is_queued:
            raise IllegalStateError(f"cannot step behind with {self!r}: it is not queued")

    def note_producer_unknown(self):
        """Note that the leader has forgotten the producer: of its current epoch it accepts sequence 0 only."""
        cdef Batch *b = self.batch
        cdef Partition *p = b.partition
        mutex_lock(&p.lock)
        if b.producer_id == p.producer_id and b.producer_epoch == p.producer_epoch:
            p.last_acked_sequence = -1
        mutex_unlock(&p.lock)

    def forget_sequence(self, bint in_doubt=False):
        """Let a definitely rejected batch get new sequence numbers under a new epoch; False if it may be in the log.

        Args: in_doubt: even then. It may be written twice.
        """
        mutex_lock(&self.batch.partition.lock)
        if in_doubt:
            self.batch.maybe_persisted = False
        cdef bint done = forget_sequence(self.batch.partition, self.batch)
        mutex_unlock(&self.batch.partition.lock)
        return done


forbid_new(BatchRef)


cdef object _possibly_persisted(object error):
    """Return the error, or a copy of it, that says that its record may be in the log; several batches may share the original."""
    if not isinstance(error, KafkaError) or error.possibly_persisted:
        return error
    marked = copy.copy(error)
    marked.possibly_persisted = True
    marked.__cause__ = error.__cause__
    return marked


cdef BatchRef make_ref(Accumulator accumulator, Batch *b):
    cdef BatchRef ref = BatchRef.__new__(BatchRef)
    ref.accumulator = accumulator
    batch_retain(b)
    ref.batch = b
    return ref


cdef void insert_queued(Partition *p, Batch *b) noexcept nogil:
    """Insert in order of creation; for batches that have sequences that is the order of these."""
    cdef Batch *before = NULL
    cdef Batch *at = p.head
    while at is not NULL and (at.serial < b.serial or (at.serial == b.serial and at.rank < b.rank)):
        before = at
        at = at.next
    b.next = at
    if before is NULL:
        p.head = b
    else:
        before.next = b
    if at is NULL:
        p.tail = b
    if b.is_stored and p.stored_tail == before:
        p.stored_tail = b
    p.unloaded_tail = NULL
    store32(&p.queue_length, p.queue_length + 1)


cdef bint _remove_queued(Partition *p, Batch *b) noexcept nogil:
    cdef Batch *before = NULL
    cdef Batch *at = p.head
    while at is not NULL and at != b:
        before = at
        at = at.next
    if at is NULL:
        return False
    if before is NULL:
        p.head = b.next
    else:
        before.next = b.next
    if p.tail == b:
        p.tail = before
    if p.stored_tail == b:
        p.stored_tail = before
    if p.unloaded_tail == b:
        p.unloaded_tail = before
    b.next = NULL
    store32(&p.queue_length, p.queue_length - 1)
    return True


cdef bint finish_batch(Accumulator accumulator, Batch *b, Outcome outcome, long long base_offset,
                       long long log_append_time, object error, dict record_errors) except -1:
    """Give all records of the batch their one outcome; False if they had it before.

    The caller holds a reference. Memory is returned here only if no request references the batch.
    """
    cdef Partition *p = b.partition
    cdef PyObject *completion
    cdef bint was_queued
    mutex_lock(&p.lock)
    if b.state == DONE:
        mutex_unlock(&p.lock)
        return False
    was_queued = b.state != SENT
    if was_queued:
        _remove_queued(p, b)
    else:
        p.in_flight_count -= 1
    if outcome == FAILED:
        note_failed(p, b)
    remove_outstanding(p, b)
    batch_move(b, DONE)
    p.incomplete_count -= 1
    b.base_offset = base_offset
    b.log_append_time = log_append_time
    if error is not None:
        Py_INCREF(error)
        b.error = <PyObject *>error
    if record_errors is not None:
        Py_INCREF(record_errors)
        b.record_errors = <PyObject *>record_errors
    b.outcome = <unsigned char>outcome
    completion = b.completion
    if outcome == SUCCEEDED:
        note_acked(p, b)
    if b.is_stored:
        p.has_progress = accumulator.has_progress = True
        if outcome == SUCCEEDED and base_offset >= 0:
            p.journal_offset = base_offset + b.record_count - 1
    mutex_unlock(&p.lock)
    if outcome == FAILED and accumulator.failed_batches is not None:
        name = (<TopicQueues>accumulator.topic_list[p.topic_index]).name
        accumulator.failed_batches.append((name, p.index, error, b.base_sequence >= 0))
    add32(&accumulator.backlog.publishing_count, 1)
    backlog_remove(&accumulator.backlog, b)
    if b.request_count == 0:
        batch_release_memory(b, accumulator.pool)
    try:
        if completion is not NULL:
            publish(b, <BatchResult>completion)
        elif outcome == FAILED:
            # There is no result object yet; a failure must still be recorded.
            batch_result(b, accumulator.completion_factory, (<TopicQueues>accumulator.topic_list[p.topic_index]).name)
    finally:
        add32(&accumulator.backlog.publishing_count, -1)
        batch_release(b, accumulator.pool)      # the incomplete list's
        if was_queued:
            batch_release(b, accumulator.pool)
    return True


def expired_batches(Accumulator accumulator not None, int64_t created_before_ms):
    """Batches without outcome whose first record is not younger than `created_before_ms`, oldest first, as BatchRefs."""
    return _incomplete_until(accumulator, created_before_ms)


def incomplete_batches(Accumulator accumulator not None):
    """All batches without outcome, oldest first, as BatchRefs."""
    return _incomplete_until(accumulator, INT64_MAX)


cdef list _incomplete_until(Accumulator accumulator, int64_t created_before_ms):
    cdef list refs = []
    cdef Batch *b
    cdef Batch **found
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t i
    mutex_lock(&accumulator.backlog.lock)
    b = accumulator.backlog.oldest
    while b is not NULL and b.created_ms <= created_before_ms:
        count += 1
        b = b.newer
    found = <Batch **>malloc(<size_t>(count + 1) * sizeof(Batch *))
    if found is not NULL:
        b = accumulator.backlog.oldest
        for i in range(count):
            batch_retain(b)
            found[i] = b
            b = b.newer
    mutex_unlock(&accumulator.backlog.lock)
    if found is NULL:
        raise MemoryError
    for i in range(count):
        refs.append(make_ref(accumulator, found[i]))
        batch_release(found[i], accumulator.pool)
    free(found)
    return refs


def close_open_batches(Accumulator accumulator not None, int64_t created_before_ms):
    """Close the batches that take records and whose first one is not younger than `created_before_ms`.

    A batch expires with its first record: one that grew for long would fail young records with it.
    """
    cdef BatchRef ref
    cdef Partition *p
    for ref in _incomplete_until(accumulator, created_before_ms):
        p = ref.batch.partition
        mutex_lock(&p.lock)
        if ref.batch.state == OPEN:
            batch_move(ref.batch, CLOSED)
        mutex_unlock(&p.lock)


def oldest_created_ms(Accumulator accumulator not None):
    """When the oldest batch without outcome got its first record; None if there is none."""
    mutex_lock(&accumulator.backlog.lock)
    cdef Batch *b = accumulator.backlog.oldest
    cdef int64_t created = 0 if b is NULL else b.created_ms
    mutex_unlock(&accumulator.backlog.lock)
    return None if b is NULL else created


def abort_batches(Accumulator accumulator not None, error not None, bint unsent_only=False, bint spares_stored=True):
    """Fail every batch that has no outcome (or only those never sent); return how many records that were.

    Args: spares_stored: Those in a journal are left: they can be sent later, and by another process.
    """
    cdef BatchRef ref
    cdef int64_t count = 0
    for ref in _incomplete_until(accumulator, INT64_MAX):
        if (unsent_only and ref.was_sent) or (spares_stored and ref.batch.is_stored):
            continue
        if ref.fail(error, None, ref.batch.state == SENT):
            count += ref.record_count
    return count
