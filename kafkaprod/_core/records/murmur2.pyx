"""Kafka's key hash, the Python face. Pure; any thread."""

from kafkaprod.errors import InvalidRecordError


cdef const char *_start(const unsigned char[::1] key) noexcept:
    cdef const char *start = NULL
    if key.shape[0] > 0:
        start = <const char *>&key[0]
    return start


def hash_key(const unsigned char[::1] key not None):
    """Return murmur2 of the key as the signed 32-bit integer that the Java client computes."""
    return <int32_t>murmur2(_start(key), key.shape[0])


def partition_of_key(const unsigned char[::1] key not None, int32_t partition_count):
    """Return the partition that Kafka's default partitioner gives a key that is not null.

    Raises InvalidRecordError if partition_count < 1.
    """
    if partition_count < 1:
        raise InvalidRecordError(f"partition_count must be at least 1, not {partition_count}")
    return partition_for_key(_start(key), key.shape[0], fast_modulo(partition_count))
