"""Kafka's key hash. Source: org.apache.kafka.common.utils.Utils.murmur2 (MurmurHash2, seed 0x9747b28c, 32 bit)."""

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy

cdef extern from * nogil:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define kp_little32(x) __builtin_bswap32(x)
    #else
    #define kp_little32(x) (x)
    #endif
    """
    uint32_t little32 "kp_little32"(uint32_t x)


cdef inline uint32_t murmur2(const char *data, Py_ssize_t length) noexcept nogil:
    cdef uint32_t m = 0x5bd1e995
    cdef uint32_t h = <uint32_t>0x9747b28c ^ <uint32_t>length
    cdef uint32_t k = 0
    cdef Py_ssize_t tail
    while length >= 4:
        memcpy(&k, data, 4)
        k = little32(k) * m
        k ^= k >> 24
        h = h * m ^ k * m
        data += 4
        length -= 4
    if length > 0:
        tail = length
        while tail > 0:
            tail -= 1
            h ^= <uint32_t>(<uint8_t>data[tail]) << (8 * tail)
        h *= m
    h ^= h >> 13
    h *= m
    return h ^ (h >> 15)


cdef inline int32_t partition_for_key(const char *key, Py_ssize_t length, int32_t partition_count) noexcept nogil:
    """The partition of a key that is not null: positive(murmur2) % count, over all partitions, available or not."""
    return <int32_t>((murmur2(key, length) & 0x7FFFFFFF) % <uint32_t>partition_count)
