"""The body of a Produce request: small headers and pointers into slabs, never a copy of records.

On the record's line between drain and the connection. A request references its batches' memory from drain until
finish(): the sender calls that when the answer has come or the socket is closed. If somebody still holds an exported
buffer then, the memory stays until the last one is let go. Sender thread only, but for releasing buffers.

| versions | body                                                                                                    |
|----------|---------------------------------------------------------------------------------------------------------|
| 3-8      | transactional id nullable STR, acks i16, timeout i32, [topic STR, [partition i32, records i32 length]]    |
| 9-12     | the same in compact encodings, an empty tag section behind every struct                                  |
| 13       | 16-byte topic id instead of the name                                                                     |

Source: Kafka protocol guide, Produce (key 0); KIP-516 for topic ids.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from libc.stdlib cimport free, qsort, realloc

from kafkaprod._core.accumulator cimport TopicQueues
from kafkaprod._core.batch cimport (
    BATCH_HEADER_BYTES,
    DONE,
    SENT,
    Batch,
    batch_release,
    batch_release_memory,
    batch_sealed_size,
    batch_size_bytes,
)
from kafkaprod._core.lock cimport add32, load32, mutex_lock, mutex_unlock
from kafkaprod._core.settlement cimport make_ref

from kafkaprod.errors import IllegalStateError, UnsupportedVersionError
from kafkaprod.structs import RequestSums

cdef enum:
    COMPRESSED = -1         # a piece that starts at -1 - i is the i-th compressed batch

OLDEST_VERSION = 3      # record batches of magic 2
NEWEST_VERSION = 13


@cython.final
@cython.no_gc_clear
cdef class SlabBuffer:
    """A stretch of slab memory in a request's body; made by RequestBody.from_byte()."""

    def __init__(self):
        raise TypeError("SlabBuffers are made by RequestBody.from_byte()")

    def __len__(self):
        return self._size

    def __getbuffer__(self, Py_buffer *view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("record memory is read-only")
        if self._request._is_finished or self._slab.generation != self._generation:
            raise BufferError("the request is finished: its memory may hold other records now")
        PyBuffer_FillInfo(view, self, self._start, self._size, 1, flags)
        add32(&self._request._export_count, 1)

    def __releasebuffer__(self, Py_buffer *view):
        if add32(&self._request._export_count, -1) == 0 and self._request._is_finished:
            self._request._give_back()


cdef int _compare(const void *left, const void *right) noexcept nogil:
    cdef Batch *a = (<Batch **>left)[0]
    cdef Batch *b = (<Batch **>right)[0]
    if a.partition.topic_index != b.partition.topic_index:
        return -1 if a.partition.topic_index < b.partition.topic_index else 1
    if a.partition.index != b.partition.index:
        return -1 if a.partition.index < b.partition.index else 1
    return 0


@cython.final
@cython.no_gc_clear
cdef class ProduceRequest:
    """The batches drained for one node, at most one per partition. Made by Drain.drain()."""

    def __cinit__(self, Accumulator accumulator not None, int32_t node_id):
        self.accumulator = accumulator
        self.node_id = node_id

    def __dealloc__(self):
        # Nobody can read any more: exports hold references to this object.
        if self.batches is not NULL:
            self._give_back()

    cdef bint reserve(self) noexcept nogil:
        """Make room for one more batch; False if the system has no memory."""
        cdef Batch **grown
        if self.batch_count & (self.batch_count - 1) == 0:
            grown = <Batch **>realloc(self.batches, <size_t>(2 * self.batch_count + 1) * sizeof(Batch *))
            if grown is NULL:
                return False
            self.batches = grown
        return True

    cdef void add(self, Batch *b) noexcept nogil:
        """Take over a drained batch: its reference from the queue, and a claim on its memory. After reserve()."""
        self.batches[self.batch_count] = b
        self.batch_count += 1
        self.record_count += b.record_count

    cdef int sort(self) noexcept:
        qsort(self.batches, <size_t>self.batch_count, sizeof(Batch *), _compare)
        return 0

    def __len__(self):
        return self.batch_count

    def refs(self):
        """Its batches as BatchRefs, by topic and partition."""
        cdef Py_ssize_t i
        return [make_ref(self.accumulator, self.batches[i]) for i in range(self.batch_count)]

    def sums(self, int64_t now_ms):
        """What metrics want to know of the batches, as RequestSums; times in ms since their first record came."""
        cdef Py_ssize_t i
        cdef Batch *b
        cdef Py_ssize_t size
        cdef int64_t queue_ms
        cdef int alike = 0
        cdef Py_ssize_t size_bytes = 0
        cdef Py_ssize_t largest = 0
        cdef double largest_mean = 0.0
        cdef int64_t topic_records = 0
        cdef Py_ssize_t topic_bytes = 0
        cdef list topics = []
        cdef list queue_times = []
        for i in range(self.batch_count):
            b = self.batches[i]
            size = batch_size_bytes(b)
            queue_ms = now_ms - b.created_ms
            alike += 1
            if i + 1 == self.batch_count or self.batches[i + 1].created_ms != b.created_ms:
                queue_times.append((queue_ms, alike))
                alike = 0
            size_bytes += size
            topic_bytes += size
            topic_records += b.record_count
            largest = max(largest, size)
            if b.record_count > 0:
                largest_mean = max(largest_mean, <double>size / b.record_count)
            if i + 1 == self.batch_count or self.batches[i + 1].partition.topic_index != b.partition.topic_index:
                topic = <TopicQueues>self.accumulator.topic_list[b.partition.topic_index]
                topics.append((topic.name, topic_records, topic_bytes))
                topic_records = topic_bytes = 0
        return RequestSums(self.batch_count, size_bytes, largest, largest_mean, topics, queue_times)

    @property
    def all_topic_ids_known(self):
        """Whether version 13, which names topics by id, can be used."""
        cdef Py_ssize_t i
        for i in range(self.batch_count):
            if (<TopicQueues>self.accumulator.topic_list[self.batches[i].partition.topic_index]).topic_id is None:
                return False
        return True

    def body(self, int version, int16_t acks, int32_t timeout_ms, str transactional_id=None):
        """Assemble the request body.

        Args: version: 3 to 13. acks: -1, 0 or 1. timeout_ms: how long the leader waits for acks=-1.
        Returns: a RequestBody.
        Raises: UnsupportedVersionError; IllegalStateError if it is finished, or a topic id is missing for version 13.
        """
        cdef bint flexible = version >= 9
        cdef RequestBody body = RequestBody.__new__(RequestBody)
        cdef bytearray head = body._head
        cdef Py_ssize_t i = 0
        cdef Py_ssize_t topic_end
        cdef TopicQueues topic
        if not OLDEST_VERSION <= version <= NEWEST_VERSION:
            raise UnsupportedVersionError(f"Produce version {version} is outside {OLDEST_VERSION}..{NEWEST_VERSION}")
        if self._is_finished:
            raise IllegalStateError("the request is finished: its batches were given back")
        body._request = self
        _put_string(head, transactional_id, flexible)
        head += acks.to_bytes(2, "big", signed=True)
        head += timeout_ms.to_bytes(4, "big", signed=True)
        _put_count(head, self._topic_count(), flexible)
        while i < self.batch_count:
            topic = self.accumulator.topic_list[self.batches[i].partition.topic_index]
            topic_end = i
            while topic_end < self.batch_count and self.batches[topic_end].partition.topic_index == topic.index:
                topic_end += 1
            if version < 13:
                _put_string(head, topic.name, flexible)
            elif topic.topic_id is None:
                raise IllegalStateError(f"Produce version 13 needs the id of topic {topic.name!r}")
            else:
                head += topic.topic_id
            _put_count(head, topic_end - i, flexible)
            while i < topic_end:
                body._put_batch(self.batches[i], flexible)
                if flexible:
                    head.append(0)
                i += 1
            if flexible:
                head.append(0)
        if flexible:
            head.append(0)
        body._end_head()
        return body

    cdef Py_ssize_t _topic_count(self) noexcept:
        cdef Py_ssize_t i
        cdef Py_ssize_t count = 0
        for i in range(self.batch_count):
            if i == 0 or self.batches[i].partition.topic_index != self.batches[i - 1].partition.topic_index:
                count += 1
        return count

    def finish(self):
        """The answer has come, or the socket is closed: nobody will read the memory any more.

        Batches that have their outcome give it back to the pool; requeued ones keep it. A second call does nothing.
        Raises IllegalStateError, with nothing done, if a batch has neither an outcome nor a place in its queue again.
        """
        cdef Py_ssize_t i
        if self._is_finished:
            return
        for i in range(self.batch_count):
            if self.batches[i].state == SENT:
                raise IllegalStateError(f"{make_ref(self.accumulator, self.batches[i])!r} is neither settled nor requeued")
        self._is_finished = True
        if load32(&self._export_count) == 0:
            self._give_back()

    cdef int _give_back(self) except -1:
        cdef Py_ssize_t i
        cdef Batch *b
        cdef bint is_done
        cdef Batch **batches = self.batches
        self.batches = NULL
        if batches is NULL:
            return 0
        for i in range(self.batch_count):
            b = batches[i]
            mutex_lock(&b.partition.lock)
            b.request_count -= 1
            is_done = b.state == DONE and b.request_count == 0
            mutex_unlock(&b.partition.lock)
            if is_done:
                batch_release_memory(b, self.accumulator.pool)
            batch_release(b, self.accumulator.pool)
        self.batch_count = 0
        free(batches)
        return 0


@cython.final
@cython.no_gc_clear
cdef class RequestBody:
    """A request's body in pieces: stretches of the small headers, of slabs, and compressed batches.

    Made by ProduceRequest.body(). `nbytes` is its length. What is on its way to a socket is one object, whatever the
    number of slabs: buffers are made only for the bytes that a write is about to take.
    """

    def __init__(self):
        raise TypeError("RequestBodies are made by ProduceRequest.body()")

    def __cinit__(self):
        self._head = bytearray()
        self._compressed = []

    def __dealloc__(self):
        free(self._pieces)

    cdef int _put_piece(self, Py_ssize_t start, Py_ssize_t size, Slab *slab) except -1:
        cdef Piece *grown
        if self._piece_count == self._piece_capacity:
            grown = <Piece *>realloc(self._pieces, (2 * self._piece_capacity + 16) * sizeof(Piece))
            if grown is NULL:
                raise MemoryError
            self._pieces = grown
            self._piece_capacity = 2 * self._piece_capacity + 16
        self._pieces[self._piece_count].start = start
        self._pieces[self._piece_count].size = size
        self._pieces[self._piece_count].slab = slab
        self._pieces[self._piece_count].generation = 0 if slab is NULL else slab.generation
        self._piece_count += 1
        self.nbytes += size
        return 0

    cdef int _end_head(self) except -1:
        """What was added to the headers since the last batch is a piece."""
        self._put_piece(self._head_end, len(self._head) - self._head_end, NULL)
        self._head_end = len(self._head)
        return 0

    cdef int _put_batch(self, Batch *b, bint flexible) except -1:
        cdef Py_ssize_t size = batch_sealed_size(b)
        cdef Slab *slab = b.first
        self._head += b.partition.index.to_bytes(4, "big")
        if flexible:
            _put_uvarint(self._head, size + 1)
        else:
            self._head += size.to_bytes(4, "big")
        self._end_head()
        if b.compressed is not NULL:
            self._put_piece(0, BATCH_HEADER_BYTES, slab)
            self._compressed.append(<object>b.compressed)
            self._put_piece(COMPRESSED - (len(self._compressed) - 1), size - BATCH_HEADER_BYTES, NULL)
            return 0
        while slab is not NULL:
            self._put_piece(0, slab.used, slab)
            slab = slab.next
        return 0

    def from_byte(self, Py_ssize_t start, Py_ssize_t limit=0x7FFFFFFF):
        """The first `limit` buffers of what is left from byte `start` on: bytes, memoryviews and SlabBuffers.

        Raises BufferError when they are read after the request is finished.
        """
        cdef list buffers = []
        cdef Py_ssize_t i
        cdef Piece *piece
        for i in range(self._piece_count):
            piece = &self._pieces[i]
            if start >= piece.size:
                start -= piece.size
                continue
            if len(buffers) == limit:
                break
            if piece.slab is not NULL:
                buffers.append(self._buffer(piece, start))
            elif piece.start < 0:
                blob = self._compressed[COMPRESSED - piece.start]
                buffers.append(memoryview(blob)[start:] if start else blob)
            else:
                buffers.append(bytes(self._head[piece.start + start:piece.start + piece.size]))
            start = 0
        return buffers

    cdef SlabBuffer _buffer(self, const Piece *piece, Py_ssize_t skipped):
        cdef SlabBuffer buffer = SlabBuffer.__new__(SlabBuffer)
        buffer._request = self._request
        buffer._slab = piece.slab
        buffer._generation = piece.generation
        buffer._start = piece.slab.data + piece.start + skipped
        buffer._size = piece.size - skipped
        return buffer


cdef int _put_uvarint(bytearray out, Py_ssize_t value) except -1:
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return 0


cdef int _put_count(bytearray out, Py_ssize_t count, bint flexible) except -1:
    if flexible:
        return _put_uvarint(out, count + 1)
    out += count.to_bytes(4, "big")
    return 0


cdef int _put_string(bytearray out, str text, bint flexible) except -1:
    if text is None:
        out += b"\x00" if flexible else b"\xff\xff"
        return 0
    data = text.encode("utf-8")
    if flexible:
        _put_uvarint(out, len(data) + 1)
    else:
        out += len(data).to_bytes(2, "big")
    out += data
    return 0
