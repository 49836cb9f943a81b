"""Reading record batches of magic 2: checked header, CRC-32C, and the records, without trusting any length.

Used by the broker to validate what it is sent, by tests and tools to read back. Any thread; one reader by one thread
at a time. Source: Kafka protocol guide, "Record Batch"; DefaultRecordBatch, DefaultRecord; LogValidator for what a
broker asks of the records.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING

from kafkaprod._core.records.batch_layout cimport BATCH_HEADER_BYTES, CRC_START, LOG_OVERHEAD
from kafkaprod._core.records.big_endian cimport get_i16, get_i32, get_i64
from kafkaprod._core.records.checksum cimport extend_crc
from kafkaprod._core.records.varint cimport get_varint, get_varlong, put_varint, varint_size

from collections import namedtuple
from hashlib import blake2b

from kafkaprod.errors import CorruptDataError

Record = namedtuple("Record", ["offset", "timestamp", "key", "value", "headers"])
Record.__doc__ = "One record: headers are (str, bytes or None) pairs; timestamp in ms."

RecordScan = namedtuple(
    "RecordScan",
    ["max_timestamp", "offset_of_max_timestamp", "has_consecutive_offsets", "failing_count", "has_mistimed_with_key",
     "failing"],
)
RecordScan.__doc__ = """What a broker checks of a batch's records.

max_timestamp and the offset of the first record that has it; whether offset deltas are 0, 1, 2, ...; how many records
break a rule; whether one of them has a key and a wrong time; and the first `MAX_FAILING` of them as (index, fault).
"""

MAX_FAILING = 1000

KEYLESS = 1
MISTIMED = 2

CompactedRecords = namedtuple("CompactedRecords", ["record_count", "tombstone_count", "max_timestamp", "section"])
CompactedRecords.__doc__ = """The records of a batch that compaction keeps: counts, largest timestamp, their bytes."""

cdef enum:
    GIL_TURN_RECORDS = 16384    # after so many records other threads may run

cdef tuple STATUS_TEXT = ("", "is cut off", "does not end where its length says", "has an impossible count or length")


cdef inline const char *_get_field(const char *at, const char *end, const char **data, Py_ssize_t *length) noexcept nogil:
    """Read a nullable byte field; NULL if it runs past the end. A length below -1 is taken as cut, too."""
    cdef int32_t n = 0
    at = get_varint(at, end, &n)
    if at is NULL or n < -1 or n > end - at:
        return NULL
    data[0] = at
    length[0] = n
    return at if n < 0 else at + n


cdef inline int64_t _wrapping_sum(int64_t base, int64_t delta) noexcept nogil:
    # Unsigned: a hostile delta may overflow, which must not be undefined.
    return <int64_t>(<unsigned long long>base + <unsigned long long>delta)


cdef ReadStatus parse_record(const char *at, const char *end, ParsedRecord *record) noexcept nogil:
    """Read the record at `at`; `record.end` is where the next one starts. Pointers go into the memory given."""
    cdef int32_t length = 0
    cdef int32_t _
    cdef const char *data
    cdef Py_ssize_t size
    at = get_varint(at, end, &length)
    if at is NULL or length < 0 or length > end - at:
        return READ_CUT
    end = at + length
    if length < 1:
        return READ_BAD_LENGTH
    at = get_varlong(at + 1, end, &record.timestamp_delta)
    if at is not NULL:
        at = get_varint(at, end, &record.offset_delta)
    if at is not NULL:
        at = _get_field(at, end, &record.key, &record.key_length)
    if at is not NULL:
        at = _get_field(at, end, &record.value, &record.value_length)
    if at is not NULL:
        at = get_varint(at, end, &record.header_count)
    if at is NULL:
        return READ_BAD_LENGTH
    # A header has two bytes at least.
    if record.header_count < 0 or record.header_count > (end - at) // 2:
        return READ_BAD_COUNT
    record.headers = at
    for _ in range(record.header_count):
        at = _get_field(at, end, &data, &size)
        if at is NULL or size < 0:
            return READ_BAD_COUNT
        at = _get_field(at, end, &data, &size)
        if at is NULL:
            return READ_BAD_LENGTH
    if at != end:
        return READ_BAD_LENGTH
    record.end = end
    return READ_OK


@cython.final
cdef class RecordBatchReader:
    """One batch in a buffer.

    Args:
        data: bytes-like; the batch starts at `position`. It is held until the reader dies.
        decompress: Called as decompress(codec_id, data, limit) for compressed batches; `compression.decompress`.
        check_crc: Verify the CRC now.
        limit: Most bytes of records to decompress.

    Raises: CorruptDataError for a cut batch, another magic, an impossible length or count, a wrong CRC.
    """

    def __cinit__(self, data not None, Py_ssize_t position=0, decompress=None, bint check_crc=True,
                  Py_ssize_t limit=104857600):
        PyObject_GetBuffer(data, &self._buffer, PyBUF_SIMPLE)
        self._is_held = True
        cdef Py_ssize_t available = self._buffer.len - position
        cdef const char *p
        cdef Py_ssize_t length
        if position < 0 or available < BATCH_HEADER_BYTES:
            raise CorruptDataError(f"batch at {position} is cut: {max(available, 0)} of {BATCH_HEADER_BYTES} header bytes")
        p = <const char *>self._buffer.buf + position
        length = get_i32(p + 8)
        if p[16] != 2:
            raise CorruptDataError(f"batch at {position} has magic {p[16]}, only 2 is supported")
        if length < BATCH_HEADER_BYTES - LOG_OVERHEAD or length > available - LOG_OVERHEAD:
            raise CorruptDataError(f"batch at {position} says {length} bytes follow, {available - LOG_OVERHEAD} do")
        self.size_bytes = length + LOG_OVERHEAD
        self.base_offset = get_i64(p)
        self.leader_epoch = get_i32(p + 12)
        self.crc = <uint32_t>get_i32(p + 17)
        self.attributes = get_i16(p + 21)
        self.last_offset_delta = get_i32(p + 23)
        self.base_timestamp = get_i64(p + 27)
        self.max_timestamp = get_i64(p + 35)
        self.producer_id = get_i64(p + 43)
        self.producer_epoch = get_i16(p + 51)
        self.base_sequence = get_i32(p + 53)
        self.record_count = get_i32(p + 57)
        self._decompress = decompress
        self._limit = limit
        if self.record_count < 0:
            raise CorruptDataError(f"batch at {position} has record count {self.record_count}")
        if check_crc:
            crc = extend_crc(0, p + CRC_START, self.size_bytes - CRC_START)
            if crc != self.crc:
                raise CorruptDataError(f"batch at {position} has CRC {self.crc:#010x}, its bytes have {crc:#010x}")
        self._position = position

    def __dealloc__(self):
        if self._is_held:
            PyBuffer_Release(&self._buffer)

    @property
    def codec_id(self):
        """Compression codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & 0x07

    @property
    def has_log_append_time(self):
        """Whether every record's timestamp is the batch's max_timestamp, set by the broker."""
        return bool(self.attributes & 0x08)

    @property
    def is_transactional(self):
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & 0x10)

    @property
    def is_control(self):
        """Whether it holds a control record, which no application may see."""
        return bool(self.attributes & 0x20)

    @property
    def last_offset(self):
        """Offset of the last record as produced."""
        return _wrapping_sum(self.base_offset, self.last_offset_delta)

    cdef object _open_records(self, const char **at, const char **end):
        """Point at the records section; return what owns its memory, which the caller keeps while it reads.

        The reader does not keep a decompressed section: a list of readers must not hold all of them.
        """
        cdef const char *batch = <const char *>self._buffer.buf + self._position
        if self.codec_id == 0 or self.size_bytes == BATCH_HEADER_BYTES:
            at[0] = batch + BATCH_HEADER_BYTES
            end[0] = batch + self.size_bytes
            return self
        if self._decompress is None:
            raise CorruptDataError(f"batch is compressed with codec {self.codec_id}, and no decompressor was given")
        start = self._position + BATCH_HEADER_BYTES
        view = memoryview(self._buffer.obj).cast("B")[start:self._position + self.size_bytes]
        plain = self._decompress(self.codec_id, view, self._limit)
        if type(plain) is bytearray:
            at[0] = PyByteArray_AS_STRING(plain)
            end[0] = at[0] + <Py_ssize_t>len(plain)
            return memoryview(plain)        # while it lives the array cannot be resized
        else:
            plain = bytes(plain)
            at[0] = PyBytes_AS_STRING(plain)
        end[0] = at[0] + <Py_ssize_t>len(plain)
        return plain

    def __iter__(self):
        """Yield the records one by one. Raises CorruptDataError naming the first bad one, when it reaches that one."""
        return _RecordIterator.__new__(_RecordIterator, self)

    def records(self):
        """All records as a list of Record. Raises CorruptDataError naming the first bad one."""
        return list(self)

    def scan(self, int64_t earliest=-0x7FFFFFFFFFFFFFFF, int64_t latest=0x7FFFFFFFFFFFFFFF, bint needs_key=False,
             bint refuses_append_time=False):
        """Check every record without making objects of them.

        Args:
            earliest, latest: Bounds of record timestamps in ms; -1 (none) is always inside.
            needs_key: A record without a key breaks a rule.
            refuses_append_time: Every record of a batch that claims LogAppendTime breaks a rule.

        Returns: RecordScan; that of a compressed batch whose offset deltas are not 0, 1, 2, ... ends with the first
            wrong one.
        Raises: CorruptDataError naming the first bad record.
        """
        cdef ParsedRecord record
        cdef ReadStatus status = READ_OK
        cdef const char *at = NULL
        cdef const char *end = NULL
        cdef int32_t i = 0
        cdef int64_t timestamp
        cdef int64_t max_timestamp = -1
        cdef int64_t offset_of_max = -1
        cdef int32_t failing_count = 0
        cdef int32_t listed_count = 0
        cdef int32_t listed[1000]
        cdef char faults[1000]
        cdef char fault
        cdef bint claims_append_time = refuses_append_time and self.attributes & 0x08
        cdef bint stops_at_gap = self.attributes & 0x07
        cdef bint consecutive = True
        cdef bint has_mistimed_with_key = False
        _owner = self._open_records(&at, &end)
        with nogil:
            while i < self.record_count:
                status = parse_record(at, end, &record)
                if status != READ_OK:
                    break
                timestamp = _wrapping_sum(self.base_timestamp, record.timestamp_delta)
                if timestamp > max_timestamp or offset_of_max < 0:
                    max_timestamp = timestamp
                    offset_of_max = _wrapping_sum(self.base_offset, record.offset_delta)
                if record.offset_delta != i:
                    consecutive = False
                    if stops_at_gap:
                        break
                fault = 1 if needs_key and record.key_length < 0 else 0
                if claims_append_time or (timestamp != -1 and not earliest <= timestamp <= latest):
                    has_mistimed_with_key = has_mistimed_with_key or fault == 0
                    fault |= 2
                if fault:
                    if listed_count < 1000:
                        listed[listed_count] = i
                        faults[listed_count] = fault
                        listed_count += 1
                    failing_count += 1
                at = record.end
                i += 1
        if status != READ_OK:
            raise CorruptDataError(f"record {i} of {self.record_count} {STATUS_TEXT[<int>status]}")
        if at != end and i == self.record_count:
            raise CorruptDataError(f"{end - at} bytes follow the last of {self.record_count} records")
        failing = tuple([(listed[i], <int>faults[i]) for i in range(listed_count)])
        return RecordScan(
            max_timestamp, offset_of_max, consecutive, failing_count, bool(has_mistimed_with_key), failing)

    def find_timestamp(self, int64_t timestamp, int64_t min_offset):
        """Return (offset, timestamp) of the first record at or after both `timestamp` (ms) and `min_offset`, or None.

        Raises: CorruptDataError naming the first bad record on the way.
        """
        cdef ParsedRecord record
        cdef ReadStatus status = READ_OK
        cdef const char *at = NULL
        cdef const char *end = NULL
        cdef int32_t i = 0
        cdef int64_t own = 0
        cdef int64_t offset = 0
        cdef bint has_log_append_time = self.attributes & 0x08
        cdef bint is_found = False
        _owner = self._open_records(&at, &end)
        with nogil:
            while i < self.record_count:
                status = parse_record(at, end, &record)
                if status != READ_OK:
                    break
                own = self.max_timestamp
                if not has_log_append_time:
                    own = _wrapping_sum(self.base_timestamp, record.timestamp_delta)
                offset = _wrapping_sum(self.base_offset, record.offset_delta)
                if own >= timestamp and offset >= min_offset:
                    is_found = True
                    break
                at = record.end
                i += 1
        if status != READ_OK:
            raise CorruptDataError(f"record {i} of {self.record_count} {STATUS_TEXT[<int>status]}")
        return (offset, own) if is_found else None

    def note_keys(self, dict latest not None, Py_ssize_t max_keys, int64_t first_offset):
        """Put the offset of each record with a key into `latest`, the last one of a key winning.

        Args:
            latest: Offsets by key; long keys by their digest.
            max_keys: Stop when so many are in it.
            first_offset: Skip the records below.

        Returns: (offset of the last record that was read or skipped, whether it stopped before the end).
        Raises: CorruptDataError naming the first bad record.
        """
        cdef ParsedRecord record
        cdef ReadStatus status
        cdef const char *at = NULL
        cdef const char *end = NULL
        cdef int32_t i
        cdef int64_t offset = _wrapping_sum(self.base_offset, -1)
        _owner = self._open_records(&at, &end)
        for i in range(self.record_count):
            status = parse_record(at, end, &record)
            if status != READ_OK:
                raise CorruptDataError(f"record {i} of {self.record_count} {STATUS_TEXT[<int>status]}")
            if record.key_length >= 0 and _wrapping_sum(self.base_offset, record.offset_delta) >= first_offset:
                if len(latest) >= max_keys:
                    return offset, True
                latest[_name_of_key(&record)] = _wrapping_sum(self.base_offset, record.offset_delta)
            offset = _wrapping_sum(self.base_offset, record.offset_delta)
            at = record.end
            if i % GIL_TURN_RECORDS == GIL_TURN_RECORDS - 1:
                with nogil:
                    pass
        return offset, False

    def compact(self, dict latest not None, int64_t noted_offset, bint drops_tombstones, int64_t base_timestamp):
        """Return the records that compaction keeps: the last one of each key, and all after `noted_offset`.

        Args:
            latest: From `note_keys`.
            noted_offset: Up to where it was filled.
            drops_tombstones: Records without a value go, too.
            base_timestamp: The new batch's; timestamp deltas are made relative to it.

        Raises: CorruptDataError naming the first bad record.
        """
        cdef ParsedRecord record
        cdef ReadStatus status
        cdef const char *at = NULL
        cdef const char *end = NULL
        cdef int32_t i
        cdef int32_t kept_count = 0
        cdef int32_t tombstone_count = 0
        cdef int64_t offset
        cdef int64_t timestamp
        cdef int64_t max_timestamp = -1
        cdef bytearray section = bytearray()
        cdef bint keeps_bytes = base_timestamp == self.base_timestamp
        _owner = self._open_records(&at, &end)
        for i in range(self.record_count):
            status = parse_record(at, end, &record)
            if status != READ_OK:
                raise CorruptDataError(f"record {i} of {self.record_count} {STATUS_TEXT[<int>status]}")
            offset = _wrapping_sum(self.base_offset, record.offset_delta)
            if offset > noted_offset or (
                record.key_length >= 0
                and not (drops_tombstones and record.value_length < 0)
                and <int64_t>latest.get(_name_of_key(&record), -1) <= offset
            ):
                timestamp = _wrapping_sum(self.base_timestamp, record.timestamp_delta)
                max_timestamp = max(max_timestamp, timestamp)
                kept_count += 1
                tombstone_count += record.value_length < 0
                if keeps_bytes:
                    section += at[:record.end - at]
                else:
                    _append_moved(section, at, &record, _wrapping_sum(timestamp, -base_timestamp))
            at = record.end
            if i % GIL_TURN_RECORDS == GIL_TURN_RECORDS - 1:
                with nogil:
                    pass
        return CompactedRecords(kept_count, tombstone_count, max_timestamp, section)


cdef object _name_of_key(const ParsedRecord *record):
    """The key, or 33 bytes with its digest if it is longer than 32: what a key takes in memory is bounded."""
    key = record.key[:record.key_length]
    return key if record.key_length <= 32 else b"\0" + blake2b(key, digest_size=32).digest()


cdef int _append_moved(bytearray section, const char *start, const ParsedRecord *record, int64_t delta) except -1:
    """Append a record with another timestamp delta."""
    cdef char head[24]
    cdef char *p
    cdef int32_t length = 0
    cdef int64_t old_delta = 0
    cdef const char *body = get_varint(start, record.end, &length)
    cdef const char *rest = get_varlong(body + 1, record.end, &old_delta)
    p = put_varint(head, 1 + varint_size(delta) + (record.end - rest))
    p[0] = body[0]          # attributes
    p = put_varint(p + 1, delta)
    section += (<const char *>head)[:p - head]
    section += rest[:record.end - rest]
    return 0


@cython.final
cdef class _RecordIterator:
    """Makes the records of a batch one at a time: of a batch of millions only those in use are in memory."""

    cdef RecordBatchReader _batch
    cdef object _owner
    cdef const char *_at
    cdef const char *_end
    cdef int32_t _index

    def __cinit__(self, RecordBatchReader batch not None):
        self._batch = batch
        self._owner = batch._open_records(&self._at, &self._end)

    def __iter__(self):
        return self

    def __next__(self):
        cdef ParsedRecord record
        cdef ReadStatus status
        cdef RecordBatchReader batch = self._batch
        cdef int32_t i = self._index
        if i >= batch.record_count:
            if self._at != self._end:
                raise CorruptDataError(f"{self._end - self._at} bytes follow the last of {batch.record_count} records")
            self._owner = None
            self._at = self._end = NULL
            raise StopIteration
        status = parse_record(self._at, self._end, &record)
        if status != READ_OK:
            raise CorruptDataError(f"record {i} of {batch.record_count} {STATUS_TEXT[<int>status]}")
        headers = _headers(&record, i)
        self._at = record.end
        self._index = i + 1
        return Record(
            _wrapping_sum(batch.base_offset, record.offset_delta),
            batch.max_timestamp if batch.attributes & 0x08
            else _wrapping_sum(batch.base_timestamp, record.timestamp_delta),
            None if record.key_length < 0 else record.key[:record.key_length],
            None if record.value_length < 0 else record.value[:record.value_length],
            headers,
        )


cdef list _headers(const ParsedRecord *record, int32_t index):
    cdef list out = []
    cdef const char *at = record.headers
    cdef const char *key = NULL
    cdef const char *value = NULL
    cdef Py_ssize_t key_length = 0
    cdef Py_ssize_t value_length = 0
    cdef int32_t i
    for i in range(record.header_count):
        at = _get_field(at, record.end, &key, &key_length)
        if at is not NULL:
            at = _get_field(at, record.end, &value, &value_length)
        if at is NULL or key_length < 0:        # parse_record() saw other bytes: the buffer was written to meanwhile
            raise CorruptDataError(f"record {index} changed while it was read")
        try:
            name = key[:key_length].decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptDataError(f"header {i} of record {index} has a key that is not UTF-8") from error
        out.append((name, None if value_length < 0 else value[:value_length]))
    return out


def read_batches(data not None, decompress=None, bint check_crc=True, Py_ssize_t limit=104857600):
    """Read the batches that stand one behind the other in `data`; a cut last one is left out.

    Returns: list of RecordBatchReader. Raises: CorruptDataError for a bad one.
    """
    cdef list out = []
    cdef Py_ssize_t position = 0
    view = memoryview(data).cast("B")
    while len(view) - position >= LOG_OVERHEAD:
        size = int.from_bytes(view[position + 8:position + 12], "big", signed=True) + LOG_OVERHEAD
        if size > len(view) - position:
            break
        reader = RecordBatchReader(view, position, decompress, check_crc, limit)
        out.append(reader)
        position += reader.size_bytes
    return out
