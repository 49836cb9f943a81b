"""Zigzag varints: reading, and the Python face used by tests and tools. Pure; any thread, no GIL needed inside."""

from kafkaprod.errors import CorruptDataError


cdef const char *get_uvarint(const char *p, const char *end, int max_bytes, uint64_t *value) noexcept nogil:
    """Read an unsigned varint of at most `max_bytes`; return the position after it, NULL if it is cut or too long."""
    cdef uint64_t u = 0
    cdef uint64_t group
    cdef int shift = 0
    while p < end and shift < 7 * max_bytes:
        group = <unsigned char>p[0]
        p += 1
        u |= (group & 0x7F) << shift
        if group < 0x80:
            value[0] = u
            return p
        shift += 7
    return NULL


cdef const char *get_varint(const char *p, const char *end, int32_t *value) noexcept nogil:
    cdef uint64_t u = 0
    p = get_uvarint(p, end, 5, &u)
    value[0] = <int32_t>unzigzag(<uint32_t>u)
    return p


cdef const char *get_varlong(const char *p, const char *end, int64_t *value) noexcept nogil:
    cdef uint64_t u = 0
    p = get_uvarint(p, end, 10, &u)
    value[0] = unzigzag(u)
    return p


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
    cdef const char *start
    cdef const char *after
    if not 0 <= position < data.shape[0]:
        raise CorruptDataError(f"varint at position {position} is outside the {data.shape[0]} bytes given")
    start = <const char *>&data[0]
    after = get_varlong(start + position, start + data.shape[0], &value)
    if after is NULL:
        raise CorruptDataError(f"varint at position {position} is cut or longer than 10 bytes")
    return value, after - start
