"""Rows of a text as views of Arrow's binary_view layout, which point into the text. The owner of a list frees `views`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memset


cdef enum:
    VIEW_BYTES = 16
    INLINE_BYTES = 12               # a row of at most so many bytes is in its view
    FIRST_CAPACITY = 1024
    MAX_TEXT_BYTES = 0x7FFFFFFF     # views have 32-bit offsets


cdef struct ViewList:
    char *views
    Py_ssize_t count
    Py_ssize_t capacity


cdef inline void put_view(char *view, const char *data, Py_ssize_t start, Py_ssize_t length) noexcept nogil:
    cdef int32_t number = <int32_t>length
    memset(view, 0, VIEW_BYTES)
    memcpy(view, &number, 4)
    if length <= INLINE_BYTES:
        memcpy(view + 4, data + start, length)
        return
    memcpy(view + 4, data + start, 4)
    number = <int32_t>start
    memcpy(view + 12, &number, 4)


cdef inline bint add_view(ViewList *rows, const char *data, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    """Append the row data[start .. end]; False if there is no memory."""
    cdef Py_ssize_t capacity
    cdef char *grown
    if rows.count == rows.capacity:
        capacity = rows.capacity * 2 if rows.capacity else FIRST_CAPACITY
        grown = <char *>realloc(rows.views, <size_t>(capacity * VIEW_BYTES))
        if grown is NULL:
            return False
        rows.views = grown
        rows.capacity = capacity
    put_view(rows.views + rows.count * VIEW_BYTES, data, start, end - start)
    rows.count += 1
    return True


cdef inline int hold_text(object data, Py_buffer *buffer) except -1:
    PyObject_GetBuffer(data, buffer, PyBUF_SIMPLE)
    if buffer.len > MAX_TEXT_BYTES:
        from kafkaprod.errors import InvalidRecordError
        size = buffer.len
        PyBuffer_Release(buffer)
        raise InvalidRecordError(f"text of {size} bytes is longer than the {MAX_TEXT_BYTES} that can be split at once")
    return 0
