"""Reading record batches of magic 2: checked header, CRC-32C, and the records, without trusting any length.

Used by the broker to validate what it is sent, by tests and tools to read back. Any thread; one reader by one thread
at a time. Source: Kafka protocol guide, "Record Batch"; DefaultRecordBatch, DefaultRecord; LogValidator for what a
broker asks of the records.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from kafkaprod._core.queues.batch cimport BATCH_HEADER_BYTES, CRC_START, LOG_OVERHEAD
from kafkaprod._core.records.big_endian cimport get_i16, get_i32, get_i64
from kafkaprod._core.records.checksum cimport extend_crc
from kafkaprod._core.records.varint cimport get_varint, get_varlong

from collections import namedtuple

from kafkaprod.errors import CorruptDataError

Record = namedtuple("Record", ["offset", "timestamp", "key", "value", "headers"])
Record.__doc__ = "One record: headers are (str, bytes or None) pairs; timestamp in ms."

RecordScan = namedtuple(
    "RecordScan",
    ["max_timestamp", "offset_of_max_timestamp", "has_consecutive_offsets", "first_null_key", "first_early", "first_late"],
)
RecordScan.__doc__ = """What a broker asks of a batch's records.

max_timestamp and the offset of the first record that has it; whether offset deltas are 0, 1, 2, ...; the index of the
first record without a key, and of the first with a timestamp outside the bounds given; -1 where there is none.
"""

cdef tuple STATUS_TEXT = ("", "is cut off", "does not end where its length says", "has an impossible count or length")


cdef const char *_get_field(const char *at, const char *end, const char **data, Py_ssize_t *length) noexcept nogil:
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
        decompress: called as decompress(codec_id, data, limit) for compressed batches; `compression.decompress`.
        check_crc: verify the CRC now.
        limit: most bytes of records to decompress.

    Raises: CorruptDataError for a cut batch, another magic, an impossible length or count, a wrong CRC.
    """

    def __init__(self, data not None, Py_ssize_t position=0, decompress=None, bint check_crc=True,
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
        if self.codec_id == 0:
            self._records = p + BATCH_HEADER_BYTES
            self._records_size = self.size_bytes - BATCH_HEADER_BYTES
        else:
            self._records = NULL
            self._records_size = position       # until _open_records()

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

    cdef int _open_records(self) except -1:
        cdef Py_ssize_t position
        if self._records is not NULL:
            return 0
        if self._decompress is None:
            raise CorruptDataError(f"batch is compressed with codec {self.codec_id}, and no decompressor was given")
        position = self._records_size
        view = memoryview(self._buffer.obj).cast("B")[position + BATCH_HEADER_BYTES:position + self.size_bytes]
        self._records_object = bytes(self._decompress(self.codec_id, view, self._limit))
        self._records = PyBytes_AS_STRING(self._records_object)
        self._records_size = PyBytes_GET_SIZE(self._records_object)
        return 0

    def records(self):
        """All records as a list of Record. Raises CorruptDataError naming the first bad one."""
        cdef list out = []
        cdef ParsedRecord record
        cdef ReadStatus status
        cdef const char *at
        cdef const char *end
        cdef int32_t i
        self._open_records()
        at = self._records
        end = at + self._records_size
        for i in range(self.record_count):
            status = parse_record(at, end, &record)
            if status != READ_OK:
                raise CorruptDataError(f"record {i} of {self.record_count} {STATUS_TEXT[<int>status]}")
            out.append(Record(
                _wrapping_sum(self.base_offset, record.offset_delta),
                self.max_timestamp if self.has_log_append_time
                else _wrapping_sum(self.base_timestamp, record.timestamp_delta),
                None if record.key_length < 0 else record.key[:record.key_length],
                None if record.value_length < 0 else record.value[:record.value_length],
                _headers(&record, i),
            ))
            at = record.end
        if at != end:
            raise CorruptDataError(f"{end - at} bytes follow the last of {self.record_count} records")
        return out

    def scan(self, int64_t earliest=-0x7FFFFFFFFFFFFFFF, int64_t latest=0x7FFFFFFFFFFFFFFF):
        """Check every record without making objects of them.

        Args: earliest, latest: bounds of record timestamps in ms; -1 (none) is always inside.
        Returns: RecordScan. Raises: CorruptDataError naming the first bad record.
        """
        cdef ParsedRecord record
        cdef ReadStatus status = READ_OK
        cdef const char *at
        cdef const char *end
        cdef int32_t i = 0
        cdef int64_t timestamp
        cdef int64_t max_timestamp = -1
        cdef int64_t offset_of_max = -1
        cdef int32_t null_key = -1
        cdef int32_t early = -1
        cdef int32_t late = -1
        cdef bint consecutive = True
        self._open_records()
        at = self._records
        end = at + self._records_size
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
                if record.key_length < 0 and null_key < 0:
                    null_key = i
                if timestamp != -1 and timestamp < earliest and early < 0:
                    early = i
                if timestamp != -1 and timestamp > latest and late < 0:
                    late = i
                at = record.end
                i += 1
        if status != READ_OK:
            raise CorruptDataError(f"record {i} of {self.record_count} {STATUS_TEXT[<int>status]}")
        if at != end:
            raise CorruptDataError(f"{end - at} bytes follow the last of {self.record_count} records")
        return RecordScan(max_timestamp, offset_of_max, consecutive, null_key, early, late)


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
        at = _get_field(at, record.end, &value, &value_length)
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
