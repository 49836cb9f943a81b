"""Python faces of the core's C functions, for tests: no program needs them."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from kafkaprod._core.machine.clock cimport monotonic_us
from kafkaprod._core.machine.lock cimport publish32
from kafkaprod._core.machine.waking cimport Wakeup
from kafkaprod._core.queues.buffer_pool cimport BufferPool
from kafkaprod._core.queues.slabs cimport SLAB_OWNED, Slab
from kafkaprod._core.queues.waiting_line cimport Account
from kafkaprod._core.records.checksum cimport extend_crc_by_table, extend_crc_unfolded, join_crc
from kafkaprod._core.records.murmur2 cimport fast_modulo, murmur2, partition_for_key
from kafkaprod._core.records.record_arguments cimport RecordArguments
from kafkaprod._core.records.record_view cimport NODE_EXHAUSTED, AppendStatus, RecordView
from kafkaprod._core.records.record_writer cimport record_body_size, record_size_bound, write_record
from kafkaprod._core.records.varint cimport get_varlong, put_varint, varint_size
from kafkaprod._core.text.number_text cimport (
    MOST_DECIMAL_TEXT,
    MOST_FLOAT_TEXT,
    write_decimal,
    write_double,
    write_float,
)

from kafkaprod.errors import CorruptDataError, IllegalStateError, InvalidRecordError


cdef const char *_start(const unsigned char[::1] data) noexcept:
    cdef const char *start = NULL
    if data.shape[0] > 0:
        start = <const char *>&data[0]
    return start


def read_monotonic_us():
    """Return the core's monotonic time in microseconds."""
    return monotonic_us()


def take_wakeup(Wakeup wakeup not None, int[::1] has_begun not None):
    """Take a wake-up without the GIL, as the poller does; note when it begins."""
    cdef int *begun = &has_begun[0]
    with nogil:
        publish32(begun, 1)
        wakeup.take()


def hash_key(const unsigned char[::1] key not None):
    """Return murmur2 of the key as the signed 32-bit integer that the Java client computes."""
    return <int32_t>murmur2(_start(key), key.shape[0])


def partition_of_key(const unsigned char[::1] key not None, int32_t partition_count):
    """Return the partition that Kafka's default partitioner gives a key that is not null."""
    return partition_for_key(_start(key), key.shape[0], fast_modulo(partition_count))


def encode_varint(int64_t value):
    """Zigzag-encode an int64; return 1 to 10 bytes."""
    cdef char buffer[10]
    cdef char *end = put_varint(buffer, value)
    return buffer[:end - buffer]


def size_of_varint(int64_t value):
    """Return how many bytes `encode_varint(value)` has."""
    return varint_size(value)


def decode_varint(const unsigned char[::1] data not None, Py_ssize_t position=0):
    """Read a zigzag varlong at `position`; return (value, position after it).

    Raises CorruptDataError if the bytes end inside it or it is longer than 10 bytes.
    """
    cdef int64_t value = 0
    cdef const char *start = _start(data)
    cdef const char *after
    if not 0 <= position < data.shape[0]:
        raise CorruptDataError(f"varint at position {position} is outside the {data.shape[0]} bytes given")
    after = get_varlong(start + position, start + data.shape[0], &value)
    if after is NULL:
        raise CorruptDataError(f"varint at position {position} is cut or longer than 10 bytes")
    return value, after - start


def checksum_by_table(const unsigned char[::1] data not None, uint32_t crc=0):
    """Return the CRC-32C as it is computed on a machine that has no instruction for it."""
    return extend_crc_by_table(crc, _start(data), data.shape[0])


def unfolded_checksum(const unsigned char[::1] data not None, uint32_t crc=0):
    """Return the CRC-32C as it is computed on a machine that has an instruction for it, but none that multiplies."""
    return extend_crc_unfolded(crc, _start(data), data.shape[0])


def joined_checksum(uint32_t crc, uint32_t following, Py_ssize_t length):
    """Return the CRC-32C of two stretches of bytes, the second of which has `length`, from those of each."""
    return join_crc(crc, following, length)


def encode_record(key, value, headers=(), int64_t timestamp_delta=0, int64_t offset_delta=0):
    """Return one record's bytes as in an uncompressed batch (no batch header).

    Args: key, value: bytes-like or None. headers: pairs of (str, bytes-like or None).
    Raises InvalidRecordError for a wrong type.
    """
    cdef RecordArguments arguments = RecordArguments()
    cdef RecordView *r = arguments.fill(key, value, headers, 0)
    cdef Py_ssize_t body = record_body_size(r, timestamp_delta, offset_delta)
    cdef Py_ssize_t size = varint_size(body) + body
    cdef char *out = <char *>malloc(size)
    if out is NULL:
        raise MemoryError
    try:
        write_record(out, r, body, timestamp_delta, offset_delta)
        return out[:size]
    finally:
        free(out)
        arguments.clear()


def size_bound(key, value, headers=()):
    """Return the upper bound of a record's size in bytes in any batch; limits are compared with it."""
    cdef RecordArguments arguments = RecordArguments()
    cdef RecordView *r = arguments.fill(key, value, headers, 0)
    try:
        return record_size_bound(r)
    finally:
        arguments.clear()


def float_text(double number):
    """Return the text of a double."""
    cdef char[MOST_FLOAT_TEXT] text
    return text[:write_double(text, number) - text].decode()


def float32_text(float number):
    """Return the text of a float."""
    cdef char[MOST_FLOAT_TEXT] text
    return text[:write_float(text, number) - text].decode()


def decimal_text(bytes number not None, int32_t scale):
    """Return the text of a decimal of 4, 8 or 16 bytes, little endian."""
    cdef char[MOST_DECIMAL_TEXT] text
    cdef const uint8_t *start = <const uint8_t *><const char *>number
    return text[:write_decimal(text, start, <int32_t>len(number), scale) - text].decode()


cdef class SlabLease:
    """One slab of a pool, held from Python. Not thread-safe itself."""

    cdef BufferPool _pool
    cdef Account *_account
    cdef Slab *_slab
    cdef uint32_t _generation

    def __cinit__(self, BufferPool pool not None, Py_ssize_t need, int64_t ticket=0, int32_t node=-1):
        """Take a slab of at least `need` bytes for a node. Raises BufferError if there is no room."""
        if need < 0:
            raise InvalidRecordError(f"need={need} bytes is negative")
        cdef AppendStatus status
        self._pool = pool
        self._account = pool.account_of(node)
        with nogil:
            self._slab = pool.try_acquire(self._account, need, 0, ticket, &status)
        if self._slab is NULL and status == NODE_EXHAUSTED:
            raise BufferError(f"no room for {need} bytes of node {node}: {pool.shares()}")
        if self._slab is NULL:
            raise BufferError(f"no room for {need} bytes: {pool.in_use} of {pool.capacity} in use")
        self._generation = self._slab.generation

    def __dealloc__(self):
        if self._slab is not NULL and self._slab.state == SLAB_OWNED and self._slab.generation == self._generation:
            self._pool.release_chain(self._account, self._slab)

    @property
    def size(self):
        """Payload bytes."""
        return self._slab.size

    def fill(self, unsigned char byte):
        """Write `byte` all over the slab. Raises IllegalStateError after release."""
        self._check()
        memset(self._slab.data, byte, <size_t>self._slab.size)

    def holds_only(self, unsigned char byte):
        """Return whether every byte is still `byte`."""
        cdef Py_ssize_t i
        self._check()
        for i in range(self._slab.size):
            if <unsigned char>self._slab.data[i] != byte:
                return False
        return True

    def release(self):
        """Give the slab back. Raises IllegalStateError if that was done before."""
        self._check()
        cdef Slab *slab = self._slab
        self._slab = NULL
        self._pool.release_chain(self._account, slab)

    cdef int _check(self) except -1:
        if self._slab is NULL or self._slab.generation != self._generation:
            raise IllegalStateError("the slab was released")
        return 0
