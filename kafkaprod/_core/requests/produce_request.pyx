"""The body of a Produce request: small headers and pointers into slabs.

Batches of less than COPY_BELOW bytes are copied in between the headers: to make a buffer of one, and the kernel take
it, would cost more. All others go to the socket from where their records were written.

On the record's line between drain and the connection. A request references its batches' memory from drain until
finish(): the sender calls that when the answer has come or the socket is closed. If an exported buffer is still held
then, the memory stays until the last one is let go. Sender thread only, but for releasing buffers.

| versions | body                                                                                                    |
|----------|---------------------------------------------------------------------------------------------------------|
| 3-8      | transactional id nullable STR, acks i16, timeout i32, [topic STR, [partition i32, records i32 length]]    |
| 9-12     | the same in compact encodings, an empty tag section behind every struct                                  |
| 13       | 16-byte topic id instead of the name                                                                     |

Source: Kafka protocol guide, Produce (key 0); KIP-516 for topic ids.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from kafkaprod._core.queues.topic_queues cimport FEW_PARTITIONS, TopicQueues
from kafkaprod._core.queues.batch cimport (
    DONE,
    SENT,
    Batch,
    batch_copy,
    batch_release,
    batch_release_memory,
    batch_seal,
    batch_sealed_size,
    batch_size_bytes,
    prefetch_batch,
)
from kafkaprod._core.records.batch_layout cimport BATCH_HEADER_BYTES
from kafkaprod._core.records.big_endian cimport put_i16, put_i32
from kafkaprod._core.machine.gil_turns cimport have_gil, want_gil
from kafkaprod._core.machine.lock cimport add32, load32, mutex_lock, mutex_unlock
from kafkaprod._core.machine.prefetch cimport prefetch_read, prefetch_write
from kafkaprod._core.machine.types cimport forbid_new
from kafkaprod._core.requests.settlement cimport make_ref
from kafkaprod._core.records.varint cimport put_uvarint

from kafkaprod.errors import IllegalStateError, UnsupportedVersionError
from kafkaprod.structs import RequestSums

# What RequestSums(...) makes, without the Python code of its constructor.
cdef object new_tuple = tuple.__new__

cdef enum:
    COPY_BELOW = 2048       # bytes of a batch: 5 times cheaper at 170, no cheaper at 2,000
    TIME_GROUPS = 1024      # of times in the queue
    AHEAD = 4               # batches between prefetching memory and reading it
    SPARE_RESPONSE_BYTES = 1 << 20
    RESPONSE_PARTITION_BYTES = 1024
    RESPONSE_RECORD_BYTES = 128
    COMPACT_FROM = 9        # version with compact encodings and tag sections
    TOPIC_IDS_FROM = 13
    # Upper bounds of header bytes, without names:
    HEAD_BOUND = 5 + 2 + 4 + 5 + 1      # length of the transactional id, acks, timeout, topic count, tags
    TOPIC_BOUND = 5 + 5 + 1             # length of the name, partition count, tags
    BATCH_BOUND = 4 + 5 + 1             # partition, size, tags

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


forbid_new(SlabBuffer)


@cython.final
@cython.no_gc_clear
cdef class ProduceRequest:
    """The batches drained for one node, at most one per partition. Made by Drain.drain()."""

    def __cinit__(self, Accumulator accumulator not None, int32_t node_id):
        self.accumulator = accumulator
        self.node_id = node_id

    def __dealloc__(self):
        # No reader is left: exports hold references to this object.
        if self.entries is not NULL:
            self._give_back()

    cdef bint reserve(self) noexcept nogil:
        """Make room for one more batch; False if the system has no memory."""
        cdef Entry *grown
        if self.batch_count & (self.batch_count - 1) == 0:
            grown = <Entry *>realloc(self.entries, <size_t>(2 * self.batch_count + 1) * sizeof(Entry))
            if grown is NULL:
                return False
            self.entries = grown
        return True

    cdef void add(self, Batch *b) noexcept nogil:
        """Take over a drained batch: its reference from the queue, and a claim on its memory. After reserve()."""
        cdef Entry *entry = &self.entries[self.batch_count]
        entry.batch = b
        entry.topic_index = b.partition.topic_index
        entry.partition = b.partition.index
        entry.record_count = b.record_count
        entry.created_ms = b.created_ms
        entry.plain_size = batch_size_bytes(b)
        self.batch_count += 1
        self.record_count += b.record_count

    cdef void seal(self, Py_ssize_t i) noexcept nogil:
        """Seal batch `i`, which was compressed if it must be."""
        batch_seal(self.entries[i].batch)
        self.entries[i].size = batch_sealed_size(self.entries[i].batch)

    cdef void arrange(self) noexcept nogil:
        """Order by topic and partition. Batches are added in that order, but for the place where the round began."""
        cdef Py_ssize_t first = 1
        while first < self.batch_count and _is_before(&self.entries[first - 1], &self.entries[first]):
            first += 1
        if first < self.batch_count:
            _reverse(self.entries, self.entries + first)
            _reverse(self.entries + first, self.entries + self.batch_count)
            _reverse(self.entries, self.entries + self.batch_count)

    cdef Py_ssize_t topic_end(self, Py_ssize_t i) noexcept nogil:
        """Index behind the last batch of the topic of batch `i`."""
        cdef int32_t topic_index = self.entries[i].topic_index
        while i < self.batch_count and self.entries[i].topic_index == topic_index:
            i += 1
        return i

    def __len__(self):
        return self.batch_count

    def refs(self):
        """Its batches as BatchRefs, by topic and partition."""
        cdef Py_ssize_t i
        return [make_ref(self.accumulator, self.entries[i].batch) for i in range(self.batch_count)]

    def sums(self, int64_t now_ms):
        """What metrics want to know of the batches, as RequestSums; times in ms since their first record came."""
        cdef Py_ssize_t i
        cdef const Entry *entry
        cdef int64_t queue_ms
        cdef Py_ssize_t size_bytes = 0
        cdef double largest_mean = 0.0
        cdef int64_t topic_records = 0
        cdef Py_ssize_t topic_bytes = 0
        cdef Py_ssize_t sent_bytes = 0
        cdef Py_ssize_t largest_sent = 0
        cdef Py_ssize_t topic_sent = 0
        cdef list topics = []
        cdef list queue_times = []
        cdef int group
        cdef int64_t[TIME_GROUPS] counts
        cdef int64_t[TIME_GROUPS] totals_ms
        memset(counts, 0, sizeof(counts))
        memset(totals_ms, 0, sizeof(totals_ms))
        for i in range(self.batch_count):
            entry = &self.entries[i]
            queue_ms = max(now_ms - entry.created_ms, 0)
            group = _time_group(queue_ms)
            counts[group] += 1
            totals_ms[group] += queue_ms
            size_bytes += entry.plain_size
            sent_bytes += entry.size
            topic_sent += entry.size
            largest_sent = max(largest_sent, entry.size)
            topic_bytes += entry.plain_size
            topic_records += entry.record_count
            if entry.record_count > 0:
                largest_mean = max(largest_mean, <double>entry.plain_size / entry.record_count)
            if i + 1 == self.batch_count or self.entries[i + 1].topic_index != entry.topic_index:
                topic = <TopicQueues>self.accumulator.topic_list[entry.topic_index]
                topics.append((topic.name, topic_records, topic_bytes, topic_sent))
                topic_records = topic_bytes = topic_sent = 0
        for group in range(TIME_GROUPS):
            if counts[group] > 0:
                queue_times.append(((totals_ms[group] + counts[group] // 2) // counts[group], counts[group]))
        return new_tuple(
            RequestSums, (self.batch_count, size_bytes, sent_bytes, largest_sent, largest_mean, topics, queue_times)
        )

    @property
    def all_topic_ids_known(self):
        """Whether version 13, which names topics by id, can be used."""
        cdef Py_ssize_t i = 0
        while i < self.batch_count:
            if (<TopicQueues>self.accumulator.topic_list[self.entries[i].topic_index]).topic_id is None:
                return False
            i = self.topic_end(i)
        return True

    @property
    def max_response_bytes(self):
        """Most bytes that an answer to it may have: a broker may name each bad record."""
        return SPARE_RESPONSE_BYTES + RESPONSE_PARTITION_BYTES * self.batch_count + RESPONSE_RECORD_BYTES * self.record_count

    def body(self, int version, int16_t acks, int32_t timeout_ms, str transactional_id=None):
        """Assemble the request body.

        Args: version: 3 to 13. acks: -1, 0 or 1. timeout_ms: how long the leader waits for acks=-1.
        Returns: a RequestBody.
        Raises: UnsupportedVersionError; IllegalStateError if it is finished, or a topic id is missing for version 13.
        """
        cdef bint flexible = version >= COMPACT_FROM
        cdef bint by_id = version >= TOPIC_IDS_FROM
        cdef RequestBody body = RequestBody.__new__(RequestBody)
        cdef bytes producer = b"" if transactional_id is None else transactional_id.encode("utf-8")
        cdef bytes name
        cdef list topics = []
        cdef Name *names
        cdef Py_ssize_t room = HEAD_BOUND + len(producer)
        cdef Py_ssize_t i = 0
        cdef int failed
        cdef TopicQueues topic
        if not OLDEST_VERSION <= version <= NEWEST_VERSION:
            raise UnsupportedVersionError(f"Produce version {version} is outside {OLDEST_VERSION}..{NEWEST_VERSION}")
        if self._is_finished:
            raise IllegalStateError("the request is finished: its batches were given back")
        while i < self.batch_count:
            topic = self.accumulator.topic_list[self.entries[i].topic_index]
            if by_id and topic.topic_id is None:
                raise IllegalStateError(f"Produce version {version} needs the id of topic {topic.name!r}")
            name = topic.topic_id if by_id else topic.name_utf8
            topics.append(name)
            room += TOPIC_BOUND + len(name)
            i = self.topic_end(i)
        for i in range(self.batch_count):
            room += BATCH_BOUND
            if self.entries[i].size < COPY_BELOW:
                room += self.entries[i].size
            elif self.entries[i].batch.compressed is not NULL:
                body._blobs.append(<object>self.entries[i].batch.compressed)
        body._request = self
        body._make_room(room)
        body._at = _put_string(body._at, NULL if transactional_id is None else <char *>producer, len(producer), flexible)
        body._at = put_i16(body._at, acks)
        body._at = put_i32(body._at, timeout_ms)
        body._at = _put_count(body._at, len(topics), flexible)
        names = <Name *>malloc((len(topics) + 1) * sizeof(Name))
        if names is NULL:
            raise MemoryError
        for i in range(len(topics)):
            names[i].start = <const char *><bytes>topics[i]
            names[i].size = len(<bytes>topics[i])
        if self.batch_count <= FEW_PARTITIONS:
            failed = body._put_topics(names, flexible, by_id)
        else:
            with nogil:
                failed = body._put_topics(names, flexible, by_id)
                want_gil()
            have_gil()
        free(names)
        if failed:
            raise MemoryError
        return body

    def finish(self):
        """The answer has come, or the socket is closed: the memory has no reader any more.

        Batches that have their outcome give it back to the pool; requeued ones keep it. A second call does nothing.
        Raises IllegalStateError, with nothing done, if a batch has neither an outcome nor a place in its queue again.
        """
        cdef Py_ssize_t i
        if self._is_finished:
            return
        for i in range(self.batch_count):
            if self.entries[i].batch.state == SENT:
                ref = make_ref(self.accumulator, self.entries[i].batch)
                raise IllegalStateError(f"{ref!r} is neither settled nor requeued")
        self._is_finished = True
        if load32(&self._export_count) == 0:
            self._give_back()

    cdef int _give_back(self) except -1:
        cdef Py_ssize_t i
        cdef Batch *b
        cdef bint is_done
        cdef Entry *entries = self.entries
        self.entries = NULL
        if entries is NULL:
            return 0
        for i in range(self.batch_count):
            if i + 2 * AHEAD < self.batch_count:
                prefetch_batch(entries[i + 2 * AHEAD].batch)
                prefetch_write(entries[i + AHEAD].batch.first)
                prefetch_write(entries[i + AHEAD].batch.partition)
                prefetch_write(entries[i + AHEAD].batch.completion)
            b = entries[i].batch
            mutex_lock(&b.partition.lock)
            b.request_count -= 1
            is_done = b.state == DONE and b.request_count == 0
            mutex_unlock(&b.partition.lock)
            if is_done:
                batch_release_memory(b, self.accumulator.pool)
            batch_release(b, self.accumulator.pool)
        self.batch_count = 0
        free(entries)
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
        self._blobs = []

    def __dealloc__(self):
        free(self._pieces)

    cdef int _make_room(self, Py_ssize_t size) except -1:
        """Allocate `size` bytes for headers and copied batches."""
        self._head = PyBytes_FromStringAndSize(NULL, size)
        self._head_view = memoryview(self._head)
        self._start = PyBytes_AS_STRING(self._head)
        self._at = self._start
        return 0

    cdef int _put_topics(self, const Name *names, bint flexible, bint by_id) noexcept nogil:
        """Write everything behind the number of topics. -1: no memory."""
        cdef Py_ssize_t i = 0
        cdef Py_ssize_t end
        cdef const Entry *entry
        while i < self._request.batch_count:
            end = self._request.topic_end(i)
            if by_id:
                memcpy(self._at, names[0].start, <size_t>names[0].size)
                self._at += names[0].size
            else:
                self._at = _put_string(self._at, names[0].start, names[0].size, flexible)
            names += 1
            self._at = _put_count(self._at, end - i, flexible)
            while i < end:
                _prefetch_ahead(self._request, i)
                entry = &self._request.entries[i]
                self._at = put_i32(self._at, entry.partition)
                self._at = put_uvarint(self._at, entry.size + 1) if flexible else put_i32(self._at, <int32_t>entry.size)
                if entry.size < COPY_BELOW:
                    self._at = batch_copy(self._at, entry.batch)
                elif self._end_head() < 0 or self._point_at(entry.batch, entry.size) < 0:
                    return -1
                self._at = _put_empty_tags(self._at, flexible)
                i += 1
            self._at = _put_empty_tags(self._at, flexible)
        self._at = _put_empty_tags(self._at, flexible)
        return self._end_head()

    cdef int _put_piece(self, Py_ssize_t start, Py_ssize_t size, Slab *slab) noexcept nogil:
        cdef Piece *grown
        if self._piece_count == self._piece_capacity:
            grown = <Piece *>realloc(self._pieces, (2 * self._piece_capacity + 16) * sizeof(Piece))
            if grown is NULL:
                return -1
            self._pieces = grown
            self._piece_capacity = 2 * self._piece_capacity + 16
        self._pieces[self._piece_count].start = start
        self._pieces[self._piece_count].size = size
        self._pieces[self._piece_count].slab = slab
        self._pieces[self._piece_count].generation = 0 if slab is NULL else slab.generation
        self._piece_count += 1
        self.nbytes += size
        return 0

    cdef int _end_head(self) noexcept nogil:
        """What was written since the last batch that is pointed at is a piece."""
        cdef Py_ssize_t start = self._head_end
        self._head_end = self._at - self._start
        return self._put_piece(start, self._head_end - start, NULL)

    cdef int _point_at(self, Batch *b, Py_ssize_t size) noexcept nogil:
        cdef Slab *slab = b.first
        if b.compressed is not NULL:
            self._blob_count += 1
            if self._put_piece(0, BATCH_HEADER_BYTES, slab) < 0:
                return -1
            return self._put_piece(-self._blob_count, size - BATCH_HEADER_BYTES, NULL)
        while slab is not NULL:
            if self._put_piece(0, slab.used, slab) < 0:
                return -1
            slab = slab.next
        return 0

    def from_byte(self, Py_ssize_t start, Py_ssize_t limit=0x7FFFFFFF):
        """The first `limit` buffers of what is left from byte `start` on: memoryviews and SlabBuffers.

        Raises BufferError when they are read after the request is finished.
        """
        cdef list buffers = []
        cdef Py_ssize_t i
        cdef Piece *piece
        if start < 0:
            raise IndexError(f"byte {start} is before the body's first")
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
                buffers.append(memoryview(self._blobs[-piece.start - 1])[start:])
            else:
                buffers.append(self._head_view[piece.start + start:piece.start + piece.size])
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


forbid_new(RequestBody)


cdef inline int _time_group(int64_t queue_ms) noexcept nogil:
    """Each time below 64 ms has a group of its own; above, each power of two has 32, as in the histograms of metrics."""
    cdef int shift = 0
    while queue_ms >> shift >= 64:
        shift += 1
    return min((shift << 5) + <int>(queue_ms >> shift), TIME_GROUPS - 1)


cdef inline bint _is_before(const Entry *one, const Entry *other) noexcept nogil:
    if one.topic_index != other.topic_index:
        return one.topic_index < other.topic_index
    return one.partition < other.partition


cdef void _reverse(Entry *first, Entry *end) noexcept nogil:
    cdef Entry swapped
    end -= 1
    while first < end:
        swapped = first[0]
        first[0] = end[0]
        end[0] = swapped
        first += 1
        end -= 1


cdef inline void _prefetch_ahead(ProduceRequest request, Py_ssize_t i) noexcept nogil:
    """Prefetch the struct of a batch two steps ahead and the memory of one a step ahead, if they will be read."""
    if i + 2 * AHEAD < request.batch_count and request.entries[i + 2 * AHEAD].size < COPY_BELOW:
        prefetch_read(&request.entries[i + 2 * AHEAD].batch.first)
    if i + AHEAD < request.batch_count and request.entries[i + AHEAD].size < COPY_BELOW:
        prefetch_read(request.entries[i + AHEAD].batch.first)


cdef inline char *_put_count(char *at, Py_ssize_t count, bint flexible) noexcept nogil:
    return put_uvarint(at, <uint64_t>count + 1) if flexible else put_i32(at, <int32_t>count)


cdef inline char *_put_string(char *at, const char *text, Py_ssize_t size, bint flexible) noexcept nogil:
    """Write text; null if it is NULL."""
    if text is NULL:
        return put_uvarint(at, 0) if flexible else put_i16(at, -1)
    at = put_uvarint(at, <uint64_t>size + 1) if flexible else put_i16(at, <int16_t>size)
    memcpy(at, text, <size_t>size)
    return at + size


cdef inline char *_put_empty_tags(char *at, bint flexible) noexcept nogil:
    if flexible:
        at[0] = 0
        at += 1
    return at
