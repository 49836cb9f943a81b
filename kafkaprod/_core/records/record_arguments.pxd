"""Python arguments of one record as a RecordView: borrowed pointers, held buffers, and the errors for wrong types."""

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int64_t

from kafkaprod._core.records.record_view cimport HeaderView, RecordView


cdef bint has_byte_items(object data, const Py_buffer *buffer) except -1
cdef str kind_of_items(object data, const Py_buffer *buffer)


cdef class RecordArguments:
    """Reusable; one thread at a time. Pointers in the view live until clear()."""

    cdef RecordView view
    cdef Py_buffer *_buffers        # buffers held for arguments that are not exact bytes
    cdef Py_ssize_t _buffer_count
    cdef Py_ssize_t _buffer_capacity
    cdef HeaderView *_headers
    cdef Py_ssize_t _header_capacity
    cdef list _kept                 # objects whose memory the view points into

    cdef RecordView *fill(self, object key, object value, object headers, int64_t timestamp) except NULL
    cdef int set_headers(self, object headers) except -1
    cdef int _set_header(self, Py_ssize_t i, object header) except -1
    cdef int point_at(self, object data, str name, const char **pointer, Py_ssize_t *length) except -1
    cdef void clear(self) noexcept
