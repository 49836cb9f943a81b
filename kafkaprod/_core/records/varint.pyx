"""Read zigzag varints. Pure; any thread, no GIL needed."""


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


cdef const char *get_long_varint(const char *p, const char *end, int32_t *value) noexcept nogil:
    cdef uint64_t u = 0
    p = get_uvarint(p, end, 5, &u)
    value[0] = <int32_t>unzigzag(<uint32_t>u)
    return p


cdef const char *get_long_varlong(const char *p, const char *end, int64_t *value) noexcept nogil:
    cdef uint64_t u = 0
    p = get_uvarint(p, end, 10, &u)
    value[0] = unzigzag(u)
    return p
