"""The places of many rows at once, read and checked before the rows are used. See row_places.pyx."""

from libc.stdint cimport int32_t

from kafkaprod._core.columns.columns cimport ByteColumn, Place


cdef enum:
    MOST_PLACES = 256           # rows a call; their places stay in the first-level cache


cdef const Place *row_places(const ByteColumn *c, Py_ssize_t first, Py_ssize_t count, Place *room) noexcept nogil
cdef const Place *ordered_places(const ByteColumn *c, Py_ssize_t first, const int32_t *order, Py_ssize_t count,
                                 Place *room) noexcept nogil
