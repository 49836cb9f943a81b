"""A growing buffer of text that nogil writers append to. Whoever made it frees `data`."""

from libc.stdlib cimport realloc
from libc.string cimport memcpy


cdef struct Output:
    char *data
    Py_ssize_t size
    Py_ssize_t capacity
    bint has_bad_place      # a value's place was outside of its buffer


cdef inline char *reserve(Output *out, Py_ssize_t count) noexcept nogil:
    """Where the next `count` bytes may be written; NULL without memory. The writer advances `size` itself."""
    cdef Py_ssize_t capacity
    cdef char *grown
    if out.capacity - out.size < count:
        capacity = 2 * out.capacity + count + 4096
        grown = <char *>realloc(out.data, <size_t>capacity)
        if grown is NULL:
            return NULL
        out.data = grown
        out.capacity = capacity
    return out.data + out.size


cdef inline int append_bytes(Output *out, const char *data, Py_ssize_t count) noexcept nogil:
    cdef char *p = reserve(out, count)
    if p is NULL:
        return -1
    memcpy(p, data, <size_t>count)
    out.size += count
    return 0
