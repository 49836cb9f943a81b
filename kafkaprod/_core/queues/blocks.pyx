"""Blocks of records, from lists or columns, appended without the GIL.

A block is checked whole before its first record is written; after that only a full pool can stop it, at a record
boundary: `rows_left` has the rows that are not appended, and run() continues from there. Rows keep their order per partition.

Rows are taken in rounds. A round is sorted by partition first (a counting sort, so rows keep their order) and then
written partition by partition: its lock is taken once for a run of rows, the batch's state stays in registers, and
with thousands of partitions the next memory can be prefetched in time. So what is appended when the pool is full is a
prefix of each partition's rows, not of the block's. Only one lock is held at a time.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX
from libc.stdlib cimport free, malloc

from kafkaprod._core.queues.accumulator cimport ANY_PARTITION
from kafkaprod._core.queues.batch cimport (
    BYTES_AHEAD,
    KP_DEBUG,
    SUM_FROM,
    OpenBatch,
    batch_check_tail,
    batch_release,
    batch_sum,
    delta_between,
)
from kafkaprod._core.queues.block_arguments cimport agree, check_timestamps, int_array, take_partitions
from kafkaprod._core.records.batch_layout cimport BATCH_HEADER_BYTES
from kafkaprod._core.queues.slabs cimport slab_total
from kafkaprod._core.columns.columns cimport (
    NULLS,
    ByteColumn,
    HeaderColumn,
    Place,
    column_address,
    column_get,
    prefetch_place,
    prefetch_row_bytes,
)
from kafkaprod._core.columns.row_places cimport MOST_PLACES, ordered_places, row_places
from kafkaprod._core.queues.completion cimport batch_result
from kafkaprod._core.queues.sticky cimport MOST_DRAWS, has_had_share, leave_sticky, must_leave
from kafkaprod._core.queues.topic_queues cimport FEW_PARTITIONS, partition_count
from kafkaprod._core.machine.lock cimport load_i64, mutex_lock, mutex_unlock, observe32, store32, store_address
from kafkaprod._core.queues.refused_rows cimport refuse_led_by, refuse_run, refused_free, refused_reserve
from kafkaprod._core.queues.rounds cimport (
    Round,
    round_allocate,
    round_begin,
    round_begin_sticky,
    round_free,
    round_next_row,
    round_prefetch,
)
from kafkaprod._core.queues.row_runs cimport RowRun, runs_add, runs_allocate, runs_free_last, runs_reserve
from kafkaprod._core.machine.prefetch cimport prefetch_read, prefetch_write
from kafkaprod._core.records.integers cimport to_int64
from kafkaprod._core.records.record_view cimport APPENDED, EVENT_BATCH_FULL, NODE_EXHAUSTED, OUT_OF_MEMORY
from kafkaprod._core.records.record_writer cimport (
    RECORD_OVERHEAD_BOUND,
    headers_size,
    record_body_size,
    record_size_bound,
    write_record,
)
from kafkaprod._core.records.varint cimport uvarint_size

from kafkaprod.errors import ForkedProducerError, InvalidRecordError, RecordTooLargeError


cdef enum:
    MOST_OVERHEAD = RECORD_OVERHEAD_BOUND + 1 + 5 + 5      # no headers; lengths of key and value


cdef inline void fill_record(const ByteColumn *key, const ByteColumn *value, const HeaderColumn *headers, Py_ssize_t i,
                             RecordView *r) noexcept nogil:
    """Point the view at row i; the timestamp is the caller's."""
    r.key = NULL
    r.value = NULL
    column_get(key, i, &r.key, &r.key_length)
    column_get(value, i, &r.value, &r.value_length)
    fill_headers(headers, i, r)


cdef inline void fill_headers(const HeaderColumn *headers, Py_ssize_t i, RecordView *r) noexcept nogil:
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


cdef inline void prefetch_row(const ByteColumn *key, const ByteColumn *value, Py_ssize_t i) noexcept nogil:
    """Prefetch what writing row i will read."""
    prefetch_read(column_address(key, i))
    prefetch_row_bytes(value, i)


cdef object _too_large(Py_ssize_t row, Py_ssize_t size, str topic, Py_ssize_t limit):
    error = RecordTooLargeError(
        f"row {row}: record of up to {size} bytes for topic {topic!r} exceeds {limit} bytes, the limit by max_request_size "
        "and buffer_memory",
        topic=topic,
    )
    error.row = row
    return error


cdef list _rows_ahead(const Round *round):
    """The rows of a round that are not taken yet."""
    cdef Py_ssize_t i
    if round.is_sticky:
        return list(range(round.first + round.at, round.end))
    return [round.first + round.order[i] for i in range(round.at, round.end - round.first)]


@cython.final
@cython.no_gc_clear
cdef class Block:
    """Rows bound for one topic.

    Args:
        key, value: Columns. headers: Headers, or None. Columns with a length must agree on it.
        row_count: Needed only if no column has a length.
        timestamps: Buffer of int64 ms per row, -1 for none; or None: `timestamp` for every row.
        partitions: Buffer of int32 per row, -1 to let the key or the sticky partitioner choose; or None.
        partition: The partition of every row; -1 as above.

    Raises: InvalidRecordError, RecordTooLargeError naming argument and row; nothing is appended then.
    """

    def __cinit__(self, Accumulator accumulator not None, TopicQueues topic not None, Column value not None,
                  Column key=None, Headers headers=None, row_count=None, timestamps=None, timestamp=-1, partitions=None,
                  partition=ANY_PARTITION):
        self.accumulator = accumulator
        self.topic = topic
        self._value = value
        self._key = Column.nulls() if key is None else key
        self._headers = Headers.from_python(None) if headers is None else headers
        self.row_count = agree(
            [("value", self._value.row_count), ("key", self._key.row_count), ("headers", self._headers.row_count)],
            row_count,
        )
        self._timestamp = to_int64(timestamp, "timestamp", -1, INT64_MAX)
        cdef int64_t chosen = to_int64(partition, "partition", INT32_MIN, INT32_MAX)
        self._kept = [int_array(timestamps, "timestamps", "q", self.row_count),
                      int_array(partitions, "partitions", "i", self.row_count)]
        cdef const int64_t[::1] timestamp_view
        cdef const int32_t[::1] partition_view
        # Read only now: code of the arguments above may have changed the topic.
        self._partition_count = partition_count(topic)      # first: the array may grow, and never falls behind it
        self._partition_array = topic.partitions
        if not ANY_PARTITION <= chosen < self._partition_count:
            raise InvalidRecordError(
                f"partition={chosen} of topic {topic.name!r} is outside 0..{self._partition_count - 1}"
            )
        if self._kept[0] is not None and self.row_count:
            timestamp_view = self._kept[0]
            self._timestamps = &timestamp_view[0]
        if self._kept[1] is not None and self.row_count:
            partition_view = self._kept[1]
            self._partitions = &partition_view[0]
        self._row_partitions = <int32_t *>malloc(<size_t>(self.row_count + 1) * sizeof(int32_t))
        if (round_allocate(&self._round, self.row_count, self._partition_count) < 0
                or runs_allocate(&self._runs, self._partition_count) < 0 or self._row_partitions is NULL):
            raise MemoryError
        cdef Py_ssize_t i
        self._for_all = <int32_t>chosen
        for i in range(self.row_count):
            self._row_partitions[i] = self._for_all
        self._check_rows()

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self._runs.count):
            batch_release(self._runs.items[i].batch, self.accumulator.pool)
        free(self._runs.items)
        free(self._row_partitions)
        refused_free(&self._refused)
        runs_free_last(&self._runs)
        round_free(&self._round)

    cdef int _check_rows(self) except -1:
        cdef Py_ssize_t i
        cdef RecordView r
        if self._timestamps is not NULL:
            check_timestamps(self._timestamps, self.row_count)
        if self._partitions is not NULL:
            take_partitions(self._partitions, self.row_count, self.topic.name, self._partition_count, self._row_partitions)
        if self._headers.c.headers is NULL and (self._key.c.longest + self._value.c.longest + MOST_OVERHEAD
                                                <= self.accumulator.max_record_bytes):
            return 0            # the longest key with the longest value fits: so does every row
        for i in range(self.row_count):
            self._fill(i, &r)
            if record_size_bound(&r) > self.accumulator.max_record_bytes:
                raise _too_large(i, record_size_bound(&r), self.topic.name, self.accumulator.max_record_bytes)
        return 0

    def run(self, int64_t now_ms, int64_t ticket=0):
        """Append as many of the remaining rows as there is memory for; return whether none is left.

        Args: now_ms: monotonic; starts linger and delivery timeout of new batches. ticket: of a memory waiter, or 0.
        Raises: ProducerClosedError; MemoryError if the system has none. Releases the GIL for the whole loop.
        """
        cdef AppendStatus status = APPENDED
        cdef int events = 0
        if self.accumulator.backlog.is_closed:
            raise self.accumulator.refusal()
        store32(&self.topic.was_used, 1)
        with nogil:
            status = self._append_rows(now_ms, ticket, &events)
        if status != APPENDED:
            events |= EVENT_BATCH_FULL      # a waiter makes everything sendable
        self.accumulator.tell_sender(events)
        if status == OUT_OF_MEMORY:
            raise MemoryError(f"the system has no memory for row {self.rows_left[0]} of a block for {self.topic.name!r}")
        if status == APPENDED and self.is_complete:
            self._let_go_of_input()
        return self.is_complete

    @property
    def is_complete(self):
        """Whether each row is appended, or refused."""
        return self.rows_appended + self._refused.count == self.row_count

    def refuse_node(self, int32_t node_id):
        """Leave out, from now on, rows for partitions that a node (-1: none) leads now; return whether one is new."""
        if self._round.is_sticky:
            return False
        if refused_reserve(&self._refused, self.row_count, self._partition_count) < 0:
            raise MemoryError
        return refuse_led_by(&self._refused, node_id, self._partition_array, self._partition_count)

    cdef int _let_go_of_input(self) except -1:
        """The block lives on as part of a result; the columns it came from need not."""
        self._key = self._value = None
        self._headers = None
        self._kept = None
        runs_free_last(&self._runs)
        round_free(&self._round)
        return 0

    cdef void _begin_round(self) noexcept nogil:
        cdef bint uses_keys = self._key.c.layout != NULLS and not self.accumulator.ignore_keys
        if not uses_keys and self._partitions is NULL and self._for_all < 0:
            round_begin_sticky(&self._round, self.row_count)
        else:
            round_begin(&self._round, self._key.c, self._value.c, self._row_partitions, self.row_count,
                        self._partition_count, uses_keys)

    cdef AppendStatus _append_rows(self, int64_t now_ms, int64_t ticket, int *events) noexcept nogil:
        cdef AppendStatus status = APPENDED
        cdef int32_t partition
        cdef int draws = MOST_DRAWS
        cdef RecordView r
        while status == APPENDED and self.rows_appended + self._refused.count < self.row_count:
            if self._round.first + self._round.at == self._round.end:
                self._begin_round()
            if self._round.is_sticky:
                partition = self._lock_sticky(events)
                status = self._append_run(partition, <int32_t>(self._round.end - self._round.first), now_ms, ticket, events)
                if status == NODE_EXHAUSTED and draws > 0:
                    draws -= 1
                    self._fill(self._round.first + self._round.at, &r)
                    leave_sticky(self.topic.sticky, self._partition_array[partition], &r, events)
                    status = APPENDED
            else:
                partition = self._round.groups[self._round.group]
                if self._refused.partitions is not NULL and self._refused.partitions[partition]:
                    refuse_run(&self._refused, &self._round, partition, self._row_partitions)
                    continue
                if self._partition_count > FEW_PARTITIONS:
                    round_prefetch(&self._round, self._partition_array)
                mutex_lock(&self._partition_array[partition].lock)
                status = self._append_run(partition, self._round.ends[partition], now_ms, ticket, events)
                if self._round.at == self._round.ends[partition]:
                    self._round.group += 1
            mutex_unlock(&self._partition_array[partition].lock)
        return status

    cdef AppendStatus _append_run(self, int32_t partition, int32_t run_end, int64_t now_ms, int64_t ticket,
                                  int *events) noexcept nogil:
        """Append rows of the round, up to `run_end` or ROWS_PER_HOLD of them, to the partition, whose lock is held."""
        # Copies of what is constant: records are written through char pointers, which may point at anything, so that the
        # compiler would load every field of self again for every record.
        cdef ByteColumn key = self._key.c
        cdef ByteColumn value = self._value.c
        cdef HeaderColumn headers = self._headers.c
        cdef Py_ssize_t round_first = self._round.first
        cdef const int64_t *timestamps = self._timestamps
        cdef int32_t *row_partitions = self._row_partitions
        cdef bint is_sticky = self._round.is_sticky
        cdef const int32_t *order = self._round.order
        cdef int32_t at = self._round.at
        cdef int32_t end_at = min(run_end, at + ROWS_PER_HOLD)
        cdef Place[MOST_PLACES] key_room
        cdef Place[MOST_PLACES] value_room
        cdef const Place *keys = key_room
        cdef const Place *values = value_room
        cdef bint is_scattered = self._partition_count > FEW_PARTITIONS and not is_sticky
        cdef int32_t prefetch_end = 0
        cdef Partition *p = self._partition_array[partition]
        cdef AppendStatus status = APPENDED
        cdef RecordView r               # does not escape, so the compiler may keep the fields in registers
        cdef RecordView refused
        cdef Py_ssize_t row
        cdef Py_ssize_t body
        cdef int64_t delta
        # The state of the batch that is written to, in registers.
        cdef OpenBatch *o = &p.open
        cdef bint has_batch = o.batch is not NULL
        cdef char *position = <char *>o     # without a batch: no room, at an address that can be counted from
        cdef char *end = position
        cdef int64_t base_timestamp = 0
        cdef int64_t max_timestamp = 0
        cdef int32_t record_count = 0
        cdef int32_t first_index = 0
        cdef int64_t sticky_bytes = p.sticky_bytes if is_sticky else 0
        cdef int64_t sticky_limit = 2 * self.topic.batching.batch_size     # see has_had_share()
        if runs_reserve(&self._runs) != 0:
            return OUT_OF_MEMORY
        if is_scattered:
            prefetch_end = <int32_t>(self._round.end - round_first) - 2 * ROWS_AHEAD
        r.timestamp = self._timestamp
        if has_batch:
            position, end, base_timestamp = o.position, o.end, o.base_timestamp
            max_timestamp, record_count = o.max_timestamp, o.record_count
            first_index = record_count
        if is_sticky:
            keys = row_places(&key, round_first + at, end_at - at, key_room)
            values = row_places(&value, round_first + at, end_at - at, value_room)
        else:
            keys = ordered_places(&key, round_first, order + at, end_at - at, key_room)
            values = ordered_places(&value, round_first, order + at, end_at - at, value_room)
        while at < end_at:
            if not is_scattered:
                # A reused slab was last touched a whole pool ago and is in no cache.
                prefetch_write(position + BYTES_AHEAD)
                prefetch_write(position + BYTES_AHEAD + 64)
            elif at < prefetch_end:
                prefetch_place(&key, round_first + order[at + 2 * ROWS_AHEAD])
                prefetch_place(&value, round_first + order[at + 2 * ROWS_AHEAD])
                prefetch_row(&key, &value, round_first + order[at + ROWS_AHEAD])
            row = round_first + (at if is_sticky else order[at])
            r.key, r.key_length = keys.data, keys.length
            r.value, r.value_length = values.data, values.length
            fill_headers(&headers, row, &r)
            if timestamps is not NULL:
                r.timestamp = timestamps[row]
            delta = delta_between(r.timestamp, base_timestamp)
            body = record_body_size(&r, delta, record_count)
            if uvarint_size(<unsigned long long>body << 1) + body <= end - position and sticky_bytes < sticky_limit:
                if KP_DEBUG:
                    batch_check_tail(o.batch)
                position = write_record(position, &r, body, delta, record_count)
                record_count += 1
                if r.timestamp > max_timestamp:
                    max_timestamp = r.timestamp
            else:
                if has_batch:
                    self._put_back(partition, position, max_timestamp, record_count, first_index)
                has_batch = False
                refused = r                 # the view itself must not escape
                if is_sticky:
                    p.sticky_bytes = sticky_bytes
                    if has_had_share(p, &refused, self.topic.batching.batch_size):
                        break
                if runs_reserve(&self._runs) != 0:
                    status = OUT_OF_MEMORY
                    break
                status = self.accumulator.append_locked(p, &refused, now_ms, ticket, events)
                if status != APPENDED:
                    break
                has_batch = True
                position, end, base_timestamp = o.position, o.end, o.base_timestamp
                max_timestamp, record_count = o.max_timestamp, o.record_count
                first_index = record_count - 1
            row_partitions[row] = partition
            if is_sticky:
                sticky_bytes += record_size_bound(&r)
            at += 1
            keys += 1
            values += 1
        if has_batch:
            self._put_back(partition, position, max_timestamp, record_count, first_index)
        if is_sticky:
            p.sticky_bytes = sticky_bytes
        self.rows_appended += at - self._round.at
        self._round.at = at
        return status

    cdef int32_t _lock_sticky(self, int *events) noexcept nogil:
        """The sticky partition for the next row, locked."""
        cdef int32_t partition
        cdef Partition *p
        cdef RecordView r
        cdef int draws = MOST_DRAWS
        cdef int64_t turn_us = load_i64(&self.accumulator.turn_us)
        self._fill(self._round.first + self._round.at, &r)
        store32(&self.topic.sticky_used, 1)
        while True:
            partition = observe32(&self.topic.sticky._current)
            if partition >= self._partition_count:
                # The topic has grown since the block was made.
                partition %= self._partition_count
            p = self._partition_array[partition]
            mutex_lock(&p.lock)
            if not must_leave(self.topic.sticky, p, &r, self.topic.batching.batch_size, turn_us, &draws):
                return partition
            leave_sticky(self.topic.sticky, p, &r, events)
            mutex_unlock(&p.lock)

    cdef void _fill(self, Py_ssize_t i, RecordView *r) noexcept nogil:
        fill_record(&self._key.c, &self._value.c, &self._headers.c, i, r)
        r.timestamp = self._timestamps[i] if self._timestamps is not NULL else self._timestamp

    cdef inline void _put_back(self, int32_t partition, char *position, int64_t max_timestamp,
                               int32_t record_count, int32_t first_index) noexcept nogil:
        """Write the state of the open batch back, and remember that its records from first_index on are the block's."""
        cdef OpenBatch *o = &self._partition_array[partition].open
        if record_count == first_index:
            return
        if self.topic.batching.sums_records and position - o.position >= SUM_FROM:
            batch_sum(o.batch, position, False)
        store_address(&o.position, position)
        o.max_timestamp, o.record_count = max_timestamp, record_count
        runs_add(&self._runs, o, partition, first_index, record_count)

    @property
    def row_runs(self):
        """Where the appended rows are: tuples (BatchResult, partition, first index in the batch, rows).

        The rows of one partition, in row order, fill its runs in list order. Result objects are made by the first call.
        Raises ForkedProducerError after Accumulator.abandon().
        """
        if self.accumulator.is_abandoned:
            raise ForkedProducerError("the records were sent by the parent process: their outcome is known only there")
        cdef Py_ssize_t i
        cdef RowRun *run
        cdef list found = []
        for i in range(self._runs.count):
            run = &self._runs.items[i]
            found.append((
                batch_result(run.batch, self.accumulator.completion_factory, self.topic.name),
                run.partition,
                run.first_index,
                run.count,
            ))
        return found

    @property
    def rows_left(self):
        """The rows that are not appended, ascending; after a run() that returned True those that were refused."""
        cdef Py_ssize_t i
        cdef list refused = [self._refused.rows[i] for i in range(self._refused.count)]
        return sorted(refused + _rows_ahead(&self._round)) + list(range(self._round.end, self.row_count))

    @property
    def memory_need(self):
        """Bytes to wait for before the next row can be appended to a new batch; what enqueue_waiter wants."""
        cdef RecordView r
        if self.is_complete:
            return 0
        self._fill(round_next_row(&self._round), &r)
        return slab_total(record_size_bound(&r) + BATCH_HEADER_BYTES)

    def partition_of_rows(self):
        """Buffer of int32: each row's partition, -1 where none was given or chosen."""
        return RowPartitions(self)


@cython.final
cdef class RowPartitions:
    """The block's partition column as a read-only buffer of int32."""

    cdef Block _block
    cdef Py_ssize_t _shape
    cdef Py_ssize_t _stride

    def __cinit__(self, Block block not None):
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
