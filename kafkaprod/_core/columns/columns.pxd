"""A column of byte strings as C pointers, in the layouts that Arrow, NumPy and lists come in.

| layout    | row i is                                                                       | Arrow types                 |
|-----------|--------------------------------------------------------------------------------|-----------------------------|
| NULLS     | null                                                                           |                             |
| CONSTANT  | the same bytes for every row                                                   |                             |
| PLACES    | places[i].data, places[i].length                                               | (lists of bytes-like)       |
| OFFSETS32 | data[offsets32[i] .. offsets32[i + 1]]                                         | binary, string              |
| OFFSETS64 | data[offsets64[i] .. offsets64[i + 1]]                                         | large_binary, large_string  |
| VIEWS     | 16 bytes: int32 length, then 12 bytes inline, or prefix, buffer index, offset  | binary_view, string_view    |
| FIXED     | data[i * width .. (i + 1) * width]                                             | fixed_size_binary           |

Source of the layouts: Arrow columnar format 1.4. `validity` is a bitmap, least significant bit first, NULL: no nulls.
`start` is the row of the arrays at which the column begins (Arrow's array offset).
"""

from cpython.buffer cimport Py_buffer
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kafkaprod._core.machine.lock cimport load_i32, load_i64
from kafkaprod._core.machine.prefetch cimport prefetch_read
from kafkaprod._core.records.record_view cimport NULL_LENGTH, HeaderView


cdef enum Layout:
    NULLS
    CONSTANT
    PLACES
    OFFSETS32
    OFFSETS64
    VIEWS
    FIXED


cdef struct Place:
    const char *data
    Py_ssize_t length               # NULL_LENGTH: null


cdef struct ByteColumn:
    Layout layout
    Py_ssize_t start
    Py_ssize_t longest              # no row is longer; bytes
    const uint8_t *validity
    const char *data
    Py_ssize_t data_size
    Py_ssize_t width                # FIXED: bytes a row; CONSTANT: length
    const int32_t *offsets32
    const int64_t *offsets64
    const Place *places
    const char *views
    const char **view_buffers
    const int64_t *view_buffer_sizes
    Py_ssize_t view_buffer_count


cdef struct HeaderColumn:
    # Row i has headers[offsets[i] .. offsets[i + 1]]; all rows share headers[0 .. constant_count] if offsets is NULL.
    const HeaderView *headers
    const int64_t *offsets
    Py_ssize_t constant_count


cdef class Column:
    """Owns what a ByteColumn points into. Immutable once made; any thread may read."""

    cdef ByteColumn c
    cdef readonly Py_ssize_t row_count      # -1: as many as wanted (NULLS, CONSTANT)
    cdef Py_buffer *_buffers
    cdef Py_ssize_t _buffer_count
    cdef void **_allocations
    cdef Py_ssize_t _allocation_count
    cdef PyObject **_items                  # of from_list: references to the rows; not in a list, to fetch ahead
    cdef Py_ssize_t _item_count
    cdef object _kept

    cdef Py_buffer *_hold(self, object source, str name, bint is_row) except NULL
    cdef void *_allocate(self, Py_ssize_t count, Py_ssize_t size) except NULL
    cdef int _adopt(self, void *memory) except -1
    cdef int check(self, str name) except -1


cdef class Headers:
    """Owns what a HeaderColumn points into."""

    cdef HeaderColumn c
    cdef readonly Py_ssize_t row_count      # -1: the same headers for every row
    cdef HeaderView *_views
    cdef int64_t *_offsets
    cdef Py_ssize_t _view_count
    cdef Py_ssize_t _view_capacity
    cdef object _kept

    cdef HeaderView *_reserve(self, Py_ssize_t count) except NULL
    cdef int _make_rows(self, Py_ssize_t row_count, Py_ssize_t view_count) except -1
    cdef int _append(self, const HeaderView *views, Py_ssize_t count) except -1
    cdef int _add_row(self, object arguments, object headers, Py_ssize_t row) except -1


cdef inline bint is_within(const ByteColumn *c, int64_t begin, int64_t size, int64_t data_size) noexcept nogil:
    """Check that a row is no longer than the longest one was, and inside the data."""
    # Unsigned: a negative size is larger than any limit. data_size - size cannot wrap once the first test holds.
    return <uint64_t>size <= <uint64_t>c.longest and 0 <= begin <= data_size - size


cdef inline int64_t wrapping_difference(int64_t end, int64_t begin) noexcept nogil:
    return <int64_t>(<uint64_t>end - <uint64_t>begin)


cdef inline void column_get(const ByteColumn *c, Py_ssize_t i, const char **data, Py_ssize_t *length) noexcept nogil:
    """Set pointer and length of row i; NULL_LENGTH for a null.

    The column was checked, but its offsets and views are memory of the caller, which another thread may change while the
    GIL is released. So each is read once, and a row that no longer lies within the data comes out as null.
    """
    cdef int64_t begin
    cdef int64_t size
    cdef int32_t short_length
    cdef int32_t place[2]
    cdef const char *view
    i += c.start
    if c.validity is not NULL and not (c.validity[i >> 3] >> (i & 7)) & 1:
        length[0] = NULL_LENGTH
    elif c.layout == OFFSETS32:
        begin = load_i32(&c.offsets32[i])
        size = load_i32(&c.offsets32[i + 1]) - begin
        if not is_within(c, begin, size, c.data_size):
            length[0] = NULL_LENGTH
            return
        data[0] = c.data + begin
        length[0] = size
    elif c.layout == PLACES:
        data[0] = c.places[i].data
        length[0] = c.places[i].length
    elif c.layout == OFFSETS64:
        begin = load_i64(&c.offsets64[i])
        size = wrapping_difference(load_i64(&c.offsets64[i + 1]), begin)
        if not is_within(c, begin, size, c.data_size):
            length[0] = NULL_LENGTH
            return
        data[0] = c.data + begin
        length[0] = size
    elif c.layout == FIXED:
        data[0] = c.data + i * c.width
        length[0] = c.width
    elif c.layout == CONSTANT:
        data[0] = c.data
        length[0] = c.width
    elif c.layout == VIEWS:
        view = c.views + 16 * i
        memcpy(&short_length, view, 4)
        length[0] = short_length
        if 0 <= short_length <= 12:
            data[0] = view + 4
            return
        memcpy(place, view + 8, 8)
        if (<uint32_t>place[0] < <uint64_t>c.view_buffer_count
                and is_within(c, place[1], short_length, c.view_buffer_sizes[place[0]])):
            data[0] = c.view_buffers[place[0]] + place[1]
        else:
            length[0] = NULL_LENGTH
    else:
        length[0] = NULL_LENGTH


cdef inline const char *column_address(const ByteColumn *c, Py_ssize_t i) noexcept nogil:
    """Return where the bytes of row i may be: for prefetching only, not checked and not to be read.

    It may be NULL or lie anywhere, so it is counted as a number: nothing may be added to such a pointer.
    """
    i += c.start
    if c.layout == OFFSETS32:
        return <const char *>(<size_t>c.data + <size_t>load_i32(&c.offsets32[i]))
    if c.layout == PLACES:
        return c.places[i].data
    if c.layout == OFFSETS64:
        return <const char *>(<size_t>c.data + <size_t>load_i64(&c.offsets64[i]))
    return <const char *>(<size_t>c.data + <size_t>(i * c.width))


cdef inline void prefetch_row_bytes(const ByteColumn *c, Py_ssize_t i) noexcept nogil:
    """Prefetch what may be the first two cache lines of row i."""
    cdef const char *data = column_address(c, i)
    prefetch_read(data)
    prefetch_read(<const char *>(<size_t>data + 64))


cdef inline void prefetch_place(const ByteColumn *c, Py_ssize_t i) noexcept nogil:
    """Prefetch the place, offset or view that column_get() of row i will read."""
    i += c.start
    if c.layout == PLACES:
        prefetch_read(c.places + i)
    elif c.layout == OFFSETS32:
        prefetch_read(c.offsets32 + i)
    elif c.layout == OFFSETS64:
        prefetch_read(c.offsets64 + i)
    elif c.layout == VIEWS:
        prefetch_read(c.views + 16 * i)
