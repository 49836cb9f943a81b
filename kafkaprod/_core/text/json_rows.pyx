"""Rows as JSON objects, from Arrow arrays straight into one column of bytes, without the GIL.

The text is byte for byte what Spark's to_json writes, where that is defined; docs/json.md has the table of types and the
differences. A column is checked before the first row is written; after that nothing can fail but memory, and arrays that
another thread changes.
"""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kafkaprod._core.columns.arrow cimport ArrowBatch
from kafkaprod._core.columns.arrow_array cimport (
    ArrowNode,
    dictionary_row,
    has_items,
    integer_at,
    is_valid,
    list_range,
)
from kafkaprod._core.columns.arrow_schema cimport (
    BINARY32,
    BOOL,
    BOOLEANS,
    DATE32,
    DATE64,
    DECIMAL,
    DICTIONARY,
    FIXED_BINARY,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    MAP,
    NULL_TYPE,
    STRING32,
    STRING64,
    STRING_VIEW,
    STRUCT,
    TIMESTAMP,
    UINT64,
    UUIDS,
    Field,
    Kind,
)
from kafkaprod._core.columns.arrow_values cimport UUID_TEXT, bytes_at, changed_error, float_of_half, write_uuid
from kafkaprod._core.columns.columns cimport OFFSETS64, Column
from kafkaprod._core.machine.lock cimport load_i32
from kafkaprod._core.records.integers cimport to_int64
from kafkaprod._core.text.json_text cimport (
    MOST_TIME_TEXT,
    append_base64,
    append_string,
    write_date,
    write_time_of_day,
    write_timestamp,
)
from kafkaprod._core.text.number_text cimport (
    MOST_DECIMAL_TEXT,
    write_decimal,
    write_double,
    write_float,
    write_integer,
    write_unsigned,
)
from kafkaprod._core.text.text_output cimport Output, append_bytes, reserve

from kafkaprod.errors import InvalidRecordError

cdef enum:
    SCALAR_ROOM = MOST_DECIMAL_TEXT + MOST_TIME_TEXT        # more than any value of fixed size needs, quotes included
    MS_PER_DAY = 86_400_000
    MOST_TEXT = 0x40000000      # bytes of one column


@cython.final
cdef class JsonEncoder:
    """Encodes rows of one batch.

    Args: batch: the rows. indexes: of the columns to write, in order. ignore_null_fields: leave nulls out, or write null.
    Raises: InvalidRecordError: a column has a type that JSON cannot hold; it names column and type.
    """

    cdef ArrowBatch _batch
    cdef const ArrowNode **_nodes
    cdef Py_ssize_t _count
    cdef bint _ignores_nulls
    cdef Py_ssize_t _row_size               # bytes of a typical row so far

    def __cinit__(self, ArrowBatch batch not None, indexes not None, bint ignore_null_fields=True):
        cdef Py_ssize_t i
        cdef list wanted = [to_int64(index, "index", 0, INT32_MAX) for index in indexes]
        cdef Field field
        self._batch = batch
        self._count = len(wanted)
        self._ignores_nulls = ignore_null_fields
        self._row_size = 64
        self._nodes = <const ArrowNode **>malloc(<size_t>max(self._count, <Py_ssize_t>1) * sizeof(void *))
        if self._nodes is NULL:
            raise MemoryError
        for i in range(self._count):
            if wanted[i] >= len(batch.fields):
                raise IndexError(f"column {wanted[i]} is outside the batch's {len(batch.fields)}")
            field = batch.fields[wanted[i]]
            _check_type(field, field.name)
            self._nodes[i] = batch.node(wanted[i])

    def __dealloc__(self):
        free(self._nodes)

    def encode(self, Py_ssize_t first, Py_ssize_t most_bytes):
        """Rows from `first` on as a Column: until it holds `most_bytes`, at least one row, or the batch ends.

        Releases the GIL. Raises MemoryError, and InvalidRecordError if another thread has changed the arrays.
        """
        cdef Output out
        cdef Column column = Column.__new__(Column)
        cdef Py_ssize_t left
        cdef Py_ssize_t most_rows
        cdef Py_ssize_t count = 0
        cdef int64_t *offsets
        cdef int64_t longest = 0
        cdef int status = 0
        most_bytes = min(max(most_bytes, <Py_ssize_t>1), <Py_ssize_t>MOST_TEXT)
        if not 0 <= first < self._batch.row_count:
            raise IndexError(f"row {first} is outside the batch's {self._batch.row_count}")
        left = self._batch.row_count - first
        most_rows = min(left, max(most_bytes // 16, <Py_ssize_t>1))
        offsets = <int64_t *>column._allocate(most_rows + 1, sizeof(int64_t))
        out.size = 0
        out.has_bad_place = False
        out.capacity = min(most_bytes + most_bytes // 4, 2 * self._row_size * min(left, MOST_TEXT // self._row_size)) + 1024
        out.data = <char *>malloc(<size_t>out.capacity)
        if out.data is NULL:
            raise MemoryError
        with nogil:
            offsets[0] = 0
            while count < most_rows and (out.size < most_bytes or count == 0):
                status = self._append_row(&out, first + count)
                if status != 0:
                    break
                count += 1
                offsets[count] = out.size
                longest = max(longest, offsets[count] - offsets[count - 1])
        if status != 0:
            free(out.data)
            if out.has_bad_place:
                raise changed_error()
            raise MemoryError
        column._adopt(out.data)
        self._row_size = out.size // count + 1
        column.row_count = count
        column.c.layout = OFFSETS64
        column.c.offsets64 = offsets
        column.c.data = out.data
        column.c.data_size = out.size
        column.c.longest = longest
        return column

    cdef int _append_row(self, Output *out, int64_t i) noexcept nogil:
        cdef Py_ssize_t j
        cdef bint is_first = True
        for j in range(self._count):
            if append_member(out, self._nodes[j], i, &is_first, self._ignores_nulls) != 0:
                return -1
        return append_end(out, is_first, c"{", c"}")


cdef inline int append_end(Output *out, bint is_empty, char opening, char closing) noexcept nogil:
    """The closing bracket, after an opening one if nothing was written."""
    cdef char *p = reserve(out, 2)
    if p is NULL:
        return -1
    if is_empty:
        p[0] = opening
        p += 1
        out.size += 1
    p[0] = closing
    out.size += 1
    return 0


cdef inline int append_member(Output *out, const ArrowNode *node, int64_t i, bint *is_first, bint ignores_nulls) noexcept nogil:
    """`{` or `,`, the name and the value of one column in row i, or nothing."""
    cdef char *p
    cdef bint is_null = value_is_null(node, i)
    if is_null and ignores_nulls:
        return 0
    p = reserve(out, node.key_length + 8)
    if p is NULL:
        return -1
    p[0] = c"{" if is_first[0] else c","
    is_first[0] = False
    memcpy(p + 1, node.key, <size_t>node.key_length)
    out.size += 1 + node.key_length
    if is_null:
        return append_bytes(out, "null", 4)
    return append_value(out, node, i, ignores_nulls)


cdef inline bint value_is_null(const ArrowNode *node, int64_t i) noexcept nogil:
    if node.kind == NULL_TYPE or not is_valid(node, i):
        return True
    if node.kind == DICTIONARY:
        i = dictionary_row(node, i)
        return i >= 0 and value_is_null(node.dictionary, i)     # append_value finds that it is outside
    return False


cdef inline int bad_place(Output *out) noexcept nogil:
    out.has_bad_place = True
    return -1


cdef int append_value(Output *out, const ArrowNode *node, int64_t i, bint ignores_nulls) noexcept nogil:
    """The value of row i, which is not null; -1 without memory, or with a bad place."""
    cdef Kind kind = node.kind
    cdef int64_t place = node.offset + i
    cdef const char *data
    cdef Py_ssize_t size
    cdef char *p
    if kind == STRING32:
        size = bytes32(node, place, &data)
        return bad_place(out) if size < 0 else append_string(out, data, size)
    if kind >= STRUCT or (BINARY32 <= kind <= FIXED_BINARY):
        return append_sized(out, node, i, ignores_nulls)
    p = reserve(out, SCALAR_ROOM)
    if p is NULL:
        return -1
    if kind == INT8 and node.meaning == BOOLEANS:
        p = write_bool(p, node.values[place] != 0)
    elif INT8 <= kind < UINT64:
        p = write_integer(p, integer_at(kind, node.values, place))
    elif kind == FLOAT64:
        p = write_double(p, (<const double *>node.values)[place])
    elif kind == BOOL:
        p = write_bool(p, (node.values[place >> 3] >> (place & 7)) & 1)
    elif kind == UINT64:
        p = write_unsigned(p, (<const uint64_t *>node.values)[place])
    elif kind == FLOAT32:
        p = write_float(p, (<const float *>node.values)[place])
    elif kind == FLOAT16:
        p = write_float(p, float_of_half((<const uint16_t *>node.values)[place]))
    elif kind == DECIMAL:
        p = write_decimal(p, <const uint8_t *>node.values + place * node.width, node.width, node.scale)
    else:
        p = write_quoted_time(p, node, place)
    out.size = p - out.data
    return 0


cdef inline Py_ssize_t bytes32(const ArrowNode *node, int64_t place, const char **data) noexcept nogil:
    """As bytes_at, for the commonest layout."""
    cdef int64_t begin = load_i32(&(<const int32_t *>node.values)[place])
    cdef int64_t size = load_i32(&(<const int32_t *>node.values)[place + 1]) - begin
    data[0] = node.data + begin
    return size if begin >= 0 and 0 <= size <= node.data_size - begin else -1


cdef inline char *write_bool(char *p, bint is_true) noexcept nogil:
    if is_true:
        memcpy(p, "true", 4)
        return p + 4
    memcpy(p, "false", 5)
    return p + 5


cdef char *write_quoted_time(char *p, const ArrowNode *node, int64_t place) noexcept nogil:
    cdef int64_t number
    p[0] = c'"'
    p += 1
    if node.width == 4:
        number = (<const int32_t *>node.values)[place]
    else:
        number = (<const int64_t *>node.values)[place]
    if node.kind == DATE32:
        p = write_date(p, number)
    elif node.kind == DATE64:
        p = write_date(p, number // MS_PER_DAY - (number % MS_PER_DAY < 0))
    elif node.kind == TIMESTAMP:
        p = write_timestamp(p, number, node.units_per_second, node.has_zone, node.zone_offset_s)
    else:
        p = write_time_of_day(p, number, node.units_per_second)
    p[0] = c'"'
    return p + 1


cdef int append_sized(Output *out, const ArrowNode *node, int64_t i, bint ignores_nulls) noexcept nogil:
    """Strings, bytes, dictionaries and nested values."""
    cdef Kind kind = node.kind
    cdef const char *data = NULL
    cdef Py_ssize_t size
    cdef int64_t row
    if kind == DICTIONARY:
        row = dictionary_row(node, i)
        return bad_place(out) if row < 0 else append_value(out, node.dictionary, row, ignores_nulls)
    if kind == STRUCT:
        return append_struct(out, node, i, ignores_nulls)
    if kind == MAP:
        return append_map(out, node, i, ignores_nulls)
    if kind > STRUCT:
        return append_list(out, node, i, ignores_nulls)
    size = bytes_at(node, i, &data)
    if size < 0:
        return bad_place(out)
    if kind == STRING32 or kind == STRING64 or kind == STRING_VIEW:
        return append_string(out, data, size)
    return append_uuid(out, data) if node.meaning == UUIDS else append_base64(out, data, size)


cdef int append_uuid(Output *out, const char *data) noexcept nogil:
    cdef char *p = reserve(out, UUID_TEXT + 2)
    if p is NULL:
        return -1
    p[0] = c'"'
    write_uuid(p + 1, data)
    p[UUID_TEXT + 1] = c'"'
    out.size += UUID_TEXT + 2
    return 0


cdef int append_struct(Output *out, const ArrowNode *node, int64_t i, bint ignores_nulls) noexcept nogil:
    cdef int64_t j
    cdef bint is_first = True
    for j in range(node.child_count):
        if append_member(out, &node.children[j], i, &is_first, ignores_nulls) != 0:
            return -1
    return append_end(out, is_first, c"{", c"}")


cdef int append_list(Output *out, const ArrowNode *node, int64_t i, bint ignores_nulls) noexcept nogil:
    """An array; null items are written."""
    cdef const ArrowNode *items = &node.children[0]
    cdef int64_t begin
    cdef int64_t end
    cdef int64_t j
    list_range(node, i, &begin, &end)
    if not has_items(node, begin, end):
        return bad_place(out)
    for j in range(begin, end):
        if append_bytes(out, "[" if j == begin else ",", 1) != 0:
            return -1
        if value_is_null(items, j):
            if append_bytes(out, "null", 4) != 0:
                return -1
        elif append_value(out, items, j, ignores_nulls) != 0:
            return -1
    return append_end(out, begin == end, c"[", c"]")


cdef int append_map(Output *out, const ArrowNode *node, int64_t i, bint ignores_nulls) noexcept nogil:
    """An object; null values are written, keys in quotes."""
    cdef const ArrowNode *keys = &node.children[0].children[0]
    cdef const ArrowNode *values = &node.children[0].children[1]
    cdef int64_t begin
    cdef int64_t end
    cdef int64_t j
    list_range(node, i, &begin, &end)
    if not has_items(node, begin, end):
        return bad_place(out)
    for j in range(begin, end):
        if append_bytes(out, "{" if j == begin else ",", 1) != 0 or append_key(out, keys, j, ignores_nulls) != 0:
            return -1
        if append_bytes(out, ":", 1) != 0:
            return -1
        if value_is_null(values, j):
            if append_bytes(out, "null", 4) != 0:
                return -1
        elif append_value(out, values, j, ignores_nulls) != 0:
            return -1
    return append_end(out, begin == end, c"{", c"}")


cdef int append_key(Output *out, const ArrowNode *keys, int64_t i, bint ignores_nulls) noexcept nogil:
    cdef Kind kind = keys.dictionary.kind if keys.kind == DICTIONARY else keys.kind
    if value_is_null(keys, i):
        return append_bytes(out, '"null"', 6)       # the specification forbids it
    if kind == STRING32 or kind == STRING64 or kind == STRING_VIEW:
        return append_value(out, keys, i, ignores_nulls)
    if append_bytes(out, '"', 1) != 0 or append_value(out, keys, i, ignores_nulls) != 0:
        return -1
    return append_bytes(out, '"', 1)


cdef int _check_type(Field field, str path) except -1:
    """Raise InvalidRecordError for a type without a JSON form."""
    cdef Field child
    cdef Field key
    if field.kind == DICTIONARY:
        return _check_type(field.dictionary, path)
    if field.kind == MAP:
        key = (<Field>field.children[0]).children[0]
        key = key.dictionary if key.kind == DICTIONARY else key
        if key.kind not in (STRING32, STRING64, STRING_VIEW, BOOL) and not INT8 <= key.kind <= UINT64:
            raise InvalidRecordError(
                f"column {path!r}: keys of a JSON object are strings, integers or booleans, not {key.type_name}"
            )
        for child in (<Field>field.children[0]).children:   # whatever the producer calls keys and values
            _check_type(child, f"{path}.{child.name}")
        return 0
    if field.kind == STRUCT and len({(<Field>child).name for child in field.children}) < len(field.children):
        names = [(<Field>child).name for child in field.children]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRecordError(f"column {path!r} has two fields {twice!r}: rename one")
    if field.kind == 0:
        raise InvalidRecordError(f"column {path!r} has type {field.type_name}, which has no form in JSON: cast it first")
    for child in field.children:
        _check_type(child, f"{path}.{child.name}")
    return 0
