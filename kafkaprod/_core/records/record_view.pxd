"""Structs and enums that the modules of the core share. Pointers are borrowed; nothing here owns memory."""

from libc.stdint cimport int32_t, int64_t


cdef enum:
    NULL_LENGTH = -1            # the length of a null key, value or header value


cdef struct HeaderView:
    const char *key             # UTF-8, never NULL
    Py_ssize_t key_length
    const char *value
    Py_ssize_t value_length     # NULL_LENGTH: null value


cdef struct RecordView:
    const char *key
    Py_ssize_t key_length       # NULL_LENGTH: null key
    const char *value
    Py_ssize_t value_length     # NULL_LENGTH: null value
    const HeaderView *headers
    Py_ssize_t header_count
    Py_ssize_t headers_size     # bytes of the header section, its count included: record_writer.headers_size()
    int64_t timestamp           # ms since the epoch


cdef enum AppendStatus:
    APPENDED = 0
    POOL_EXHAUSTED = 1          # nothing written: wait for memory
    OUT_OF_MEMORY = 2           # nothing written: the pool has room, but the system has no memory
    BATCH_FULL = 3              # nothing written: close this batch and open another
    NODE_EXHAUSTED = 4          # nothing written: the pool has room, but the partition's node may hold no more of it


cdef enum:
    # What an append did besides writing; bits.
    EVENT_NEW_BATCH = 1
    EVENT_BATCH_FULL = 2
    EVENT_SHORT_LINGER = 4      # a new batch that lingers less than the producer's others
