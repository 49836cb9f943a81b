"""One record to bytes, the Python face: sizes and encodings for tests, tools and error messages. Pure; any thread."""

from libc.stdlib cimport free, malloc

from kafkaprod._core.records.record_arguments cimport RecordArguments


def encode_record(key, value, headers=(), int64_t timestamp_delta=0, int64_t offset_delta=0):
    """Return one record's bytes as it stands in an uncompressed batch (no batch header).

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
    """Return the upper bound of a record's size in bytes in any batch; what limits are compared with."""
    cdef RecordArguments arguments = RecordArguments()
    cdef RecordView *r = arguments.fill(key, value, headers, 0)
    try:
        return record_size_bound(r)
    finally:
        arguments.clear()
