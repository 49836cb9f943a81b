"""Zigzag varints. Source: Kafka protocol guide "Record Batch"; Protocol Buffers encoding, signed integers.

| value range (zigzag)  | bytes |
|-----------------------|-------|
| -64 .. 63             | 1     |
| -8192 .. 8191         | 2     |
| int32                 | <= 5  |
| int64                 | <= 10 |
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef extern from * nogil:
    int clzll "__builtin_clzll"(unsigned long long x)


cdef inline uint64_t zigzag(int64_t n) noexcept nogil:
    return (<uint64_t>n << 1) ^ <uint64_t>(n >> 63)


cdef inline int64_t unzigzag(uint64_t u) noexcept nogil:
    return <int64_t>((u >> 1) ^ (~(u & 1) + 1))


cdef inline Py_ssize_t uvarint_size(uint64_t u) noexcept nogil:
    if u < 0x80:
        return 1
    if u < 0x4000:          # lengths and deltas of nearly all records: two branches that are foreseen
        return 2
    # (9 * bits + 64) / 64 equals ceil(bits / 7) for 1 <= bits <= 64, without a division.
    return (9 * (64 - clzll(u | 1)) + 64) >> 6


cdef inline Py_ssize_t varint_size(int64_t n) noexcept nogil:
    return uvarint_size(zigzag(n))


cdef inline char *put_uvarint(char *p, uint64_t u) noexcept nogil:
    """Write `u`, return the position after it. The caller has made room: uvarint_size(u) bytes."""
    if u < 0x80:
        p[0] = <char>u
        return p + 1
    if u < 0x4000:
        p[0] = <char>(u | 0x80)
        p[1] = <char>(u >> 7)
        return p + 2
    while u >= 0x80:
        p[0] = <char>(u | 0x80)
        p += 1
        u >>= 7
    p[0] = <char>u
    return p + 1


cdef inline char *put_varint(char *p, int64_t n) noexcept nogil:
    return put_uvarint(p, zigzag(n))


cdef const char *get_uvarint(const char *p, const char *end, int max_bytes, uint64_t *value) noexcept nogil
cdef const char *get_long_varint(const char *p, const char *end, int32_t *value) noexcept nogil
cdef const char *get_long_varlong(const char *p, const char *end, int64_t *value) noexcept nogil


cdef inline const char *get_short_uvarint(const char *p, const char *end, uint32_t *value) noexcept nogil:
    """Read an unsigned varint of one or two bytes; NULL if it is longer, or cut."""
    cdef uint32_t first, second
    if p >= end:
        return NULL
    first = <unsigned char>p[0]
    if first < 0x80:
        value[0] = first
        return p + 1
    if end - p < 2:
        return NULL
    second = <unsigned char>p[1]
    if second >= 0x80:
        return NULL
    value[0] = (first & 0x7F) | (second << 7)
    return p + 2


cdef inline const char *get_varint(const char *p, const char *end, int32_t *value) noexcept nogil:
    """Read an int32; return the position after it, NULL if it is cut or too long. `p` is at most `end`."""
    # Lengths and deltas of nearly all records are short: without a call they cost a third.
    cdef uint32_t u = 0
    cdef const char *after = get_short_uvarint(p, end, &u)
    if after is NULL:
        return get_long_varint(p, end, value)
    value[0] = <int32_t>unzigzag(u)
    return after


cdef inline const char *get_varlong(const char *p, const char *end, int64_t *value) noexcept nogil:
    """Read an int64, as `get_varint`."""
    cdef uint32_t u = 0
    cdef const char *after = get_short_uvarint(p, end, &u)
    if after is NULL:
        return get_long_varlong(p, end, value)
    value[0] = unzigzag(u)
    return after
