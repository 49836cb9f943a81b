"""Kafka's key hash and the partition it leads to.

Source: org.apache.kafka.common.utils.Utils.murmur2 (MurmurHash2, seed 0x9747b28c, 32 bit).
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "kafkaprod/_core/machine/machine.h" nogil:
    uint32_t little32 "kp_little32"(uint32_t x)
    uint64_t high_product "kp_high_product"(uint64_t a, uint64_t b)


cdef struct FastModulo:
    uint64_t magic
    uint32_t divisor


cdef inline FastModulo fast_modulo(int32_t divisor) noexcept nogil:
    cdef FastModulo modulo
    modulo.divisor = <uint32_t>divisor
    modulo.magic = (~<uint64_t>0) // <uint64_t>divisor + 1
    return modulo


cdef inline int32_t modulo_of(uint32_t x, FastModulo modulo) noexcept nogil:
    """x % divisor by two multiplications. Source: D. Lemire et al., "Faster Remainder by Direct Computation", 2019."""
    return <int32_t>high_product(modulo.magic * x, modulo.divisor)


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


cdef inline int32_t partition_for_key(const char *key, Py_ssize_t length, FastModulo count) noexcept nogil:
    """The partition of a key that is not null: positive(murmur2) % count, over all partitions, available or not."""
    return modulo_of(murmur2(key, length) & <uint32_t>0x7FFFFFFF, count)
