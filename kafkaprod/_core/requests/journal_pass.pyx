"""Entries of a journal, of the batches that are due: written to a disk before the drain may take them. Sender thread only.

    collect() -> write the buffer -> commit(): the batches are stored, and may be sent
                                  or undo():   nothing has happened, but that they take no more records

On the record's line between the accumulator and the drain, of a producer with a spool. A batch is due when the drain would
take it if it could be sent: it is full, has lingered, or a thread waits for it.

| field of the header  | in the journal                                                  |
|----------------------|-----------------------------------------------------------------|
| baseOffset           | the entry's offset in the journal, without gaps                 |
| partitionLeaderEpoch | the slot's mark                                                 |
| producerId           | the reference of the partition                                  |
| producerEpoch        | 0                                                               |
| baseSequence         | the rank of the first record in its partition, mod 2^31         |

The records are stored as they were written: what compresses them does so when they are sent.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from kafkaprod._core.machine.lock cimport load32, mutex_lock, mutex_unlock
from kafkaprod._core.queues.accumulator cimport Accumulator
from kafkaprod._core.queues.batch cimport CLOSED, OPEN, Batch, Partition, batch_move, batch_size_bytes
from kafkaprod._core.queues.completion cimport BatchResult
from kafkaprod._core.queues.slabs cimport Slab, size_class_for
from kafkaprod._core.queues.topic_queues cimport TopicQueues
from kafkaprod._core.records.batch_layout cimport CRC_START, LOG_OVERHEAD
from kafkaprod._core.records.big_endian cimport put_i16, put_i32, put_i64
from kafkaprod._core.records.checksum cimport extend_crc
from kafkaprod._core.requests.produce_request cimport ProduceRequest

cdef enum:
    NOTHING_TO_WAIT_FOR = 0x7FFFFFFF    # in us, as in drain.pyx
    LINGER_SLACK_US = 150               # as in drain.pyx: what is due there must be stored
    RANK_MASK = 0x7FFFFFFF
    FIRST_CAPACITY = 1 << 16


@cython.final
@cython.no_gc_clear
cdef class JournalPass:
    """Collects what is due in the queues of one producer. A buffer of bytes: the entries that were collected."""

    def __cinit__(self, Accumulator accumulator not None):
        self.accumulator = accumulator
        self.strangers = []

    def __dealloc__(self):
        free(self._buffer)
        free(self._collected)

    def __len__(self):
        return self._used

    def __getbuffer__(self, Py_buffer *view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("entries are read-only")
        PyBuffer_FillInfo(view, self, self._buffer, self._used, 1, flags)

    def collect(self, int64_t now_us, bint hurry, int64_t offset, int32_t mark, Py_ssize_t most_bytes):
        """Close the batches that are due and write their entries, up to `most_bytes` of them; return how many.

        Args:
            hurry: Everything queued is due.
            offset: Where in the journal the first entry goes.
            mark: The slot's mark.
            most_bytes: A larger first batch goes alone. `is_cut` says whether more are due.

        Raises MemoryError; nothing is collected then.
        """
        cdef TopicQueues topic
        cdef int failed = 0
        self.due_us = now_us + NOTHING_TO_WAIT_FOR
        self.is_cut = False
        self.next_offset = offset
        self.record_count = 0
        self._used = self._count = 0
        self.strangers = []
        hurry = hurry or self.accumulator.backlog.is_closed or self.accumulator.backlog.flush_count > 0 \
            or self.accumulator.pool.is_exhausted()
        for topic in self.accumulator.topic_list:
            self._has_strangers = False
            with nogil:
                failed = self._collect_from(topic, now_us, hurry, mark, most_bytes)
            if failed:
                self.undo()
                raise MemoryError("no memory for the entries of a journal")
            if self._has_strangers:
                self._find_strangers(topic, now_us, hurry)
            if self.is_cut:
                break
        return self._count

    cdef int _collect_from(self, TopicQueues topic, int64_t now_us, bint hurry, int32_t mark,
                           Py_ssize_t most_bytes) noexcept nogil:
        cdef int32_t i
        cdef Partition *p
        for i in range(topic.allocated_count):
            p = topic.partitions[i]
            if load32(&p.queue_length) == 0:
                continue
            if p.journal_reference == 0:
                self._has_strangers = True
                continue
            if self._collect_partition(p, now_us, hurry, mark, most_bytes) < 0:
                return -1
            if self.is_cut:
                break
        return 0

    cdef int _collect_partition(self, Partition *p, int64_t now_us, bint hurry, int32_t mark,
                                Py_ssize_t most_bytes) noexcept nogil:
        """Collect the partition's due batches; -1: no memory."""
        cdef Batch *b = _first_unstored(p)
        cdef Batch *following
        cdef Py_ssize_t size
        while b is not NULL:
            mutex_lock(&p.lock)
            if not _is_due(b, now_us, hurry):
                mutex_unlock(&p.lock)
                self._wait_for(b)
                return 0
            if b.state == OPEN:
                batch_move(b, CLOSED)
                p.first_class = size_class_for(batch_size_bytes(b))
            following = b.next
            mutex_unlock(&p.lock)
            size = batch_size_bytes(b)
            if self._used > 0 and self._used + size > most_bytes:
                self.is_cut = True
                return 0
            if not self._reserve(size):
                return -1
            self._collected[self._count].batch = b
            self._collected[self._count].rank = p.next_journal_rank
            self._collected[self._count].at = self._used
            _put_entry(self._buffer + self._used, b, self.next_offset, mark)
            self._count += 1
            self._used += size
            self.next_offset += b.record_count
            self.record_count += b.record_count
            p.next_journal_rank += b.record_count
            b = following
        return 0

    cdef void _wait_for(self, const Batch *b) noexcept nogil:
        if b.linger_end_us - LINGER_SLACK_US < self.due_us:
            self.due_us = b.linger_end_us - LINGER_SLACK_US

    def _find_strangers(self, TopicQueues topic not None, int64_t now_us, bint hurry):
        """Note the partitions that have no reference yet and something due."""
        cdef int32_t i
        cdef Partition *p
        cdef Batch *b
        cdef bint is_due
        for i in range(topic.allocated_count):
            p = topic.partitions[i]
            if load32(&p.queue_length) == 0 or p.journal_reference != 0:
                continue
            b = _first_unstored(p)
            if b is NULL:
                continue
            mutex_lock(&p.lock)
            is_due = _is_due(b, now_us, hurry)
            mutex_unlock(&p.lock)
            if is_due:
                self.strangers.append((topic.name, i, topic.topic_id, topic._partition_count))
            else:
                self._wait_for(b)

    cdef bint _reserve(self, Py_ssize_t need) noexcept nogil:
        """Make room for one more entry; False: no memory."""
        cdef Py_ssize_t capacity = self._capacity
        cdef char *buffer
        cdef Collected *collected
        if self._used + need > capacity:
            capacity = max(2 * capacity, self._used + need, <Py_ssize_t>FIRST_CAPACITY)
            buffer = <char *>realloc(self._buffer, <size_t>capacity)
            if buffer is NULL:
                return False
            self._buffer = buffer
            self._capacity = capacity
        if self._count == self._most:
            collected = <Collected *>realloc(self._collected, <size_t>(2 * self._most + 16) * sizeof(Collected))
            if collected is NULL:
                return False
            self._collected = collected
            self._most = 2 * self._most + 16
        return True

    def ends(self):
        """Return (reference, the rank behind its last record) of each partition in the buffer."""
        cdef list found = []
        cdef Py_ssize_t i
        cdef Partition *p
        for i in range(self._count):
            p = self._collected[i].batch.partition
            if i + 1 == self._count or self._collected[i + 1].batch.partition != p:
                found.append((p.journal_reference - 1, p.next_journal_rank))
        return found

    def commit(self, int64_t segment, int64_t position):
        """Let the batches be sent: their entries are in this segment, the first of them at `position`."""
        cdef Py_ssize_t i
        cdef Batch *b
        cdef bint is_any_observed = False
        with nogil:
            for i in range(self._count):
                b = self._collected[i].batch
                mutex_lock(&b.partition.lock)
                b.is_stored = True
                b.journal_rank = self._collected[i].rank
                b.journal_segment = segment
                b.journal_position = <int32_t>(position + self._collected[i].at)
                b.journal_bytes = <int32_t>batch_size_bytes(b)
                b.partition.stored_tail = b
                is_any_observed = is_any_observed or b.completion is not NULL
                mutex_unlock(&b.partition.lock)
        if is_any_observed:
            for i in range(self._count):
                b = self._collected[i].batch
                if b.completion is not NULL:    # one that is made from now on sees that the batch is stored
                    (<BatchResult>b.completion)._note_stored()
        self._used = self._count = 0

    def undo(self):
        """Forget what was collected: it was not written."""
        cdef Py_ssize_t i
        for i in range(self._count - 1, -1, -1):
            self._collected[i].batch.partition.next_journal_rank = self._collected[i].rank
        self._used = self._count = 0


cdef inline Batch *_first_unstored(Partition *p) noexcept nogil:
    """Only this thread takes batches out of a queue, or stores them: what is found stays."""
    cdef Batch *b
    mutex_lock(&p.lock)
    b = p.head if p.stored_tail is NULL else p.stored_tail.next
    mutex_unlock(&p.lock)
    return b


cdef inline bint _is_due(const Batch *b, int64_t now_us, bint hurry) noexcept nogil:
    return hurry or b.next is not NULL or b.state != OPEN or b.is_full or b.linger_end_us - LINGER_SLACK_US <= now_us


cdef void _put_entry(char *start, Batch *b, int64_t offset, int32_t mark) noexcept nogil:
    """Write the entry of a closed batch, batch_size_bytes() of it."""
    cdef const Slab *slab = b.first
    cdef char *at = start
    b.last.used = b.position - b.last.data
    while slab is not NULL:
        memcpy(at, slab.data, <size_t>slab.used)
        at += slab.used
        slab = slab.next
    put_i64(start, offset)
    put_i32(start + 8, <int32_t>(at - start - LOG_OVERHEAD))
    put_i32(start + 12, mark)
    start[16] = 2
    put_i16(start + 21, 0)
    put_i32(start + 23, b.record_count - 1)
    put_i64(start + 27, b.base_timestamp)
    put_i64(start + 35, b.max_timestamp)
    put_i64(start + 43, b.partition.journal_reference - 1)
    put_i16(start + 51, 0)
    put_i32(start + 53, <int32_t>(b.partition.next_journal_rank & RANK_MASK))
    put_i32(start + 57, b.record_count)
    put_i32(start + 17, <int32_t>extend_crc(0, start + CRC_START, at - start - CRC_START))


def enter_partition(Accumulator accumulator not None, str topic not None, int32_t partition, int32_t reference):
    """Give a partition its reference in the journal."""
    cdef TopicQueues queues = accumulator.topics[topic]
    cdef Partition *p = queues.partitions[partition]
    p.journal_reference = reference + 1
    p.journal_offset = -1


def take_progress(Accumulator accumulator not None):
    """Return (reference, resolved rank, last offset) of each partition of which more records have their outcome.

    Ranks below the resolved one have their outcome; the offset is that of the last one written, -1: not known.
    """
    cdef list found = []
    cdef TopicQueues topic
    cdef Partition *p
    cdef Batch *b
    cdef int32_t i
    cdef int64_t resolved
    if not accumulator.has_progress:
        return found
    accumulator.has_progress = False
    for topic in accumulator.topic_list:
        for i in range(topic.allocated_count):
            p = topic.partitions[i]
            if not p.has_progress:
                continue
            mutex_lock(&p.lock)
            p.has_progress = False
            resolved = p.next_journal_rank
            b = p.head
            while b is not NULL and b.is_stored:
                resolved = min(resolved, b.journal_rank)
                if b.base_sequence < 0:     # those before it may have stepped behind each other: BatchRef.step_behind()
                    break
                b = b.next
            b = p.first_outstanding
            while b is not NULL:
                resolved = min(resolved, b.journal_rank)
                b = b.next_outstanding
            mutex_unlock(&p.lock)
            if resolved > p.resolved_rank:
                p.resolved_rank = resolved
                found.append((p.journal_reference - 1, resolved, p.journal_offset))
    return found


def forget_incarnations(ProduceRequest request not None):
    """Undo new_incarnations(): what it returned was not written."""
    cdef Py_ssize_t i
    for i in range(request.batch_count):
        request.entries[i].batch.partition.journal_producer_id = 0


def new_incarnations(ProduceRequest request not None):
    """Return (reference, producer id, epoch, rank of sequence 0) of each batch under numbers that its partition's had not."""
    cdef list found = []
    cdef Py_ssize_t i
    cdef Batch *b
    for i in range(request.batch_count):
        b = request.entries[i].batch
        if (b.partition.journal_producer_id != b.producer_id + 1 or b.partition.journal_epoch != b.producer_epoch
                or (b.journal_rank - b.base_sequence - b.partition.journal_first_rank) & RANK_MASK != 0):
            b.partition.journal_producer_id = b.producer_id + 1
            b.partition.journal_epoch = b.producer_epoch
            b.partition.journal_first_rank = b.journal_rank - b.base_sequence
            found.append((b.partition.journal_reference - 1, b.producer_id, b.producer_epoch,
                          b.journal_rank - b.base_sequence))
    return found
