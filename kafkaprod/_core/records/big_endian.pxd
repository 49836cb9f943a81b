"""Network byte order, unaligned."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "kafkaprod/_core/machine/machine.h" nogil:
    uint16_t be16 "kp_be16"(uint16_t x)
    uint32_t be32 "kp_be32"(uint32_t x)
    uint64_t be64 "kp_be64"(uint64_t x)


cdef inline char *put_i16(char *p, int16_t value) noexcept nogil:
    cdef uint16_t u = be16(<uint16_t>value)
    memcpy(p, &u, 2)
    return p + 2


cdef inline char *put_i32(char *p, int32_t value) noexcept nogil:
    cdef uint32_t u = be32(<uint32_t>value)
    memcpy(p, &u, 4)
    return p + 4


cdef inline char *put_i64(char *p, int64_t value) noexcept nogil:
    cdef uint64_t u = be64(<uint64_t>value)
    memcpy(p, &u, 8)
    return p + 8


cdef inline int16_t get_i16(const char *p) noexcept nogil:
    cdef uint16_t u
    memcpy(&u, p, 2)
    return <int16_t>be16(u)


cdef inline int32_t get_i32(const char *p) noexcept nogil:
    cdef uint32_t u
    memcpy(&u, p, 4)
    return <int32_t>be32(u)


cdef inline int64_t get_i64(const char *p) noexcept nogil:
    cdef uint64_t u
    memcpy(&u, p, 8)
    return <int64_t>be64(u)
