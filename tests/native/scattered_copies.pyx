"""The machine's own part in the cost of many partitions: a loop that does nothing but copy records to places at random."""

import time

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

cdef enum:
    PLACE_BYTES = 4096          # a slab that holds ten records
    RECORD_BYTES = 112          # 100-byte value, key, lengths and deltas
    RECORDS = 100_000


def ns_per_copy(int places):
    """Nanoseconds for each of RECORDS copies to the ends of so many places, each a place of its own in memory."""
    cdef char *memory = <char *>calloc(places, PLACE_BYTES)
    cdef int *ends = <int *>calloc(places, sizeof(int))
    cdef char[RECORD_BYTES] record
    cdef uint32_t random = 12345
    cdef int place
    cdef int i
    if memory is NULL or ends is NULL:
        free(memory)
        free(ends)
        raise MemoryError
    memset(memory, 1, <size_t>places * PLACE_BYTES)     # a page that was never written to costs more
    memset(record, 7, RECORD_BYTES)
    started = time.perf_counter_ns()
    with nogil:
        for i in range(RECORDS):
            random = random * 1664525 + 1013904223
            place = <int>((<unsigned long long>random * <unsigned long long>places) >> 32)
            memcpy(memory + <size_t>place * PLACE_BYTES + ends[place], record, RECORD_BYTES)
            ends[place] = (ends[place] + RECORD_BYTES) % (PLACE_BYTES - RECORD_BYTES)
    taken = time.perf_counter_ns() - started
    free(memory)
    free(ends)
    return taken / RECORDS
