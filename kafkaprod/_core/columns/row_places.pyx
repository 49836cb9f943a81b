"""Pointers and lengths of up to MOST_PLACES rows of a column, so that the loop over the rows knows nothing of layouts.

A column was checked when it was made, but its offsets and views are memory of the caller, which another thread may change
while the GIL is released. So they are copied first and the copies are checked: nothing can change between check and use.
The copies of consecutive offsets are checked without branches, several at a time; only if that finds something wrong are the
rows looked at one by one. A row that no longer lies within the data comes out as null.
"""

from libc.stdint cimport int64_t, uint32_t

from kafkaprod._core.columns.columns cimport CONSTANT, NULLS, OFFSETS32, OFFSETS64, PLACES, column_get, is_within
from kafkaprod._core.columns.columns cimport wrapping_difference
from kafkaprod._core.records.record_view cimport NULL_LENGTH

cdef extern from "kafkaprod/_core/machine/machine.h" nogil:
    # A copy that later reads use: the compiler must not read `source` a second time.
    void copy_shared "kp_copy_shared"(void *to, const void *source, size_t size)


cdef Place[MOST_PLACES] _null_places


cdef void _fill_null_places() noexcept:
    cdef Py_ssize_t i
    for i in range(MOST_PLACES):
        _null_places[i].data = NULL
        _null_places[i].length = NULL_LENGTH


_fill_null_places()


cdef const Place *row_places(const ByteColumn *c, Py_ssize_t first, Py_ssize_t count, Place *room) noexcept nogil:
    """Return the places of rows first .. first + count: those of the column if they are the engine's own, else in `room`.

    Args: count: at most MOST_PLACES. room: for `count` places; may be left as it is.
    """
    cdef const char *data = c.data          # copies: `room` may point at anything, as far as the compiler knows
    cdef Py_ssize_t width = c.width
    cdef Py_ssize_t i
    if c.layout == NULLS:
        return _null_places
    if c.layout == PLACES and c.validity is NULL:
        return c.places + c.start + first
    if c.layout == OFFSETS32:
        _offsets32_places(c, first, count, room)
    elif c.layout == OFFSETS64:
        _offsets64_places(c, first, count, room)
    elif c.layout == CONSTANT:
        for i in range(count):
            room[i].data = data
            room[i].length = width
    else:
        for i in range(count):
            column_get(c, first + i, &room[i].data, &room[i].length)
        return room
    if c.validity is not NULL:
        _set_nulls(c, first, count, room)
    return room


cdef const Place *ordered_places(const ByteColumn *c, Py_ssize_t first, const int32_t *order, Py_ssize_t count,
                                 Place *room) noexcept nogil:
    """Return the places of rows first + order[0] .. first + order[count - 1]; arguments as of row_places()."""
    cdef ByteColumn column = c[0]           # a copy, too
    cdef Py_ssize_t i
    if column.layout == PLACES and column.validity is NULL:
        for i in range(count):
            room[i] = column.places[column.start + first + order[i]]
    elif column.layout == NULLS or column.layout == CONSTANT:
        return row_places(c, first, count, room)
    else:
        for i in range(count):
            column_get(&column, first + order[i], &room[i].data, &room[i].length)
    return room


cdef void _offsets32_places(const ByteColumn *c, Py_ssize_t first, Py_ssize_t count, Place *room) noexcept nogil:
    cdef int32_t[MOST_PLACES + 1] offsets
    cdef const char *data = c.data
    cdef int32_t longest = <int32_t>c.longest
    cdef int32_t signs = 0
    cdef int32_t size
    cdef Py_ssize_t i
    copy_shared(offsets, c.offsets32 + c.start + first, <size_t>(count + 1) * sizeof(int32_t))
    for i in range(count):
        # Right if neither offset is negative; if one is, its own sign bit is set.
        size = <int32_t>(<uint32_t>offsets[i + 1] - <uint32_t>offsets[i])
        signs |= offsets[i] | size | <int32_t>(<uint32_t>longest - <uint32_t>size)
        room[i].data = <const char *>(<size_t>data + <size_t>offsets[i])      # may lie anywhere, see below
        room[i].length = size
    if signs >= 0 and 0 <= offsets[count] <= c.data_size:
        return
    for i in range(count):
        if not is_within(c, offsets[i], <int64_t>offsets[i + 1] - offsets[i], c.data_size):
            room[i].length = NULL_LENGTH


cdef void _offsets64_places(const ByteColumn *c, Py_ssize_t first, Py_ssize_t count, Place *room) noexcept nogil:
    cdef int64_t[MOST_PLACES + 1] offsets
    cdef const char *data = c.data
    cdef int64_t longest = c.longest
    cdef int64_t signs = 0
    cdef int64_t size
    cdef Py_ssize_t i
    copy_shared(offsets, c.offsets64 + c.start + first, <size_t>(count + 1) * sizeof(int64_t))
    for i in range(count):
        size = wrapping_difference(offsets[i + 1], offsets[i])
        signs |= offsets[i] | size | wrapping_difference(longest, size)
        room[i].data = <const char *>(<size_t>data + <size_t>offsets[i])      # may lie anywhere, see below
        room[i].length = size
    if signs >= 0 and 0 <= offsets[count] <= c.data_size:
        return
    for i in range(count):
        if not is_within(c, offsets[i], wrapping_difference(offsets[i + 1], offsets[i]), c.data_size):
            room[i].length = NULL_LENGTH


cdef void _set_nulls(const ByteColumn *c, Py_ssize_t first, Py_ssize_t count, Place *room) noexcept nogil:
    cdef Py_ssize_t i
    cdef Py_ssize_t row
    for i in range(count):
        row = c.start + first + i
        if not (c.validity[row >> 3] >> (row & 7)) & 1:
            room[i].length = NULL_LENGTH
