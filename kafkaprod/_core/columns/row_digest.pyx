"""A digest of rows in their order, whatever calls they came in: five CRC-32C streams and the number of rows.

    keys, values   the bytes of all of them, one behind the other
    lengths        of key and value of each row, -1 for null: where one ends and the next one begins
    rest           the topic, with the number of the row from which on it counts; headers, with the number of their row
    places         timestamp and partition of each row that was given one, with the number of the row

Rows that lie one behind the other in memory, as those of columns do, are read as one piece: it takes a quarter less time.
Rows that differ by mistake have another digest; it is no signature.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t

from kafkaprod._core.columns.columns cimport Column, Headers, column_get
from kafkaprod._core.records.checksum cimport extend_crc
from kafkaprod._core.records.record_view cimport HeaderView

from kafkaprod.errors import InvalidRecordError

cdef enum:
    ROWS_OF_PIECE = 512
    BYTES_OF_RUN = 16384    # long enough for the checksum's fast way, and still in the cache

cdef struct Run:
    # Bytes of rows that lie one behind the other, and are not in their stream yet.
    const char *data
    Py_ssize_t size


@cython.final
cdef class RowDigest:
    """Takes rows; one thread at a time."""

    cdef uint32_t _keys
    cdef uint32_t _values
    cdef uint32_t _lengths
    cdef uint32_t _rest
    cdef uint32_t _places
    cdef bint _has_places
    cdef readonly int64_t rows
    cdef bytes _topic

    def __init__(self):
        """No rows yet."""
        self._topic = b""

    def add(self, str topic not None, Column value not None, Column key, Headers headers not None, Py_ssize_t count):
        """Take the first rows of columns.

        Args:
            topic: Where they go.
            value, key: Their bytes; key None: null in every row.
            headers: Those of each row.
            count: How many rows.

        Raises: InvalidRecordError: the columns have fewer rows.
        """
        cdef bytes name = topic.encode("utf-8", "surrogatepass")
        for rows in (value.row_count, -1 if key is None else key.row_count, headers.row_count):
            if 0 <= rows < count or count < 0:
                raise InvalidRecordError(f"{rows} rows, where {count} are due")
        if name != self._topic:
            self._topic = name
            self._rest = _numbered(self._rest, self.rows, name, len(name))
        with nogil:
            self._add_bytes(value, key, count)
            self._add_headers(headers, count)
        self.rows += count

    cdef void _add_bytes(self, Column value, Column key, Py_ssize_t count) noexcept nogil:
        cdef int32_t[2 * ROWS_OF_PIECE] lengths
        cdef Run keys = Run(NULL, 0)
        cdef Run values = Run(NULL, 0)
        cdef const char *data = NULL
        cdef Py_ssize_t length
        cdef Py_ssize_t i
        cdef Py_ssize_t filled = 0
        for i in range(count):
            length = -1
            if key is not None:
                column_get(&key.c, i, &data, &length)
                _add_row(&self._keys, &keys, data, length)
            lengths[filled] = <int32_t>length
            column_get(&value.c, i, &data, &length)
            _add_row(&self._values, &values, data, length)
            lengths[filled + 1] = <int32_t>length
            filled += 2
            if filled == 2 * ROWS_OF_PIECE:
                self._lengths = extend_crc(self._lengths, <const char *>lengths, sizeof(lengths))
                filled = 0
        self._lengths = extend_crc(self._lengths, <const char *>lengths, filled * sizeof(int32_t))
        self._keys = extend_crc(self._keys, keys.data, keys.size)
        self._values = extend_crc(self._values, values.data, values.size)

    cdef void _add_headers(self, Headers headers, Py_ssize_t count) noexcept nogil:
        cdef const HeaderView *views
        cdef Py_ssize_t first = 0
        cdef Py_ssize_t size = headers.c.constant_count
        cdef Py_ssize_t i
        cdef Py_ssize_t j
        if headers.c.offsets is NULL and size == 0:
            return
        for i in range(count):
            if headers.c.offsets is not NULL:
                first, size = headers.c.offsets[i], headers.c.offsets[i + 1] - headers.c.offsets[i]
            views = headers.c.headers + first
            for j in range(size):
                self._rest = _numbered(self._rest, self.rows + i, views[j].key, views[j].key_length)
                self._rest = _numbered(self._rest, self.rows + i, views[j].value, views[j].value_length)

    def add_places(self, const int64_t[::1] timestamps, const int32_t[::1] partitions, int32_t for_all, Py_ssize_t count):
        """Take the timestamps and partitions of the rows that `add` takes next.

        Args:
            timestamps: That of each row, negative where none was given; None: no row was given one.
            partitions: That of each row, negative where none was given; None: all have `for_all`.
            for_all: The partition of all rows; negative: none was given.
            count: How many rows.

        Raises: InvalidRecordError: the arrays have another length.
        """
        cdef int64_t[3] numbers
        cdef Py_ssize_t i
        for length in (count if timestamps is None else timestamps.shape[0],
                       count if partitions is None else partitions.shape[0]):
            if length != count:
                raise InvalidRecordError(f"{length} timestamps or partitions, where {count} are due")
        for i in range(count):
            numbers[0] = self.rows + i
            numbers[1] = -1 if timestamps is None else timestamps[i]
            numbers[2] = for_all if partitions is None else partitions[i]
            if numbers[1] >= 0 or numbers[2] >= 0:
                self._has_places = True
                self._places = extend_crc(self._places, <const char *>numbers, sizeof(numbers))

    def text(self):
        """The streams as 32 hexadecimal digits, and 8 more if a row was given a timestamp or a partition."""
        text = "".join(f"{stream:08x}" for stream in (self._keys, self._values, self._lengths, self._rest))
        return f"{text}{self._places:08x}" if self._has_places else text


cdef inline void _add_row(uint32_t *stream, Run *run, const char *data, Py_ssize_t length) noexcept nogil:
    """Lengthen a run by a row if it follows; else read the run, and begin one with the row."""
    if length <= 0:
        return
    if data == run.data + run.size and run.size < BYTES_OF_RUN:
        run.size += length
        return
    stream[0] = extend_crc(stream[0], run.data, run.size)
    run.data = data
    run.size = length


cdef inline uint32_t _numbered(uint32_t crc, int64_t row, const char *data, Py_ssize_t length) noexcept nogil:
    """Add a row's number, a length and as many bytes."""
    cdef int64_t[2] numbers
    numbers[0] = row
    numbers[1] = length
    crc = extend_crc(crc, <const char *>numbers, sizeof(numbers))
    return extend_crc(crc, data, length) if length > 0 else crc
