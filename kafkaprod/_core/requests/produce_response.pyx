"""The usual Produce response, everything written: settled in one go without an object per partition.

Anything else (an error code, a partition missing, unknown or repeated, damage) is left untouched for the declared
message `protocol.messages.produce` and the sender to judge. Sender thread only.

| versions | per partition behind the index (int32)                                                                  |
|----------|----------------------------------------------------------------------------------------------------------|
| 3-4      | error i16, base offset i64, log append time i64                                                          |
| 5-7      | + log start offset i64                                                                                   |
| 8        | + record errors [batch index i32, message nullable STR], error message nullable STR                       |
| 9-12     | compact encodings, tag sections                                                                          |
| 13       | topic id instead of name                                                                                 |

Source: Kafka protocol guide, Produce (key 0).
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from kafkaprod._core.queues.topic_queues cimport TopicQueues
from kafkaprod._core.queues.batch cimport SUCCEEDED, Batch, load_batch, prefetch_batch
from kafkaprod._core.records.big_endian cimport get_i16, get_i32, get_i64
from kafkaprod._core.machine.prefetch cimport prefetch_write
from kafkaprod._core.requests.produce_request cimport ProduceRequest
from kafkaprod._core.requests.settlement cimport finish_batch
from kafkaprod._core.records.varint cimport get_uvarint


cdef enum:
    AHEAD = 4               # batches between prefetching memory and settling what is there


cdef struct Cursor:
    const char *at
    const char *end
    bint flexible
    bint is_bad             # a length ran past the end; nothing read after that means anything


cdef struct Written:
    int64_t base_offset
    int64_t log_append_time
    bint is_set


def settle_all(ProduceRequest request not None, body not None, int version):
    """Complete every batch of the request if the response says that all were written.

    Args: body: the response behind its header, for `version` 3 to 13.
    Returns: the throttle time in ms; None if the response is anything but plain success: nothing was settled then.
    """
    cdef Py_buffer buffer
    cdef Written *written
    cdef Py_ssize_t i
    cdef int32_t throttle_ms = 0
    cdef Batch *b
    PyObject_GetBuffer(body, &buffer, PyBUF_SIMPLE)
    written = <Written *>malloc(<size_t>request.batch_count * sizeof(Written))
    try:
        if written is NULL:
            raise MemoryError
        for i in range(request.batch_count):
            written[i].is_set = False
        if not _read(request, <const char *>buffer.buf, buffer.len, version, written, &throttle_ms):
            return None
        for i in range(request.batch_count):
            if i + 3 * AHEAD < request.batch_count:
                prefetch_batch(request.entries[i + 3 * AHEAD].batch)
                b = request.entries[i + 2 * AHEAD].batch
                prefetch_write(b.partition)
                prefetch_write(b.completion)
                prefetch_write(load_batch(&b.older))
                prefetch_write(load_batch(&b.newer))
            b = request.entries[i].batch
            finish_batch(request.accumulator, b, SUCCEEDED, written[i].base_offset, written[i].log_append_time, None, None)
        return throttle_ms
    finally:
        free(written)
        PyBuffer_Release(&buffer)


cdef bint _read(ProduceRequest request, const char *data, Py_ssize_t size, int version, Written *written,
                int32_t *throttle_ms) except -1:
    """Read the whole response; True if it says of each batch once that it was written, and nothing else."""
    cdef Cursor c
    cdef Py_ssize_t topic_count
    cdef Py_ssize_t partition_count
    cdef Py_ssize_t first = 0
    cdef Py_ssize_t found = 0
    cdef Py_ssize_t hint
    c.at = data
    c.end = data + size
    c.flexible = version >= 9
    c.is_bad = False
    topic_count = _count(&c)
    if topic_count < 0:
        return False
    while topic_count > 0 and not c.is_bad:
        topic_count -= 1
        first = _find_topic(request, &c, version, first)
        partition_count = _count(&c)
        if first < 0 or partition_count < 0 or c.is_bad:
            return False
        hint = first
        while partition_count > 0:
            partition_count -= 1
            hint = _read_partition(request, &c, version, first, hint, written)
            if hint < 0:
                return False
            found += 1
        _skip_empty_tags(&c)
    if not _has(&c, 4):
        return False
    throttle_ms[0] = get_i32(c.at)
    c.at += 4
    _skip_empty_tags(&c)
    return not c.is_bad and c.at == c.end and found == request.batch_count


cdef Py_ssize_t _find_topic(ProduceRequest request, Cursor *c, int version, Py_ssize_t hint) except -2:
    """Index of the topic's first batch in the request; -1 if the response names a topic that is not in it."""
    cdef const char *name
    cdef Py_ssize_t length
    cdef Py_ssize_t i
    cdef Py_ssize_t tries
    cdef TopicQueues topic
    if version >= 13:
        length = 16
    elif c.flexible:
        length = _count(c)      # strings and arrays start alike in compact encoding
    elif _has(c, 2):
        length = get_i16(c.at)
        c.at += 2
    else:
        return -1
    if length < 0 or not _has(c, length):
        return -1
    name = c.at
    c.at += length
    for tries in range(request.batch_count):
        # Topics mostly come in the order of the request: start where the last one was found.
        i = (tries + hint) % request.batch_count
        if i > 0 and request.entries[i].topic_index == request.entries[i - 1].topic_index:
            continue
        topic = request.accumulator.topic_list[request.entries[i].topic_index]
        expected = topic.topic_id if version >= 13 else topic.name_utf8
        if expected is not None and len(expected) == length and memcmp(<const char *><bytes>expected, name, length) == 0:
            return i
    return -1


cdef Py_ssize_t _read_partition(ProduceRequest request, Cursor *c, int version, Py_ssize_t first, Py_ssize_t hint,
                                Written *written) noexcept nogil:
    """Read one partition's outcome; the index behind its batch, or -1 if it is not plain success for a batch of the request."""
    cdef int32_t partition
    cdef Py_ssize_t i = hint
    cdef Py_ssize_t low
    cdef Py_ssize_t high
    cdef int32_t topic_index = request.entries[first].topic_index
    if not _has(c, 30 if version >= 5 else 22):
        return -1
    partition = get_i32(c.at)
    if get_i16(c.at + 4) != 0:
        return -1
    if i >= request.batch_count or request.entries[i].partition != partition \
            or request.entries[i].topic_index != topic_index:
        low = first
        high = request.batch_count
        while low < high:
            i = (low + high) // 2
            if request.entries[i].topic_index > topic_index or request.entries[i].partition >= partition:
                high = i
            else:
                low = i + 1
        i = low
        if i >= request.batch_count or request.entries[i].partition != partition \
                or request.entries[i].topic_index != topic_index:
            return -1
    if written[i].is_set:
        return -1
    written[i].is_set = True
    written[i].base_offset = get_i64(c.at + 6)
    written[i].log_append_time = get_i64(c.at + 14)
    c.at += 30 if version >= 5 else 22
    if version >= 8 and (_count(c) != 0 or not _is_null_string(c)):
        return -1
    _skip_empty_tags(c)
    return -1 if c.is_bad else i + 1


cdef inline bint _has(Cursor *c, Py_ssize_t size) noexcept nogil:
    if c.end - c.at < size:
        c.is_bad = True
    return not c.is_bad


cdef Py_ssize_t _count(Cursor *c) noexcept nogil:
    """An array's count, or in compact encoding a string's length too; -1 for null."""
    cdef uint64_t u = 0
    cdef const char *after
    if c.flexible:
        after = get_uvarint(c.at, c.end, 5, &u)
        if after is NULL:
            c.is_bad = True
            return -1
        c.at = after
        return <Py_ssize_t>u - 1
    return _fixed_count(c)


cdef Py_ssize_t _fixed_count(Cursor *c) noexcept nogil:
    if not _has(c, 4):
        return -1
    c.at += 4
    return get_i32(c.at - 4)


cdef bint _is_null_string(Cursor *c) noexcept nogil:
    """Read the length of a string; True if that is all of it, as it is for the error message of a success."""
    if c.flexible:
        return _count(c) == -1
    if not _has(c, 2):
        return False
    c.at += 2
    return get_i16(c.at - 2) == -1


cdef void _skip_empty_tags(Cursor *c) noexcept nogil:
    """Skip a tag section; one that holds anything makes the response unusual."""
    if not c.flexible:
        return
    if not _has(c, 1) or c.at[0] != 0:
        c.is_bad = True
        return
    c.at += 1
