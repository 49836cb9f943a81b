"""Blocks of records, from lists or columns, appended without the GIL.

A block is checked whole before its first record is written; after that only a full pool can stop it, at a record
boundary: `rows_appended` says where, and run() goes on from there. Rows keep their order per partition.

Locks: the loop keeps the locks of the partitions it has touched for up to ROWS_PER_HOLD rows, so that a keyed block
does not lock once a record. It never waits for one lock while it holds another: it tries, and if that fails lets go
of all and waits for that one. Hence no deadlock whatever order two blocks touch partitions in.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc

from kafkaprod._core.accumulator cimport ANY_PARTITION
from kafkaprod._core.batch cimport BATCH_HEADER_BYTES, OPEN, batch_append, batch_release, batch_retain
from kafkaprod._core.buffer_pool cimport slab_total
from kafkaprod._core.columns cimport ByteColumn, HeaderColumn, column_get
from kafkaprod._core.completion cimport batch_result
from kafkaprod._core.lock cimport load32, mutex_lock, mutex_trylock, mutex_unlock, store32
from kafkaprod._core.murmur2 cimport murmur2, partition_for_key
from kafkaprod._core.record_view cimport APPENDED, EVENT_BATCH_FULL, POOL_EXHAUSTED
from kafkaprod._core.record_writer cimport RECORD_OVERHEAD_BOUND, headers_size, record_size_bound

from kafkaprod.errors import InvalidRecordError, ProducerClosedError, RecordTooLargeError

cdef extern from * nogil:
    """
    #define kp_prefetch(p) __builtin_prefetch((p), 1)
    #define kp_high_product(a, b) ((uint64_t)(((unsigned __int128)(a) * (b)) >> 64))
    """
    uint64_t high_product "kp_high_product"(uint64_t a, uint64_t b)
    void prefetch "kp_prefetch"(const void *p)

cdef enum:
    MOST_OVERHEAD = RECORD_OVERHEAD_BOUND + 1 + 5 + 5      # no headers; lengths of key and value


cdef struct FastModulo:
    uint64_t magic
    uint32_t divisor


cdef inline FastModulo fast_modulo(int32_t divisor) noexcept nogil:
    cdef FastModulo modulo
    modulo.divisor = <uint32_t>divisor
    modulo.magic = (~<uint64_t>0) // <uint64_t>divisor + 1
    return modulo


cdef inline int32_t modulo_of(uint32_t x, FastModulo modulo) noexcept nogil:
    """x % divisor by two multiplications. Source: D. Lemire et al., "Faster Remainder by Direct Computation", 2019."""
    return <int32_t>high_product(modulo.magic * x, modulo.divisor)


cdef inline void fill_record(const ByteColumn *key, const ByteColumn *value, const HeaderColumn *headers, Py_ssize_t i,
                             RecordView *r) noexcept nogil:
    """Point the view at row i; the timestamp is the caller's."""
    r.key = NULL
    r.value = NULL
    column_get(key, i, &r.key, &r.key_length)
    column_get(value, i, &r.value, &r.value_length)
    if headers.headers is NULL:
        r.headers = NULL
        r.header_count = 0
        r.headers_size = 1
        return
    if headers.offsets is NULL:
        r.headers = headers.headers
        r.header_count = headers.constant_count
    else:
        r.headers = headers.headers + headers.offsets[i]
        r.header_count = headers.offsets[i + 1] - headers.offsets[i]
    r.headers_size = headers_size(r.headers, r.header_count)


@cython.final
@cython.no_gc_clear
cdef class Block:
    """Rows bound for one topic.

    Args:
        key, value: Columns. headers: Headers, or None. Columns with a length must agree on it.
        row_count: needed only if no column has a length.
        timestamps: buffer of int64 ms per row, -1 for none; or None: `timestamp` for every row.
        partitions: buffer of int32 per row, -1 to let the key or the sticky partitioner choose; or None.
        partition: for every row; -1 as above.

    Raises: InvalidRecordError, RecordTooLargeError naming argument and row; nothing is appended then.
    """

    def __init__(self, Accumulator accumulator not None, TopicQueues topic not None, Column value not None,
                 Column key=None, Headers headers=None, row_count=None, timestamps=None, timestamp=-1, partitions=None,
                 partition=ANY_PARTITION):
        self.accumulator = accumulator
        self.topic = topic
        self._value = value
        self._key = Column.nulls() if key is None else key
        self._headers = Headers.from_python(None) if headers is None else headers
        self._results = []
        self.row_count = _agree(
            [("value", self._value.row_count), ("key", self._key.row_count), ("headers", self._headers.row_count)],
            row_count,
        )
        if not isinstance(timestamp, int) or not -1 <= timestamp <= 0x7FFFFFFFFFFFFFFF:
            raise InvalidRecordError(f"timestamp={timestamp!r} must be an integer of at least 0 in 64 bits, or -1 for none")
        if not isinstance(partition, int) or not ANY_PARTITION <= partition < topic.partition_count:
            raise InvalidRecordError(
                f"partition={partition!r} of topic {topic.name!r} is outside 0..{topic.partition_count - 1}"
            )
        self._timestamp = timestamp
        self._kept = [_int_array(timestamps, "timestamps", "q", self.row_count),
                      _int_array(partitions, "partitions", "i", self.row_count)]
        cdef const int64_t[::1] timestamp_view
        cdef const int32_t[::1] partition_view
        if self._kept[0] is not None and self.row_count:
            timestamp_view = self._kept[0]
            self._timestamps = &timestamp_view[0]
        if self._kept[1] is not None and self.row_count:
            partition_view = self._kept[1]
            self._partitions = &partition_view[0]
        self._partition_array = topic.partitions
        self._partition_count = topic.partition_count
        self._row_partitions = <int32_t *>malloc(<size_t>(self.row_count + 1) * sizeof(int32_t))
        self._slots = <Slot *>calloc(self._partition_count, sizeof(Slot))
        self._held = <Partition **>malloc(<size_t>min(self._partition_count, <int32_t>MOST_HELD) * sizeof(void *))
        if self._row_partitions is NULL or self._slots is NULL or self._held is NULL:
            raise MemoryError
        cdef int32_t for_all = partition
        cdef Py_ssize_t i
        for i in range(self.row_count):
            self._row_partitions[i] = for_all
        for i in range(self._partition_count):
            self._slots[i].last_segment = -1
        self._check_rows()

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self._published_segments, self._segment_count):
            batch_release(self._segments[i].batch, self.accumulator.pool)
        free(self._segments)
        free(self._row_partitions)
        free(self._slots)
        free(self._held)

    cdef int _check_rows(self) except -1:
        cdef Py_ssize_t i
        cdef RecordView r
        if self._timestamps is not NULL:
            for i in range(self.row_count):
                if self._timestamps[i] < -1:
                    raise InvalidRecordError(f"timestamps[{i}]={self._timestamps[i]} must be at least 0, or -1 for none")
        if self._partitions is not NULL:
            for i in range(self.row_count):
                if not ANY_PARTITION <= self._partitions[i] < self._partition_count:
                    raise InvalidRecordError(
                        f"partitions[{i}]={self._partitions[i]} of topic {self.topic.name!r} is outside "
                        f"0..{self._partition_count - 1}"
                    )
                self._row_partitions[i] = self._partitions[i]
        if self._headers.c.headers is NULL and (self._key.c.longest + self._value.c.longest + MOST_OVERHEAD
                                                <= self.accumulator.max_record_bytes):
            return 0            # the longest key with the longest value fits: so does every row
        for i in range(self.row_count):
            self._fill(i, &r)
            if record_size_bound(&r) > self.accumulator.max_record_bytes:
                raise RecordTooLargeError(
                    f"row {i}: record of up to {record_size_bound(&r)} bytes for topic {self.topic.name!r} exceeds "
                    f"max_record_bytes={self.accumulator.max_record_bytes} (from max_request_size and buffer_memory)",
                    topic=self.topic.name,
                )
        return 0

    def run(self, int64_t now_ms, int64_t ticket=0):
        """Append as many of the remaining rows as there is memory for; return whether all are appended.

        Args: now_ms: monotonic; starts linger and delivery timeout of new batches. ticket: of a memory waiter, or 0.
        Raises: ProducerClosedError. Releases the GIL for the whole loop.
        """
        cdef AppendStatus status = APPENDED
        cdef int events = 0
        if self.accumulator.is_closed:
            raise ProducerClosedError("the producer is closed: no record can be sent")
        store32(&self.topic.was_used, 1)
        with nogil:
            status = self._append_rows(now_ms, ticket, &events)
            self._let_go()
        self._publish_segments()
        if status != APPENDED:
            events |= EVENT_BATCH_FULL      # a waiter makes everything sendable
        self.accumulator.tell_sender(events)
        return self.rows_appended == self.row_count

    cdef AppendStatus _append_rows(self, int64_t now_ms, int64_t ticket, int *events) noexcept nogil:
        # Copies of what is constant: records are written through char pointers, which may point at anything, so that the
        # compiler would load every field of self again for every record.
        cdef ByteColumn key = self._key.c
        cdef ByteColumn value = self._value.c
        cdef HeaderColumn headers = self._headers.c
        cdef const int64_t *timestamps = self._timestamps
        cdef int32_t *row_partitions = self._row_partitions
        cdef Slot *slots = self._slots
        cdef Partition **partitions = self._partition_array
        cdef bint prepares = self._partition_count > FEW_PARTITIONS
        cdef bint uses_keys = not self.accumulator.ignore_keys
        cdef Py_ssize_t end = self.row_count
        cdef FastModulo modulo = fast_modulo(self._partition_count)
        cdef Py_ssize_t i = self.rows_appended
        cdef Py_ssize_t next_let_go = i + ROWS_PER_HOLD
        cdef RecordView r
        cdef Batch *b = NULL
        cdef Partition *p
        cdef int32_t partition
        cdef AppendStatus status = APPENDED
        r.timestamp = self._timestamp
        while i < end:
            if prepares and (i - self.rows_appended) % ROWS_PREPARED == 0:
                self._prepare(i, min(i + ROWS_PREPARED, end))
            if self._segment_count == self._segment_capacity and self._reserve_segment() != 0:
                status = POOL_EXHAUSTED
                break
            fill_record(&key, &value, &headers, i, &r)
            if timestamps is not NULL:
                r.timestamp = timestamps[i]
            partition = row_partitions[i]
            if partition == ANY_PARTITION:
                if r.key_length >= 0 and uses_keys:
                    partition = modulo_of(murmur2(r.key, r.key_length) & <uint32_t>0x7FFFFFFF, modulo)
                else:
                    partition = self._choose_sticky(&r, events)
            if not slots[partition].is_held:
                self._hold(partition)
            p = partitions[partition]
            b = p.tail
            if b is NULL or b.state != OPEN or batch_append(b, &r) == 0:
                status = self.accumulator.append_locked(p, &r, now_ms, ticket, &b, events)
                if status != APPENDED:
                    break
            self._note(partition, b)
            if row_partitions[i] == ANY_PARTITION:
                row_partitions[i] = partition
                if r.key_length < 0 or not uses_keys:
                    p.sticky_bytes += record_size_bound(&r)
            i += 1
            if i == next_let_go:
                self._let_go()
                next_let_go += ROWS_PER_HOLD
        self.rows_appended = i
        return status

    cdef void _prepare(self, Py_ssize_t first, Py_ssize_t end) noexcept nogil:
        """Choose the partitions of some keyed rows and fetch what appending to them will touch.

        With thousands of partitions nearly every row waits for memory four times, one after the other: partition,
        batch, slab, record. Done for sixteen rows at a time the waits overlap.
        """
        cdef Py_ssize_t i
        cdef RecordView r
        cdef Partition *p
        for i in range(first, end):
            if self._row_partitions[i] == ANY_PARTITION and not self.accumulator.ignore_keys:
                self._fill(i, &r)
                if r.key_length >= 0:
                    self._row_partitions[i] = partition_for_key(r.key, r.key_length, self._partition_count)
            if self._row_partitions[i] >= 0:
                prefetch(self._partition_array[self._row_partitions[i]])
                prefetch(&self._slots[self._row_partitions[i]])
        for i in range(first, end):
            if self._row_partitions[i] >= 0:
                if not self._slots[self._row_partitions[i]].is_held:
                    self._hold(self._row_partitions[i])
                p = self._partition_array[self._row_partitions[i]]
                if p.tail is not NULL:
                    prefetch(p.tail)
        for i in range(first, end):
            # Looked into only under its lock: a failed _hold() lets earlier ones go.
            if self._row_partitions[i] >= 0 and self._slots[self._row_partitions[i]].is_held:
                p = self._partition_array[self._row_partitions[i]]
                if p.tail is not NULL and p.tail.position is not NULL:
                    prefetch(p.tail.position)
                    prefetch(p.tail.position + 64)

    cdef void _fill(self, Py_ssize_t i, RecordView *r) noexcept nogil:
        fill_record(&self._key.c, &self._value.c, &self._headers.c, i, r)
        r.timestamp = self._timestamps[i] if self._timestamps is not NULL else self._timestamp

    cdef int32_t _choose_sticky(self, const RecordView *r, int *events) noexcept nogil:
        """The sticky partition for a record that its key does not place; its lock is held afterwards."""
        cdef int32_t partition
        cdef Partition *p
        store32(&self.topic.sticky_used, 1)
        while True:
            partition = load32(&self.topic.sticky._current)
            if partition >= self._partition_count:
                # The topic has grown since the block was made.
                partition %= self._partition_count
            if not self._slots[partition].is_held:
                self._hold(partition)
                continue            # look again under the lock
            p = self._partition_array[partition]
            if not self.accumulator.must_leave(p, r):
                return partition
            self.accumulator.leave_sticky(self.topic, p, r, events)

    cdef inline void _hold(self, int32_t partition) noexcept nogil:
        cdef Partition *p = self._partition_array[partition]
        if self._held_count == MOST_HELD:
            self._let_go()
        if mutex_trylock(&p.lock) != 0:
            self._let_go()
            mutex_lock(&p.lock)
        self._slots[partition].is_held = 1
        self._held[self._held_count] = p
        self._held_count += 1

    cdef void _let_go(self) noexcept nogil:
        while self._held_count > 0:
            self._held_count -= 1
            self._slots[self._held[self._held_count].index].is_held = 0
            mutex_unlock(&self._held[self._held_count].lock)

    cdef inline int _reserve_segment(self) noexcept nogil:
        """Make room for one more segment; -1 without memory for it."""
        cdef Segment *grown
        cdef Py_ssize_t capacity
        if self._segment_count < self._segment_capacity:
            return 0
        capacity = 2 * self._segment_capacity + 16
        grown = <Segment *>realloc(self._segments, <size_t>capacity * sizeof(Segment))
        if grown is NULL:
            return -1
        self._segments = grown
        self._segment_capacity = capacity
        return 0

    cdef inline void _note(self, int32_t partition, Batch *b) noexcept nogil:
        """Remember in which batch the row just appended stands."""
        cdef Slot *slot = &self._slots[partition]
        cdef Segment *segment
        if slot.last_segment >= 0:
            segment = &self._segments[slot.last_segment]
            if segment.batch == b and segment.first_index + segment.count == b.record_count - 1:
                segment.count += 1
                return
        segment = &self._segments[self._segment_count]
        segment.batch = b
        batch_retain(b)
        segment.partition = partition
        segment.first_index = b.record_count - 1
        segment.count = 1
        slot.last_segment = <int32_t>self._segment_count
        self._segment_count += 1

    cdef int _publish_segments(self) except -1:
        """Turn the references to batches into result objects."""
        cdef Segment *segment
        while self._published_segments < self._segment_count:
            segment = &self._segments[self._published_segments]
            self._results.append((
                batch_result(segment.batch, self.accumulator.completion_factory, self.topic.name),
                segment.partition,
                segment.first_index,
                segment.count,
            ))
            # The batch may be freed now and its address come again: later rows must not be taken for its own.
            self._slots[segment.partition].last_segment = -1
            self._published_segments += 1
            batch_release(segment.batch, self.accumulator.pool)
        return 0

    @property
    def segments(self):
        """Where the appended rows stand: tuples (BatchResult, partition, first index in the batch, rows).

        The rows of one partition, in row order, fill its segments in list order.
        """
        return self._results

    @property
    def memory_need(self):
        """Bytes to wait for before the next row can be appended to a new batch; what enqueue_waiter wants."""
        cdef RecordView r
        if self.rows_appended == self.row_count:
            return 0
        self._fill(self.rows_appended, &r)
        return slab_total(record_size_bound(&r) + BATCH_HEADER_BYTES)

    def partition_of_rows(self):
        """Buffer of int32: each row's partition, -1 for a row that is not appended and was given none."""
        return RowPartitions(self)


@cython.final
cdef class RowPartitions:
    """The block's partition column as a read-only buffer of int32."""

    cdef Block _block
    cdef Py_ssize_t _shape
    cdef Py_ssize_t _stride

    def __init__(self, Block block not None):
        self._block = block
        self._shape = block.row_count
        self._stride = sizeof(int32_t)

    def __len__(self):
        return self._shape

    def __getbuffer__(self, Py_buffer *view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("partitions of rows are read-only")
        PyBuffer_FillInfo(view, self, self._block._row_partitions, self._shape * self._stride, 1, flags)
        view.itemsize = self._stride
        view.format = b"i"
        view.ndim = 1
        view.shape = &self._shape
        view.strides = &self._stride


cdef object _int_array(object source, str name, str code, Py_ssize_t row_count):
    """A one-dimensional view of `source` with items of native `code`; None stays None."""
    if source is None:
        return None
    try:
        view = memoryview(source)
    except TypeError:
        raise InvalidRecordError(f"{name} must support the buffer protocol, not {type(source).__name__}") from None
    size = 8 if code == "q" else 4
    if view.itemsize != size or view.format not in ("i", "l", "q", "=i", "=q", "<i", "<q", "<l"):
        raise InvalidRecordError(f"{name} must be int{size * 8}, not items of format {view.format!r}")
    if not view.c_contiguous or view.ndim != 1:
        raise InvalidRecordError(f"{name} must be one-dimensional and contiguous")
    if len(view) != row_count:
        raise InvalidRecordError(f"{name} has {len(view)} rows, the block {row_count}")
    return view.cast("B").cast(code)


cdef Py_ssize_t _agree(list columns, object row_count) except -1:
    """The number of rows that all columns with a length have."""
    count = row_count
    owner = "row_count"
    for name, rows in columns:
        if rows < 0:
            continue
        if count is None:
            count, owner = rows, name
        elif rows != count:
            raise InvalidRecordError(f"{name} has {rows} rows, {owner} {count}")
    if count is None or count < 0:
        raise InvalidRecordError("row_count is needed where no column has a length of its own")
    return count
