"""Columns of byte strings and of headers: made from Python objects, checked once, then read without the GIL.

A column is checked whole before any record of a block is written, so a bad offset never leaves a block half done.
"""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from kafkaprod._core.machine.lock cimport FREE_THREADED, load_i64
from kafkaprod._core.machine.prefetch cimport prefetch_write
from kafkaprod._core.records.integers cimport to_int64
from kafkaprod._core.records.record_arguments cimport RecordArguments, has_byte_items, kind_of_items

import sys

from kafkaprod.errors import ArgumentTypeError, InvalidRecordError

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX
    Py_ssize_t PySequence_Fast_GET_SIZE(object items)
    PyObject **PySequence_Fast_ITEMS(object items)

cdef enum:
    ITEMS_AHEAD = 8

cdef char[1] NO_BYTES
cdef bint IS_LITTLE_ENDIAN = sys.byteorder == "little"


@cython.final
cdef class Column:
    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self._buffer_count):
            PyBuffer_Release(&self._buffers[i])
        free(self._buffers)
        for i in range(self._item_count):
            if i + ITEMS_AHEAD < self._item_count:
                prefetch_write(self._items[i + ITEMS_AHEAD])
            Py_DECREF(<object>self._items[i])
        for i in range(self._allocation_count):
            free(self._allocations[i])
        free(self._allocations)

    cdef Py_buffer *_hold(self, object source, str name, bint is_row) except NULL:
        """Hold a contiguous buffer until the column dies. Raises ArgumentTypeError, too if a row's items are no bytes."""
        cdef Py_buffer *grown
        cdef Py_buffer *buffer
        if not PyObject_CheckBuffer(source):
            raise ArgumentTypeError(f"{name} must support the buffer protocol, not {type(source).__name__}")
        grown = <Py_buffer *>realloc(self._buffers, (self._buffer_count + 1) * sizeof(Py_buffer))
        if grown is NULL:
            raise MemoryError
        self._buffers = grown
        buffer = &self._buffers[self._buffer_count]
        try:
            PyObject_GetBuffer(source, buffer, PyBUF_ND | PyBUF_FORMAT)
        except (BufferError, TypeError, ValueError) as error:       # NumPy says ValueError
            raise ArgumentTypeError(f"{name} must be a contiguous buffer: {error}") from error
        self._buffer_count += 1
        if is_row and not isinstance(source, bytes) and not has_byte_items(source, buffer):
            raise ArgumentTypeError(f"{name} must be bytes-like or None, not {kind_of_items(source, buffer)}")
        return buffer

    cdef void *_allocate(self, Py_ssize_t count, Py_ssize_t size) except NULL:
        """Return memory for `count` items of `size` bytes that lives as long as the column."""
        if not 0 <= count <= PY_SSIZE_T_MAX // size:
            raise MemoryError
        cdef void *memory = malloc(<size_t>max(count * size, 1))
        if memory is NULL:
            raise MemoryError
        self._adopt(memory)
        return memory

    cdef int _adopt(self, void *memory) except -1:
        """Own malloc's memory; it is freed with the column, at once if it cannot be kept."""
        cdef void **grown = <void **>realloc(self._allocations, (self._allocation_count + 1) * sizeof(void *))
        if grown is NULL:
            free(memory)
            raise MemoryError
        self._allocations = grown
        self._allocations[self._allocation_count] = memory
        self._allocation_count += 1
        return 0

    @staticmethod
    def nulls():
        """Null in every row."""
        cdef Column column = Column.__new__(Column)
        column.row_count = -1
        return column

    @staticmethod
    def constant(data):
        """The same bytes-like object, or None, in every row."""
        cdef Column column = Column.__new__(Column)
        cdef Py_buffer *buffer
        column.row_count = -1
        if data is not None:
            buffer = column._hold(data, "constant", True)
            column.c.layout = CONSTANT
            column.c.data = <const char *>buffer.buf if buffer.len > 0 else NO_BYTES
            column.c.width = buffer.len
            column.c.longest = buffer.len
        return column

    @staticmethod
    def from_list(values not None, str name="values"):
        """A sequence of bytes-like objects or None. Raises InvalidRecordError naming the row of a wrong one."""
        cdef Column column = Column.__new__(Column)
        if isinstance(values, (bytes, bytearray, memoryview, str)):
            raise ArgumentTypeError(
                f"{name} must be a list with one item per record, not a single {type(values).__name__} object"
            )
        # Elsewhere the GIL keeps others from changing a list that is read here.
        source = values if isinstance(values, (list, tuple)) and not FREE_THREADED else list(values)
        cdef Py_ssize_t count = PySequence_Fast_GET_SIZE(source)
        cdef Place *places = <Place *>column._allocate(count, sizeof(Place))
        cdef PyObject **items
        cdef Py_buffer *buffer
        cdef Py_ssize_t i
        column._items = <PyObject **>column._allocate(count, sizeof(PyObject *))
        column.row_count = count
        column.c.layout = PLACES
        column.c.places = places
        for i in range(count):
            if PySequence_Fast_GET_SIZE(source) != count:       # an item's own code may run below
                raise InvalidRecordError(f"{name} changed its length while it was read")
            items = PySequence_Fast_ITEMS(source)
            if i + ITEMS_AHEAD < count:
                prefetch_write(items[i + ITEMS_AHEAD])          # its reference count
            row = <object>items[i]
            Py_INCREF(row)
            column._items[i] = <PyObject *>row
            column._item_count = i + 1
            if PyBytes_CheckExact(row):
                places[i].data = PyBytes_AS_STRING(row)
                places[i].length = PyBytes_GET_SIZE(row)
            elif row is None:
                places[i].data = NULL
                places[i].length = NULL_LENGTH
            else:
                if not PyObject_CheckBuffer(row):
                    raise ArgumentTypeError(f"{name}[{i}] must be bytes-like or None, not {type(row).__name__}")
                buffer = column._hold(row, f"{name}[{i}]", True)
                places[i].data = <const char *>buffer.buf if buffer.len > 0 else NO_BYTES
                places[i].length = buffer.len
            if places[i].length > column.c.longest:
                column.c.longest = places[i].length
        return column

    @staticmethod
    def from_offsets(offsets not None, data not None, validity=None, start=0, row_count=None, str name="values"):
        """Arrow's binary and large_binary layout.

        Args:
            offsets: Buffer of int32 or int64, one more than rows. data: buffer of bytes.
            validity: An Arrow bitmap (bytes, uint8), or an array of bool with one item per row; None: no nulls.
            start: First row of the buffers that belongs to the column. row_count: None takes all.
        Raises: InvalidRecordError: offsets that run backwards or past the data, buffers too short; names the row.
        """
        cdef Column column = Column.__new__(Column)
        cdef Py_buffer *buffer = column._hold(offsets, f"{name}.offsets", False)
        cdef Py_ssize_t available
        width = _integer_width(buffer)
        if width == 4:
            column.c.layout = OFFSETS32
            column.c.offsets32 = <const int32_t *>buffer.buf
        elif width == 8:
            column.c.layout = OFFSETS64
            column.c.offsets64 = <const int64_t *>buffer.buf
        else:
            raise InvalidRecordError(f"{name}.offsets must be int32 or int64, not items of {_describe_format(buffer)}")
        available = buffer.len // buffer.itemsize - 1
        buffer = column._hold(data, f"{name}.data", False)
        column.c.data = <const char *>buffer.buf if buffer.len > 0 else NO_BYTES
        column.c.data_size = buffer.len
        _finish(column, validity, start, row_count, available, name)
        return column

    @staticmethod
    def from_views(views not None, buffers=(), validity=None, start=0, row_count=None, str name="values"):
        """Arrow's binary_view layout: 16-byte views and the data buffers they point into. Arguments as from_offsets."""
        cdef Column column = Column.__new__(Column)
        cdef Py_buffer *buffer = column._hold(views, f"{name}.views", False)
        cdef Py_ssize_t available = buffer.len // 16
        cdef Py_ssize_t i
        cdef const char **starts
        cdef int64_t *sizes
        column.c.layout = VIEWS
        column.c.views = <const char *>buffer.buf
        buffers = list(buffers)
        starts = <const char **>column._allocate(len(buffers), sizeof(void *))
        sizes = <int64_t *>column._allocate(len(buffers), sizeof(int64_t))
        for i in range(len(buffers)):
            buffer = column._hold(buffers[i], f"{name}.buffers[{i}]", False)
            starts[i] = <const char *>buffer.buf
            sizes[i] = buffer.len
        column.c.view_buffers = starts
        column.c.view_buffer_sizes = sizes
        column.c.view_buffer_count = len(buffers)
        _finish(column, validity, start, row_count, available, name)
        return column

    @staticmethod
    def from_fixed(data not None, Py_ssize_t width, validity=None, start=0, row_count=None, str name="values"):
        """Rows of `width` bytes each, one behind the other. Arguments as from_offsets."""
        cdef Column column = Column.__new__(Column)
        if width < 1:
            raise InvalidRecordError(f"{name}: width={width} must be at least 1 byte")
        cdef Py_buffer *buffer = column._hold(data, f"{name}.data", False)
        column.c.layout = FIXED
        column.c.data = <const char *>buffer.buf
        column.c.data_size = buffer.len
        column.c.width = width
        column.c.longest = width
        _finish(column, validity, start, row_count, buffer.len // width, name)
        return column

    def slice(self, Py_ssize_t first, Py_ssize_t count):
        """Rows first .. first + count as a column that shares the memory. Raises InvalidRecordError if they are outside."""
        cdef Column column
        if self.row_count < 0:
            return self
        if first < 0 or count < 0 or first > self.row_count or count > self.row_count - first:
            raise InvalidRecordError(f"{count} rows from row {first} on are outside the column's {self.row_count}")
        column = Column.__new__(Column)
        column._kept = self
        column.c = self.c
        column.c.start += first
        column.row_count = count
        return column

    def take(self, rows not None):
        """The rows of an array of int64, in that order, as a column of places in this one."""
        cdef const int64_t[::1] wanted = rows
        cdef Py_ssize_t count = wanted.shape[0]
        cdef Py_ssize_t i
        cdef int64_t row
        cdef Column column
        cdef Place *places
        if self.row_count < 0:
            return self
        column = Column.__new__(Column)
        places = <Place *>column._allocate(count, sizeof(Place))
        for i in range(count):
            row = load_i64(&wanted[i])      # once: other threads may write to the array
            if not 0 <= row < self.row_count:
                raise InvalidRecordError(f"row {row} is outside the column's {self.row_count}")
            places[i].data = NULL
            column_get(&self.c, row, &places[i].data, &places[i].length)
        column._kept = self
        column.row_count = count
        column.c.layout = PLACES
        column.c.places = places
        column.c.longest = self.c.longest
        return column

    cdef int check(self, str name) except -1:
        """Check every row's place. Raises InvalidRecordError naming the first bad row."""
        cdef Py_ssize_t bad
        with nogil:
            bad = _first_bad_row(&self.c, self.row_count)
        if bad >= 0:
            raise InvalidRecordError(f"{name}: row {bad} {_describe_bad_row(&self.c, bad)}")
        return 0

    def __len__(self):
        if self.row_count < 0:
            raise TypeError("a constant column has no length")
        return self.row_count

    def __repr__(self):
        if self.row_count >= 0:  # without data, which may be secret
            return f"<Column of {self.row_count} row{'s'[self.row_count == 1:]}, of {self.c.longest} bytes at most>"
        return f"<Column of {'null' if self.c.layout == NULLS else f'the same {self.c.width} bytes'} in every row>"

    def __getitem__(self, Py_ssize_t row):
        """Row as bytes, or None; slow, for tests and error messages."""
        cdef const char *data = NULL
        cdef Py_ssize_t length
        if self.row_count >= 0 and not 0 <= row < self.row_count:
            raise IndexError(f"row {row} is outside 0..{self.row_count - 1}")
        column_get(&self.c, row, &data, &length)
        return None if length < 0 else data[:length]

    def rows(self, Py_ssize_t first, Py_ssize_t count):
        """Rows first .. first + count as a list of bytes and None; bytes that the column was made from are not copied."""
        cdef const char *data = NULL
        cdef Py_ssize_t length
        cdef Py_ssize_t i
        cdef bint has_items = self._item_count > 0 and self.c.start == 0
        cdef list out = []
        if first < 0 or count < 0 or count > (PY_SSIZE_T_MAX if self.row_count < 0 else self.row_count) - first:
            raise IndexError(f"{count} rows from row {first} on are outside the column's {self.row_count}")
        for i in range(first, first + count):
            if has_items and PyBytes_CheckExact(<object>self._items[i]):
                out.append(<object>self._items[i])
                continue
            column_get(&self.c, i, &data, &length)
            out.append(None if length < 0 else data[:length])
        return out


cdef int _finish(Column column, object validity, object first, object row_count, Py_ssize_t available, str name) except -1:
    cdef Py_ssize_t start = to_int64(first, "start", 0, INT64_MAX)
    cdef Py_ssize_t count = max(available - start, -1) if row_count is None else to_int64(row_count, "row_count", 0, INT64_MAX)
    if start > available or not 0 <= count <= available - start:
        raise InvalidRecordError(
            f"{name}: {max(count, 0)} rows from row {start} on are outside the {max(available, 0)} rows given"
        )
    column.c.start = start
    column.row_count = count
    if validity is not None:
        column.c.validity = _validity_bitmap(column, validity, f"{name}.validity", start + count)
    return column.check(name)


cdef const uint8_t *_validity_bitmap(Column column, object validity, str name, Py_ssize_t row_count) except NULL:
    """Return a bitmap, 1 where the row has a value: the caller's own, or one made of a mask of one bool per row."""
    cdef Py_buffer *buffer = column._hold(validity, name, False)
    cdef const char *mask = <const char *>buffer.buf
    cdef uint8_t *bitmap
    cdef Py_ssize_t i
    cdef char code = _format_code(buffer)
    cdef bint is_mask = code == c"?"
    if not is_mask and (buffer.itemsize != 1 or code not in (c"B", c"b", c"c")):
        raise InvalidRecordError(
            f"{name} must be an Arrow bitmap (bytes, uint8) or an array of bool, not items of {_describe_format(buffer)}"
        )
    if buffer.len < (row_count if is_mask else row_count // 8 + (row_count % 8 != 0)):
        raise InvalidRecordError(
            f"{name} of {buffer.len} {'rows' if is_mask else 'bytes'} is too short for {row_count} rows"
        )
    if not is_mask:
        return <const uint8_t *>mask if buffer.len > 0 else <const uint8_t *>NO_BYTES
    bitmap = <uint8_t *>column._allocate((row_count + 7) // 8, 1)
    memset(bitmap, 0, <size_t>((row_count + 7) // 8))
    for i in range(row_count):
        bitmap[i >> 3] |= <uint8_t>((mask[i] != 0) << (i & 7))
    return bitmap


cdef char _format_code(const Py_buffer *buffer) noexcept:
    """Return the struct code of a buffer of single native items, 0 for anything else."""
    cdef const char *text = buffer.format
    if text is NULL:
        return c"B"
    if text[0] == c"@" or text[0] == c"=" or text[0] == (c"<" if IS_LITTLE_ENDIAN else c">"):
        text += 1
    return text[0] if text[0] != 0 and text[1] == 0 else 0


cdef int _integer_width(const Py_buffer *buffer) noexcept:
    """Return the size of a buffer's items in bytes if they are integers in native order, else 0."""
    return <int>buffer.itemsize if _format_code(buffer) in (c"i", c"l", c"q", c"n", c"I", c"L", c"Q", c"N") else 0


cdef str _describe_format(const Py_buffer *buffer):
    text = "B" if buffer.format is NULL else (<bytes>buffer.format).decode("ascii", "replace")
    return f"{buffer.itemsize} bytes in format {text!r}"


cdef bint _offsets_are_fine(ByteColumn *c, Py_ssize_t row_count) noexcept nogil:
    """Whether no 32-bit offset runs backwards or past the data, and the longest row: a loop without branches."""
    cdef const int32_t *offsets = c.offsets32 + c.start
    cdef int32_t signs = 0
    cdef int32_t longest = 0
    cdef int32_t length
    cdef Py_ssize_t i
    for i in range(row_count):
        # Right if no offset is negative; if one is, its own sign bit is set.
        length = <int32_t>(<uint32_t>offsets[i + 1] - <uint32_t>offsets[i])
        signs |= length | offsets[i]
        longest = length if length > longest else longest
    if signs < 0 or offsets[row_count] < 0 or offsets[row_count] > c.data_size:
        return False
    c.longest = longest
    return True


cdef Py_ssize_t _first_bad_row(ByteColumn *c, Py_ssize_t row_count) noexcept nogil:
    """Look at every row's place and remember the longest; -1 if all are inside."""
    cdef Py_ssize_t i
    cdef int64_t begin
    cdef int64_t end
    cdef int32_t length
    cdef int32_t place[2]
    if c.layout != OFFSETS32 and c.layout != OFFSETS64 and c.layout != VIEWS:
        return -1               # places are ours; the other layouts' sizes were compared once
    if c.layout == OFFSETS32 and _offsets_are_fine(c, row_count):
        return -1
    for i in range(c.start, c.start + row_count):
        if c.layout == OFFSETS32:
            begin = c.offsets32[i]
            end = c.offsets32[i + 1]
            if begin < 0 or end < begin or end > c.data_size:
                return i - c.start
            if end - begin > c.longest:
                c.longest = end - begin
        elif c.layout == OFFSETS64:
            begin = c.offsets64[i]
            end = c.offsets64[i + 1]
            if begin < 0 or end < begin or end > c.data_size:
                return i - c.start
            if end - begin > c.longest:
                c.longest = end - begin
        elif c.layout == VIEWS and (c.validity is NULL or (c.validity[i >> 3] >> (i & 7)) & 1):
            memcpy(&length, c.views + 16 * i, 4)
            memcpy(place, c.views + 16 * i + 8, 8)
            if length < 0 or (length > 12 and (place[0] < 0 or place[0] >= c.view_buffer_count or place[1] < 0
                                               or place[1] + <int64_t>length > c.view_buffer_sizes[place[0]])):
                return i - c.start
            if length > c.longest:
                c.longest = length
    return -1


cdef str _describe_bad_row(const ByteColumn *c, Py_ssize_t row):
    cdef Py_ssize_t i = c.start + row
    cdef int32_t length
    cdef int32_t place[2]
    if c.layout == VIEWS:
        memcpy(&length, c.views + 16 * i, 4)
        memcpy(place, c.views + 16 * i + 8, 8)
        return (f"has a view of {length} bytes at {place[1]} of buffer {place[0]}, outside the "
                f"{c.view_buffer_count} buffers")
    begin = c.offsets32[i] if c.layout == OFFSETS32 else c.offsets64[i]
    end = c.offsets32[i + 1] if c.layout == OFFSETS32 else c.offsets64[i + 1]
    return f"has offsets {begin}..{end}, which run backwards or past the {c.data_size} bytes of data"


cdef list _offsets_list(object offsets, str name):
    """Return a buffer of int32 or int64 as a list of int."""
    cdef Column holder = Column.__new__(Column)
    cdef int width = _integer_width(holder._hold(offsets, name, False))
    if width not in (4, 8):
        raise InvalidRecordError(f"{name} must be int32 or int64, not items of {_describe_format(&holder._buffers[0])}")
    return memoryview(offsets).cast("B").cast("i" if width == 4 else "q").tolist()


@cython.final
cdef class Headers:
    def __dealloc__(self):
        free(self._views)
        free(self._offsets)

    cdef HeaderView *_reserve(self, Py_ssize_t count) except NULL:
        cdef HeaderView *grown
        cdef Py_ssize_t capacity = max(16, self._view_capacity)
        if count > <Py_ssize_t>(PY_SSIZE_T_MAX // (2 * sizeof(HeaderView))) - self._view_count:
            raise MemoryError
        while capacity < self._view_count + count:
            capacity *= 2
        if capacity > self._view_capacity:
            grown = <HeaderView *>realloc(self._views, <size_t>capacity * sizeof(HeaderView))
            if grown is NULL:
                raise MemoryError
            self._views = grown
            self._view_capacity = capacity
        return self._views + self._view_count

    cdef int _make_rows(self, Py_ssize_t row_count, Py_ssize_t view_count) except -1:
        """Room for the offsets of `row_count` rows, all 0, and for the views of all their headers."""
        self._reserve(view_count)
        self._view_count = view_count
        self.row_count = row_count
        self._offsets = <int64_t *>calloc(<size_t>row_count + 1, sizeof(int64_t))
        if self._offsets is NULL:
            raise MemoryError
        return 0

    def __repr__(self):
        return f"<Headers of {'every record alike' if self.row_count < 0 else f'{self.row_count} records'}>"

    def slice(self, Py_ssize_t first, Py_ssize_t count):
        """Rows first .. first + count, sharing the memory. Raises InvalidRecordError if they are outside."""
        cdef Headers headers
        if self.row_count < 0:
            return self
        if first < 0 or count < 0 or first > self.row_count or count > self.row_count - first:
            raise InvalidRecordError(f"{count} rows from row {first} on are outside the headers' {self.row_count}")
        headers = Headers.__new__(Headers)
        headers._kept = self
        headers.row_count = count
        headers.c = self.c
        headers.c.offsets += first
        return headers

    def take(self, rows not None):
        """The rows of an array of int64, in that order."""
        cdef const int64_t[::1] wanted = rows
        cdef Py_ssize_t count
        cdef Py_ssize_t i
        cdef int64_t row
        cdef Headers headers
        if self.row_count < 0:
            return self
        headers = Headers.__new__(Headers)
        headers._make_rows(wanted.shape[0], 0)
        for i in range(wanted.shape[0]):
            row = load_i64(&wanted[i])      # once: other threads may write to the array
            if not 0 <= row < self.row_count:
                raise InvalidRecordError(f"row {row} is outside the headers' {self.row_count}")
            count = self.c.offsets[row + 1] - self.c.offsets[row]
            headers._append(self.c.headers + self.c.offsets[row], count)
            headers._offsets[i + 1] = headers._view_count
        headers._kept = self
        headers.c.headers = headers._views
        headers.c.offsets = headers._offsets
        return headers

    def with_every(self, Headers more not None):
        """These headers with those of `more`, which are the same for every row, after each row's own.

        Raises InvalidRecordError if those of `more` differ from row to row.
        """
        cdef Headers headers
        cdef Py_ssize_t added = more.c.constant_count
        cdef Py_ssize_t count
        cdef Py_ssize_t i
        if more.row_count >= 0:
            raise InvalidRecordError("the headers to add must be the same for every row")
        headers = Headers.__new__(Headers)
        headers._kept = (self, more)
        if self.row_count < 0:
            headers.row_count = -1
            headers._append(self.c.headers, self.c.constant_count)
            headers._append(more.c.headers, added)
            headers.c.constant_count = headers._view_count
        else:
            headers._make_rows(self.row_count, 0)
            for i in range(self.row_count):
                count = self.c.offsets[i + 1] - self.c.offsets[i]
                headers._append(self.c.headers + self.c.offsets[i], count)
                headers._append(more.c.headers, added)
                headers._offsets[i + 1] = headers._view_count
            headers.c.offsets = headers._offsets
        headers.c.headers = headers._views
        return headers

    cdef int _append(self, const HeaderView *views, Py_ssize_t count) except -1:
        cdef HeaderView *end = self._reserve(count)
        if count > 0:       # the source may be NULL
            memcpy(end, views, <size_t>count * sizeof(HeaderView))
        self._view_count += count
        return 0

    cdef int _add_row(self, object arguments, object headers, Py_ssize_t row) except -1:
        cdef RecordArguments holder = arguments
        cdef Py_ssize_t i
        cdef HeaderView *views
        try:
            holder.set_headers(headers)
        except InvalidRecordError as error:
            raise type(error)(f"headers of row {row}: {error}") from error
        views = self._reserve(holder.view.header_count)
        for i in range(holder.view.header_count):
            views[i] = holder.view.headers[i]
        self._view_count += holder.view.header_count
        return 0

    @staticmethod
    def from_python(headers):
        """Headers of a block from Python objects.

        Args: headers: pairs (str, bytes-like or None) for every row alike; or, per row, a list or dict of pairs or None.
        Raises InvalidRecordError naming row and position.
        """
        cdef Headers self = Headers.__new__(Headers)
        cdef RecordArguments arguments = RecordArguments()
        cdef Py_ssize_t i
        self.row_count = -1
        self._kept = arguments
        if headers is None:
            return self
        try:
            rows = list(headers.items() if isinstance(headers, dict) else headers)
        except TypeError:
            raise ArgumentTypeError(
                f"headers must be pairs (str, bytes) or a list of them per row, not {type(headers).__name__}"
            ) from None
        if not rows or isinstance(rows[0], tuple):
            self._add_row(arguments, rows, 0)
            self.c.constant_count = self._view_count
        else:
            self.row_count = len(rows)
            self._offsets = <int64_t *>calloc(self.row_count + 1, sizeof(int64_t))
            if self._offsets is NULL:
                raise MemoryError
            for i in range(self.row_count):
                self._add_row(arguments, rows[i], i)
                self._offsets[i + 1] = self._view_count
            self.c.offsets = self._offsets
        self.c.headers = self._views
        return self

    @staticmethod
    def from_columns(offsets not None, Column keys not None, Column values not None, row_count=None):
        """Arrow's list<struct<key, value>>: row i has the pairs offsets[i] .. offsets[i + 1] of the two columns.

        Args: offsets: buffer of int32 or int64, one more than rows. keys: without nulls, UTF-8. values: nulls allowed.
        Raises InvalidRecordError for offsets out of range, a null key, or columns of unequal length.
        """
        cdef Headers self = Headers.__new__(Headers)
        cdef Py_ssize_t i
        cdef HeaderView *views
        if keys.row_count != values.row_count:
            raise InvalidRecordError(f"headers have {keys.row_count} keys but {values.row_count} values")
        if keys.row_count < 0:
            raise InvalidRecordError("headers need columns of keys and values with a length, not constant ones")
        cdef list places = _offsets_list(offsets, "headers.offsets")
        self.row_count = len(places) - 1 if row_count is None else to_int64(row_count, "row_count", 0, INT64_MAX)
        if self.row_count < 0 or self.row_count > len(places) - 1:
            raise InvalidRecordError(f"headers.offsets of {len(places)} items are too few for {max(self.row_count, 0)} rows")
        self._offsets = <int64_t *>calloc(self.row_count + 1, sizeof(int64_t))
        if self._offsets is NULL:
            raise MemoryError
        for i in range(self.row_count + 1):
            if not 0 <= places[i] <= keys.row_count or (i > 0 and places[i] < places[i - 1]):
                raise InvalidRecordError(f"headers.offsets[{i}]={places[i]} runs backwards or past {keys.row_count} pairs")
            self._offsets[i] = places[i]
        views = self._reserve(keys.row_count)
        for i in range(keys.row_count):
            column_get(&keys.c, i, &views[i].key, &views[i].key_length)
            column_get(&values.c, i, &views[i].value, &views[i].value_length)
            if views[i].key_length < 0:
                raise InvalidRecordError(f"headers: the key of pair {i} is null")
        self._view_count = keys.row_count
        self._kept = (keys, values)
        self.c.headers = self._views
        self.c.offsets = self._offsets
        return self
