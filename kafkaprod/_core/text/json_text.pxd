"""JSON strings, base64, dates and times as text."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkaprod._core.text.text_output cimport Output

cdef enum:
    MOST_TIME_TEXT = 48

cdef int append_string(Output *out, const char *text, Py_ssize_t size) noexcept nogil
cdef Py_ssize_t sequence_length(const uint8_t *text, Py_ssize_t size) noexcept nogil
cdef int append_base64(Output *out, const char *data, Py_ssize_t size) noexcept nogil
cdef char *write_date(char *p, int64_t days) noexcept nogil
cdef char *write_timestamp(char *p, int64_t time, int64_t units_per_second, bint has_zone, int64_t offset_s) noexcept nogil
cdef char *write_time_of_day(char *p, int64_t time, int64_t units_per_second) noexcept nogil
