"""Import of record batches from any object that speaks the Arrow PyCapsule interface; no library is needed for it.

pyarrow, polars, duckdb, pandas, nanoarrow and others hand over the three C structs of `arrow_structs.pxd` in capsules.
They are moved out and released exactly once. Columns made here read the producer's buffers in place and keep them alive.
One stream serves one thread at a time; batches may be read by any thread.
"""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memset
from kafkaprod._core.machine.types cimport forbid_new

from kafkaprod._core.columns.arrow_array cimport (
    MOST_ROWS,
    adopt_array,
    dictionary_row,
    integer_at,
    is_valid,
    has_items,
    list_range,
    new_owner,
)
from kafkaprod._core.columns.arrow_schema cimport (
    BINARY32,
    BINARY64,
    BINARY_VIEW,
    BOOL,
    DATE32,
    DATE64,
    DICTIONARY,
    FIXED_BINARY,
    FIXED_LIST,
    INT8,
    INT64,
    LIST32,
    LIST64,
    LIST_VIEW32,
    LIST_VIEW64,
    MAP,
    NULL_TYPE,
    STRING32,
    STRING64,
    STRING_VIEW,
    STRUCT,
    TIMESTAMP,
    UINT64,
    UNSUPPORTED,
    UUIDS,
    read_field,
)
from kafkaprod._core.columns.arrow_structs cimport ArrowArray, ArrowSchema
from kafkaprod._core.columns.arrow_values cimport python_value, uuid_texts
from kafkaprod._core.columns.columns cimport (
    FIXED,
    NULLS,
    OFFSETS32,
    OFFSETS64,
    PLACES,
    VIEWS,
    ByteColumn,
    Column,
    Headers,
    Place,
    column_get,
)
from kafkaprod._core.records.integers cimport to_int64
from kafkaprod._core.records.record_view cimport NULL_LENGTH, HeaderView

import array
import os
import sys

from kafkaprod.errors import InvalidRecordError

cdef enum:
    NO_PARTITION = -1
    MOST_PAIRS = 0x7FFFFFFF     # headers of one batch; views of more would not fit any memory that a producer has
    MS_PER_DAY = 86_400_000

cdef str BYTE_TYPES = "string, binary, their large, view and fixed-size forms, or a dictionary of these"


@cython.final
cdef class ArrowStream:
    """Batches of an object with `__arrow_c_stream__` or `__arrow_c_array__`.

    Args: sizes: bytes of the object's buffers by their addresses, as far as they are known. The interface does not say
        them: without them, that a last offset or a row count lies within its buffer is the object's word.
    Attributes: fields: the columns' Fields (`name`, `type_name`). A lone array or series is a table of one column.
    Raises: InvalidRecordError: the object has neither method, or its structs break the specification.
    """

    def __cinit__(self, source not None, dict sizes=None):
        cdef ArrowSchema schema
        self._sizes = sizes
        memset(&schema, 0, sizeof(schema))
        if hasattr(source, "__arrow_c_stream__"):
            self._capsule = source.__arrow_c_stream__()
            self._move_stream(&schema)
        elif hasattr(source, "__arrow_c_array__"):
            schema_capsule, array_capsule = source.__arrow_c_array__()
            _move_schema(schema_capsule, &schema)
            try:
                self._only = adopt_array(<ArrowArray *>_pointer(array_capsule, b"arrow_array"), sizes)
            except BaseException:
                _release_schema(&schema)
                raise
        else:
            raise InvalidRecordError(
                f"{type(source).__name__} has neither __arrow_c_stream__ nor __arrow_c_array__: it is no Arrow table"
            )
        try:
            self._field = read_field(&schema)
        finally:
            _release_schema(&schema)
        self.fields = self._field.children if self._field.kind == STRUCT else (self._field,)

    def __dealloc__(self):
        if self._stream.release is not NULL:
            self._stream.release(&self._stream)

    cdef int _move_stream(self, ArrowSchema *schema) except -1:
        cdef ArrowArrayStream *source = <ArrowArrayStream *>_pointer(self._capsule, b"arrow_array_stream")
        cdef int code
        if source.release is NULL:
            raise InvalidRecordError("the Arrow stream has been released, or was consumed before")
        self._stream = source[0]
        source.release = NULL
        with nogil:
            code = self._stream.get_schema(&self._stream, schema)
        if code != 0:
            raise InvalidRecordError(f"the Arrow stream gives no schema: {self._last_error(code)}")
        return 0

    cdef object _last_error(self, int code):
        cdef const char *text = self._stream.get_last_error(&self._stream) if self._stream.get_last_error is not NULL else NULL
        return os.strerror(code) if text is NULL else (<bytes>text).decode("utf-8", "replace")

    def __iter__(self):
        return self

    def __next__(self):
        """The next batch. Raises InvalidRecordError with the stream's own words if it fails; it is over then."""
        cdef ArrowArray following
        cdef OwnedArray owner
        cdef int code
        if self._is_over:
            raise StopIteration
        if self._stream.release is NULL:
            self._is_over = True
            owner, self._only = self._only, None
            return _batch(self._field, owner)
        memset(&following, 0, sizeof(following))
        with nogil:
            code = self._stream.get_next(&self._stream, &following)
        if code != 0:
            self._is_over = True
            raise InvalidRecordError(f"the Arrow stream broke off: {self._last_error(code)}")
        if following.release is NULL:
            self._is_over = True
            raise StopIteration
        return _batch(self._field, adopt_array(&following, self._sizes))


cdef void *_pointer(object capsule, const char *name) except NULL:
    if not PyCapsule_IsValid(capsule, name):
        raise InvalidRecordError(f"expected a capsule {(<bytes>name).decode()!r}, not {capsule!r:.80}")
    return PyCapsule_GetPointer(capsule, name)


cdef int _move_schema(object capsule, ArrowSchema *schema) except -1:
    cdef ArrowSchema *source = <ArrowSchema *>_pointer(capsule, b"arrow_schema")
    schema[0] = source[0]
    source.release = NULL
    return 0


cdef void _release_schema(ArrowSchema *schema) noexcept:
    if schema.release is not NULL:
        schema.release(schema)


cdef ArrowBatch _batch(Field field, OwnedArray owner):
    cdef ArrowBatch batch = ArrowBatch.__new__(ArrowBatch)
    cdef ArrowArray *top = &owner.array
    cdef const uint8_t *validity
    cdef int64_t i
    if not 0 <= top.length <= <int64_t>MOST_ROWS or not 0 <= top.offset <= <int64_t>MOST_ROWS:
        raise InvalidRecordError(f"invalid Arrow batch: length={top.length}, offset={top.offset}")
    batch._owner = owner
    batch._nodes = {}
    batch.row_count = top.length
    batch._is_struct = field.kind == STRUCT
    batch.fields = field.children if batch._is_struct else (field,)
    if batch._is_struct:
        if top.n_children != len(batch.fields) or (top.n_children > 0 and top.children is NULL):
            raise InvalidRecordError(f"an Arrow batch has {top.n_children} columns, its schema {len(batch.fields)}")
        if top.null_count != 0 and top.n_buffers > 0 and top.buffers is not NULL and top.buffers[0] is not NULL:
            validity = <const uint8_t *>top.buffers[0]
            for i in range(top.offset, top.offset + top.length):
                if not (validity[i >> 3] >> (i & 7)) & 1:
                    raise InvalidRecordError(f"row {i - top.offset} of the table is itself null, not only its columns")
    return batch


@cython.final
cdef class _Node:
    # A node in a dict; the batch's owner has its memory.
    cdef ArrowNode *node


forbid_new(_Node)


@cython.final
cdef class ArrowBatch:
    """Rows of a table as columns. Methods take a column's index in `fields`; a bad column is named in the error."""

    cdef ArrowNode *node(self, Py_ssize_t index) except NULL:
        """The checked node of a column, checked at its first use."""
        cdef _Node entry
        cdef Field field
        if not 0 <= index < len(self.fields):
            raise IndexError(f"column {index} is outside the batch's {len(self.fields)}")
        entry = self._nodes.get(index)
        if entry is None:
            field = self.fields[index]
            entry = _Node.__new__(_Node)
            if self._is_struct:
                entry.node = self._owner.node(
                    self._owner.array.children[index], field, self._owner.array.offset, self.row_count, field.name
                )
            else:
                entry.node = self._owner.node(&self._owner.array, field, 0, -1, field.name)
            self._nodes[index] = entry
        return entry.node

    @staticmethod
    def from_columns(columns not None):
        """A batch of columns that are held as plain buffers.

        Args: columns: tuples (name, Arrow format, rows, [validity or None, further buffers]), all of as many rows.
        Raises: InvalidRecordError for columns of unequal length.
        """
        cdef OwnedArray owner = new_owner()
        cdef ArrowBatch batch = ArrowBatch.__new__(ArrowBatch)
        cdef ArrowArray *child
        cdef const void **places
        cdef Py_ssize_t i
        cdef Py_ssize_t j
        cdef int64_t row_count
        cdef list buffers
        cdef list given = [tuple(column) for column in columns]
        owner._kept = []
        batch._owner = owner
        batch._nodes = {}
        batch._is_struct = True
        batch.fields = tuple([_plain_field(name, text) for name, text, _, _ in given])
        owner.array.n_children = len(given)
        owner.array.children = <ArrowArray **>owner._allocate(len(given), sizeof(void *))
        for i in range(len(given)):
            name, _, rows, held = given[i]
            row_count = to_int64(rows, f"rows of column {name!r}", 0, MOST_ROWS)
            buffers = [None if buffer is None else memoryview(buffer).cast("B") for buffer in held]
            if i == 0:
                batch.row_count = row_count
            elif row_count != batch.row_count:
                raise InvalidRecordError(f"column {name!r} has {row_count} rows, {given[0][0]!r} {batch.row_count}")
            _check_plain_buffers(batch.fields[i], row_count, buffers)
            child = <ArrowArray *>owner._allocate(1, sizeof(ArrowArray))
            owner.array.children[i] = child
            child.release = _forget_array
            child.length = row_count
            child.null_count = 0 if buffers[0] is None else -1
            child.n_buffers = len(buffers)
            places = <const void **>owner._allocate(len(buffers), sizeof(void *))
            child.buffers = places
            for j in range(len(buffers)):
                if buffers[j] is not None:
                    places[j] = _address(owner, buffers[j])
        owner.array.length = batch.row_count
        return batch

    def byte_column(self, Py_ssize_t index):
        """A column of strings or bytes as a Column, without a copy."""
        cdef Field field = self.fields[index]
        return _column_of(self.node(index), self._owner, field.name, field.type_name)

    def headers(self, Py_ssize_t index):
        """A column list<struct<key, value>> or map as Headers; a null row has none.

        Raises: InvalidRecordError: another type, a null pair or a null key; it names the row.
        """
        cdef Field field = self.fields[index]
        return _headers_of(self.node(index), self._owner, field)

    def partitions(self, Py_ssize_t index):
        """An integer column as an array of int32; null gives -1, the partitioner's choice.

        Raises: InvalidRecordError: another type, a negative number or one beyond int32; it names the row.
        """
        cdef Field field = self.fields[index]
        cdef ArrowNode *node = self.node(index)
        cdef int32_t[::1] out
        cdef int32_t *start
        cdef int64_t bad
        if not INT8 <= node.kind <= UINT64 and node.kind != NULL_TYPE:
            raise InvalidRecordError(
                f"column {field.name!r} has type {field.type_name}: partitions must be integers, null for any"
            )
        result = array.array("i", bytes(4 * self.row_count))
        if self.row_count == 0:
            return result
        out = result
        start = &out[0]
        with nogil:
            bad = _copy_partitions(node, start)
        if bad >= 0:
            number = integer_at(node.kind, node.values, node.offset + bad)
            raise InvalidRecordError(f"column {field.name!r}: row {bad} is partition {number}, outside 0..{0x7FFFFFFF}")
        return result

    def timestamps_ms(self, Py_ssize_t index, int64_t now_ms):
        """A timestamp, date or int64 (ms) column as an array of int64 ms since the epoch; null gives `now_ms`.

        Fractions of a millisecond are cut off towards the past.
        Raises: InvalidRecordError: another type, or a time before 1970 or beyond int64 ms; it names the row.
        """
        cdef Field field = self.fields[index]
        cdef ArrowNode *node = self.node(index)
        cdef int64_t[::1] out
        cdef int64_t *start
        cdef int64_t bad
        if node.kind not in (INT64, DATE32, DATE64, TIMESTAMP, NULL_TYPE):
            raise InvalidRecordError(
                f"column {field.name!r} has type {field.type_name}: timestamps must be timestamp, date or int64 (ms)"
            )
        result = array.array("q", bytes(8 * self.row_count))
        if self.row_count == 0:
            return result
        out = result
        start = &out[0]
        with nogil:
            bad = _copy_timestamps(node, start, now_ms)
        if bad >= 0:
            raise InvalidRecordError(
                f"column {field.name!r}: row {bad} is before 1970 or beyond int64 ms: Kafka has no such timestamp"
            )
        return result

    def topics(self, Py_ssize_t index, default=None):
        """A string column as topic names: the distinct ones in order of appearance, and an array of int32, one a row.

        Args: default: the topic of null rows. Raises: InvalidRecordError: another type, a null row without a default,
        a name that is not UTF-8; it names the row.
        """
        cdef Field field = self.fields[index]
        cdef Column column = self.byte_column(index)
        cdef const char *data = NULL
        cdef const char *last = NULL
        cdef Py_ssize_t size
        cdef Py_ssize_t last_size = -2
        cdef int32_t number = 0
        cdef Py_ssize_t i
        cdef dict numbers = {}
        cdef int32_t[::1] out
        ids = array.array("i", bytes(4 * self.row_count))
        if self.row_count:
            out = ids
        for i in range(self.row_count):
            column_get(&column.c, i, &data, &size)
            # Rows of one topic are mostly adjacent: look into the dict only where a run ends.
            if size != last_size or (size > 0 and data != last and memcmp(data, last, <size_t>size) != 0):
                name = default if size < 0 else _decode_topic(data[:size], field.name, i)
                if name is None:
                    raise InvalidRecordError(f"column {field.name!r}: row {i} has a null topic, and no default is given")
                number = numbers.setdefault(name, <int32_t>len(numbers))
                last = data
                last_size = size
            out[i] = number
        return list(numbers), ids

    def to_pylist(self, indexes, Py_ssize_t first, Py_ssize_t end):
        """Rows first .. end as dicts of Python objects: slow, for Avro and tests. Raises as `python_value`."""
        columns = [((<Field>self.fields[i]).name, i) for i in indexes]
        for _, i in columns:
            self.node(i)
        if first < 0 or end > self.row_count:
            raise IndexError(f"rows {first}..{end} are outside the batch's {self.row_count}")
        return [{name: python_value(self.node(i), self.fields[i], row) for name, i in columns} for row in range(first, end)]


forbid_new(ArrowBatch)


cdef void _forget_array(ArrowArray *plain) noexcept:
    plain.release = NULL            # its memory belongs to the OwnedArray


cdef void _forget_schema(ArrowSchema *schema) noexcept:
    schema.release = NULL


cdef Field _plain_field(str name, str text):
    cdef ArrowSchema schema
    cdef bytes held_name = name.encode("utf-8", "replace")
    cdef bytes held_text = text.encode()
    memset(&schema, 0, sizeof(schema))
    schema.name = held_name
    schema.format = held_text
    schema.release = _forget_schema
    return read_field(&schema)


cdef int _check_plain_buffers(Field field, int64_t row_count, list buffers) except -1:
    """Raise InvalidRecordError if the buffers of a column are too few, too short, or of a type with children."""
    cdef list needed = [(row_count + 7) // 8]
    if field.kind in (BINARY_VIEW, STRING_VIEW, UNSUPPORTED) or field.kind >= STRUCT:
        raise InvalidRecordError(f"column {field.name!r} of type {field.type_name} is more than plain buffers")
    if field.kind == BOOL:
        needed.append((row_count + 7) // 8)
    elif BINARY32 <= field.kind <= STRING64:
        needed += [(row_count + 1) * field.width, 0]
    elif field.kind != NULL_TYPE:
        needed.append(row_count * field.width)
    sizes = [None if buffer is None else buffer.nbytes for buffer in buffers]
    if len(sizes) != len(needed) or None in sizes[1:]:
        raise InvalidRecordError(f"column {field.name!r} of type {field.type_name} needs {len(needed)} buffers")
    if len(needed) == 3 and sizes[1] >= needed[1]:
        needed[2] = int.from_bytes(buffers[1][row_count * field.width:needed[1]], sys.byteorder, signed=True)
    for i in range(len(needed)):
        if sizes[i] is not None and sizes[i] < needed[i]:
            raise InvalidRecordError(f"column {field.name!r}: buffer {i} has {sizes[i]} bytes, {row_count} rows need {needed[i]}")
    return 0


cdef const void *_address(OwnedArray owner, object raw) except? NULL:
    """Return where a view of bytes begins; it is held as long as `owner` lives."""
    cdef const uint8_t[::1] view
    owner._kept.append(raw)
    if not raw.nbytes:
        return NULL
    view = raw
    return &view[0]


cdef object _decode_topic(bytes name, str column, Py_ssize_t row):
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise InvalidRecordError(f"column {column!r}: row {row} is no topic name: {error}") from None


cdef int64_t _copy_partitions(const ArrowNode *node, int32_t *out) noexcept nogil:
    cdef int64_t i
    cdef int64_t number
    for i in range(node.length):
        if node.kind == NULL_TYPE or not is_valid(node, i):
            out[i] = NO_PARTITION
            continue
        number = integer_at(node.kind, node.values, node.offset + i)
        if not 0 <= number <= 0x7FFFFFFF:
            return i
        out[i] = <int32_t>number
    return -1


cdef int64_t _copy_timestamps(const ArrowNode *node, int64_t *out, int64_t now_ms) noexcept nogil:
    cdef int64_t i
    cdef int64_t number
    cdef int64_t factor = 1
    cdef int64_t divisor = 1
    if node.kind == DATE32:
        factor = MS_PER_DAY
    elif node.kind == TIMESTAMP:
        if node.units_per_second < 1000:
            factor = 1000
        divisor = max(<int64_t>(node.units_per_second // 1000), <int64_t>1)
    for i in range(node.length):
        if node.kind == NULL_TYPE or not is_valid(node, i):
            out[i] = now_ms
            continue
        if node.kind == DATE32:
            number = (<const int32_t *>node.values)[node.offset + i]
        else:
            number = (<const int64_t *>node.values)[node.offset + i]
        if number < 0 or number > <int64_t>0x7FFFFFFFFFFFFFFF // factor:
            return i
        out[i] = number * factor // divisor
    return -1


cdef Column _column_of(const ArrowNode *node, OwnedArray owner, str name, str type_name):
    cdef Column column = Column.__new__(Column)
    cdef int kind = node.kind
    column._kept = owner
    column.row_count = node.length
    column.c.start = node.offset
    column.c.validity = node.validity
    column.c.data = node.data
    column.c.data_size = node.data_size
    if kind == NULL_TYPE:
        column.c.layout = NULLS
        return column
    if kind == BINARY32 or kind == STRING32:
        column.c.layout = OFFSETS32
        column.c.offsets32 = <const int32_t *>node.values
    elif kind == BINARY64 or kind == STRING64:
        column.c.layout = OFFSETS64
        column.c.offsets64 = <const int64_t *>node.values
    elif kind == BINARY_VIEW or kind == STRING_VIEW:
        column.c.layout = VIEWS
        column.c.views = node.values
        column.c.view_buffers = node.view_buffers
        column.c.view_buffer_sizes = node.view_buffer_sizes
        column.c.view_buffer_count = node.view_buffer_count
    elif kind == FIXED_BINARY:
        if node.meaning == UUIDS:
            return uuid_texts(node)
        column.c.layout = FIXED
        column.c.data = node.values
        column.c.width = node.width
        column.c.longest = node.width
    elif kind == DICTIONARY:
        return _resolve(node, owner, name, type_name)
    else:
        raise InvalidRecordError(f"column {name!r} has type {type_name}: keys and values must be {BYTE_TYPES}")
    column.check(f"column {name!r}")
    return column


cdef Column _resolve(const ArrowNode *node, OwnedArray owner, str name, str type_name):
    """A dictionary column as places of its values."""
    cdef Column values = _column_of(node.dictionary, owner, name, type_name)
    cdef Column column = Column.__new__(Column)
    cdef Place *places = <Place *>column._allocate(node.length, sizeof(Place))
    cdef int64_t i
    cdef int64_t row
    column._kept = values
    column.row_count = node.length
    column.c.layout = PLACES
    column.c.places = places
    column.c.longest = values.c.longest
    with nogil:
        for i in range(node.length):
            places[i].data = NULL
            places[i].length = NULL_LENGTH
            if is_valid(node, i):
                row = dictionary_row(node, i)
                if row >= 0:    # else another thread has changed the index: a null, as for all columns of bytes
                    column_get(&values.c, row, &places[i].data, &places[i].length)
    return column


cdef Headers _headers_of(const ArrowNode *node, OwnedArray owner, Field field):
    cdef Headers headers
    cdef const ArrowNode *pairs
    cdef Field pair
    cdef Field key
    cdef Field value
    cdef Column keys
    cdef Column values
    cdef int64_t bad = -1
    if node.kind == NULL_TYPE:
        return Headers.from_python(None)
    if node.kind not in (LIST32, LIST64, LIST_VIEW32, LIST_VIEW64, FIXED_LIST, MAP):
        raise _wrong_headers(field)
    pair = field.children[0]
    if pair.kind != STRUCT or len(pair.children) != 2:
        raise _wrong_headers(field)
    key, value = pair.children
    if field.kind != MAP and (key.name != "key" or value.name != "value"):
        raise _wrong_headers(field)
    pairs = &node.children[0]
    keys = _column_of(&pairs.children[0], owner, f"{field.name}.{key.name}", key.type_name)
    values = _column_of(&pairs.children[1], owner, f"{field.name}.{value.name}", value.type_name)
    headers = Headers.__new__(Headers)
    headers._kept = (owner, keys, values)
    cdef int64_t count = _count_pairs(node)
    if count < 0:
        raise InvalidRecordError(f"column {field.name!r} has more than {MOST_PAIRS} headers")
    headers._make_rows(node.length, count)
    with nogil:
        bad = _fill_headers(node, pairs, &keys.c, &values.c, headers._views, headers._offsets, count)
    if bad >= 0:
        raise InvalidRecordError(f"column {field.name!r}: row {bad} has a header that is null, or whose key is")
    headers.c.headers = headers._views
    headers.c.offsets = headers._offsets
    return headers


cdef object _wrong_headers(Field field):
    return InvalidRecordError(
        f"column {field.name!r} has type {field.type_name}: headers must be list<struct<key: string, value: binary>> "
        "or a map of strings"
    )


cdef int64_t _count_pairs(const ArrowNode *node) noexcept nogil:
    """Return how many pairs all rows have together, -1 if they are more than MOST_PAIRS."""
    cdef int64_t i
    cdef int64_t begin
    cdef int64_t end
    cdef int64_t count = 0
    for i in range(node.length):
        if is_valid(node, i):
            list_range(node, i, &begin, &end)
            if not has_items(node, begin, end) or end - begin > MOST_PAIRS - count:
                return -1
            count += end - begin
    return count


cdef int64_t _fill_headers(const ArrowNode *node, const ArrowNode *pairs, const ByteColumn *keys, const ByteColumn *values,
                           HeaderView *views, int64_t *offsets, int64_t most) noexcept nogil:
    """Write one view a pair, at most `most`; return the first row with a null pair or key, or more pairs, or -1."""
    cdef int64_t row
    cdef int64_t i
    cdef int64_t begin
    cdef int64_t end
    cdef int64_t count = 0
    offsets[0] = 0
    for row in range(node.length):
        if is_valid(node, row):
            list_range(node, row, &begin, &end)
            if not has_items(node, begin, end) or end - begin > most - count:
                return row      # not as it was counted: another thread has changed the offsets
            for i in range(begin, end):
                views[count].key = NULL
                views[count].value = NULL
                column_get(keys, i, &views[count].key, &views[count].key_length)
                column_get(values, i, &views[count].value, &views[count].value_length)
                if views[count].key_length < 0 or not is_valid(pairs, i):
                    return row
                count += 1
        offsets[row + 1] = count
    return -1
