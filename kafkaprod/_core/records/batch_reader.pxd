"""Reading record batches of magic 2 that another program wrote: no length is trusted. See batch_reader.pyx."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from kafkaprod._core.records.record_view cimport RecordView


cdef enum ReadStatus:
    READ_OK = 0
    READ_CUT = 1                # a length runs past the end
    READ_BAD_LENGTH = 2         # a record does not end where its length says
    READ_BAD_COUNT = 3          # a negative count or length where none may be, or bytes behind the last record


cdef struct ParsedRecord:
    int64_t timestamp_delta
    int32_t offset_delta
    const char *key
    Py_ssize_t key_length       # -1: null
    const char *value
    Py_ssize_t value_length
    int32_t header_count
    const char *headers         # the first header, behind the count
    const char *end


cdef class RecordBatchReader:
    cdef readonly int64_t base_offset
    cdef readonly int32_t leader_epoch
    cdef readonly uint32_t crc
    cdef readonly int16_t attributes
    cdef readonly int32_t last_offset_delta
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence
    cdef readonly int32_t record_count
    cdef readonly Py_ssize_t size_bytes     # whole batch, header included
    cdef Py_buffer _buffer
    cdef bint _is_held
    cdef Py_ssize_t _position               # of the batch in the buffer
    cdef object _decompress
    cdef Py_ssize_t _limit

    cdef object _open_records(self, const char **at, const char **end)


cdef ReadStatus parse_record(const char *at, const char *end, ParsedRecord *record) noexcept nogil
