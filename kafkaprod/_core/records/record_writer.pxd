"""One record to bytes: size first, then write. Inline because it is the innermost loop of every append.

| field          | encoding                                                    |
|----------------|-------------------------------------------------------------|
| length         | varint, bytes of everything after it                        |
| attributes     | int8, 0                                                     |
| timestampDelta | varlong, to the batch's base timestamp                      |
| offsetDelta    | varint, the record's index in the batch                     |
| key, value     | varint length (-1: null), bytes                             |
| headers        | varint count, then per header: varint length, UTF-8 key,    |
|                | varint length (-1: null), value bytes                       |

Source: Kafka protocol guide, "Record Batch", magic 2; KIP-98.
"""

from libc.stdint cimport int64_t

from kafkaprod._core.records.record_view cimport HeaderView, RecordView
from kafkaprod._core.records.varint cimport put_varint, put_uvarint, uvarint_size, varint_size

cdef enum:
    # length 5 + attributes 1 + timestampDelta 10 + offsetDelta 5: what a record needs besides key, value and headers,
    # whatever its deltas are.
    RECORD_OVERHEAD_BOUND = 21


cdef inline Py_ssize_t field_size(Py_ssize_t length) noexcept nogil:
    """Size of a nullable byte field: its varint length and its bytes."""
    return 1 if length < 0 else uvarint_size(<unsigned long long>length << 1) + length


cdef inline Py_ssize_t record_body_size(const RecordView *r, int64_t timestamp_delta, int64_t offset_delta) noexcept nogil:
    return (1 + varint_size(timestamp_delta) + uvarint_size(<unsigned long long>offset_delta << 1)
            + field_size(r.key_length) + field_size(r.value_length) + r.headers_size)


cdef inline Py_ssize_t record_size_bound(const RecordView *r) noexcept nogil:
    """Upper bound of the record's size in any batch, bytes."""
    return RECORD_OVERHEAD_BOUND + field_size(r.key_length) + field_size(r.value_length) + r.headers_size


cdef extern from "kafkaprod/_core/machine/machine.h":
    # memcpy that does not call for the keys and values of most records.
    void copy_bytes "kp_copy"(char *to, const char *source, Py_ssize_t length) noexcept nogil


cdef inline char *put_field(char *p, const char *data, Py_ssize_t length) noexcept nogil:
    if length < 0:
        p[0] = 1
        return p + 1
    p = put_uvarint(p, <unsigned long long>length << 1)
    copy_bytes(p, data, length)
    return p + length


cdef inline char *write_record(char *p, const RecordView *r, Py_ssize_t body_size, int64_t timestamp_delta,
                               int64_t offset_delta) noexcept nogil:
    """Write one record, return the position after it. The caller has made room: varint_size(body_size) + body_size."""
    cdef Py_ssize_t i
    p = put_uvarint(p, <unsigned long long>body_size << 1)
    p[0] = 0
    p = put_varint(p + 1, timestamp_delta)
    p = put_uvarint(p, <unsigned long long>offset_delta << 1)
    p = put_field(p, r.key, r.key_length)
    p = put_field(p, r.value, r.value_length)
    p = put_uvarint(p, <unsigned long long>r.header_count << 1)
    for i in range(r.header_count):
        p = put_field(p, r.headers[i].key, r.headers[i].key_length)
        p = put_field(p, r.headers[i].value, r.headers[i].value_length)
    return p


cdef inline Py_ssize_t headers_size(const HeaderView *headers, Py_ssize_t count) noexcept nogil:
    """Bytes of the header section, its count included."""
    cdef Py_ssize_t size = uvarint_size(<unsigned long long>count << 1)
    cdef Py_ssize_t i
    for i in range(count):
        size += field_size(headers[i].key_length) + field_size(headers[i].value_length)
    return size
