"""Rows as Avro records, from Arrow arrays straight into one column of bytes, without the GIL.

Covers what nearly all schemas consist of; the caller writes with fastavro what is not covered, and rows that do not fit.
Source: Apache Avro specification 1.12, "Binary encoding".
"""

cimport cython
from libc.math cimport isinf
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from kafkaprod._core.columns.arrow cimport ArrowBatch
from kafkaprod._core.columns.arrow_array cimport ArrowNode, dictionary_row, has_items, integer_at, is_valid, list_range
from kafkaprod._core.columns.arrow_schema cimport (
    BINARY32,
    BINARY64,
    BINARY_VIEW,
    BOOL,
    DATE32,
    DICTIONARY,
    FIXED_BINARY,
    FIXED_LIST,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    LIST32,
    NULL_TYPE,
    STRING32,
    STRING64,
    STRING_VIEW,
    STRUCT,
    TIMESTAMP,
    UINT64,
    Field,
    Kind,
)
from kafkaprod._core.columns.arrow_values cimport bytes_at, float_of_half
from kafkaprod._core.columns.columns cimport OFFSETS64, Column
from kafkaprod._core.text.json_text cimport sequence_length
from kafkaprod._core.text.text_output cimport Output, append_bytes, reserve

cdef enum:
    MOST_LONG = 10              # bytes of a variable-length integer
    MOST_DEPTH = 32
    NO_MEMORY = -1
    UNFIT = 1                   # a row does not fit the schema

cdef int64_t MOST_EXACT = <int64_t>1 << 53      # of integers as doubles; larger ones go the slow way, which looks closer

cdef enum Form:
    AS_BOOLEAN
    AS_INT
    AS_LONG
    AS_FLOAT
    AS_DOUBLE
    AS_BYTES
    AS_TEXT
    AS_FIXED
    AS_RECORD
    AS_ARRAY

cdef struct Step:
    # How the values of one column are written.
    Form form
    int null_branch             # of the union with null: 0 or 1; -1: no union
    const ArrowNode *node
    Kind kind                   # of the values; those of a dictionary, if it is one
    int64_t factor              # of times
    int64_t size                # AS_FIXED
    Py_ssize_t count
    Step *children

_FORMS = {
    "boolean": AS_BOOLEAN, "int": AS_INT, "date": AS_INT, "long": AS_LONG, "timestamp-millis": AS_LONG,
    "timestamp-micros": AS_LONG, "float": AS_FLOAT, "double": AS_DOUBLE, "bytes": AS_BYTES, "string": AS_TEXT,
    "fixed": AS_FIXED, "record": AS_RECORD, "array": AS_ARRAY,
}


@cython.final
cdef class AvroBatch:
    """Writes rows of one batch.

    Args:
        batch: The rows.
        columns: The column and the type of each field of the record, as `tables.avro.type_of` gives it.
        prefix: Stands before each record.
    Raises: NotImplementedError: a column and its type are not covered.
    """

    cdef ArrowBatch _batch
    cdef Step _root
    cdef bytes _prefix
    cdef Py_ssize_t _row_size           # bytes of a typical row so far

    def __cinit__(self, ArrowBatch batch not None, list columns not None, bytes prefix not None):
        cdef Py_ssize_t i
        self._batch = batch
        self._prefix = prefix
        self._row_size = 64
        self._root.children = _steps(len(columns))
        self._root.count = len(columns)
        for i in range(len(columns)):
            index, avro_type = columns[i]
            if not 0 <= index < len(batch.fields):
                raise IndexError(f"column {index} is outside the batch's {len(batch.fields)}")
            _fill(&self._root.children[i], batch.node(index), batch.fields[index], avro_type, 0)

    def __dealloc__(self):
        _free(&self._root)

    def encode(self, Py_ssize_t first, Py_ssize_t end):
        """Return the rows first .. end as a Column; None if one of them does not fit.

        Releases the GIL. Raises MemoryError.
        """
        cdef Output out
        cdef Column column = Column.__new__(Column)
        cdef Py_ssize_t count
        cdef Py_ssize_t i
        cdef int64_t *offsets
        cdef int64_t longest = 0
        cdef int status = 0
        cdef const char *prefix = self._prefix
        cdef Py_ssize_t prefix_size = len(self._prefix)
        if not 0 <= first <= end <= self._batch.row_count:
            raise IndexError(f"rows {first}..{end} are outside the batch's {self._batch.row_count}")
        count = end - first
        offsets = <int64_t *>column._allocate(count + 1, sizeof(int64_t))
        out.size = 0
        out.has_bad_place = False
        out.capacity = count * self._row_size + 1024
        out.data = <char *>malloc(<size_t>out.capacity)
        if out.data is NULL:
            raise MemoryError
        with nogil:
            offsets[0] = 0
            for i in range(count):
                status = append_bytes(&out, prefix, prefix_size)
                if status == 0:
                    status = append_fields(&out, &self._root, first + i)
                if status != 0:
                    break
                offsets[i + 1] = out.size
                longest = max(longest, offsets[i + 1] - offsets[i])
        if status != 0:
            free(out.data)
            if status == UNFIT:
                return None
            raise MemoryError
        column._adopt(out.data)
        if count:
            self._row_size = out.size // count + out.size // count // 8 + 8
        column.row_count = count
        column.c.layout = OFFSETS64
        column.c.offsets64 = offsets
        column.c.data = out.data
        column.c.data_size = out.size
        column.c.longest = longest
        return column


cdef Step *_steps(Py_ssize_t count) except NULL:
    cdef Step *steps = <Step *>calloc(<size_t>max(count, <Py_ssize_t>1), sizeof(Step))
    if steps is NULL:
        raise MemoryError
    return steps


cdef void _free(Step *step) noexcept:
    cdef Py_ssize_t i
    if step.children is not NULL:
        for i in range(step.count):
            _free(&step.children[i])
        free(step.children)


cdef int _fill(Step *step, const ArrowNode *node, Field field, tuple avro_type, int depth) except -1:
    """Fill the step of one column. Raises NotImplementedError."""
    cdef str name = avro_type[0]
    if depth > MOST_DEPTH:
        raise NotImplementedError("nested too deeply")
    step.null_branch = avro_type[1]
    step.form = _FORMS[name]
    step.node = node
    step.factor = 1
    step.kind = node.kind
    if node.kind == DICTIONARY:
        field = field.dictionary
        step.kind = field.kind
        if step.kind >= STRUCT:
            raise NotImplementedError("a dictionary of nested values")
    if step.kind == NULL_TYPE:
        return 0
    if step.form == AS_RECORD or step.form == AS_ARRAY:
        return _fill_nested(step, node, field, avro_type[2], depth)
    if not _fits(step, field, name, avro_type[2]):
        raise NotImplementedError(f"{field.type_name} as {name}")
    return 0


cdef int _fill_nested(Step *step, const ArrowNode *node, Field field, object detail, int depth) except -1:
    cdef Py_ssize_t i
    cdef list places
    if step.form == AS_ARRAY:
        if not LIST32 <= step.kind <= FIXED_LIST:
            raise NotImplementedError(f"{field.type_name} as array")
        step.children = _steps(1)
        step.count = 1
        return _fill(&step.children[0], &node.children[0], field.children[0], detail, depth + 1)
    names = [(<Field>child).name for child in field.children]
    if step.kind != STRUCT or len(set(names)) != len(names) or {name for name, _ in detail} != set(names):
        raise NotImplementedError(f"{field.type_name} as record")
    places = [names.index(name) for name, _ in detail]
    step.children = _steps(len(detail))
    step.count = len(detail)
    for i in range(len(detail)):
        _fill(&step.children[i], &node.children[<Py_ssize_t>places[i]], field.children[places[i]], detail[i][1], depth + 1)
    return 0


cdef bint _fits(Step *step, Field field, str name, object detail) except -1:
    """Whether values of the column's kind are written as this type; sets what that needs."""
    cdef Kind kind = step.kind
    if name == "date":
        return kind == DATE32
    if name == "timestamp-millis" or name == "timestamp-micros":
        wanted = 1_000 if name == "timestamp-millis" else 1_000_000
        if kind != TIMESTAMP or field.units_per_second <= 0 or wanted % field.units_per_second:
            return False
        step.factor = wanted // field.units_per_second
        return True
    if step.form == AS_BOOLEAN:
        return kind == BOOL
    if step.form == AS_INT or step.form == AS_LONG:
        return INT8 <= kind <= UINT64
    if step.form == AS_FLOAT or step.form == AS_DOUBLE:
        return INT8 <= kind < UINT64 or FLOAT16 <= kind <= FLOAT64
    if step.form == AS_FIXED:
        step.size = detail
        return kind == FIXED_BINARY or kind in (BINARY32, BINARY64, BINARY_VIEW)
    if name == "string":
        return kind in (STRING32, STRING64, STRING_VIEW)
    return kind in (BINARY32, BINARY64, BINARY_VIEW, FIXED_BINARY)


cdef inline int append_long(Output *out, int64_t value) noexcept nogil:
    """Append a variable-length integer, zigzag."""
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef char *p = reserve(out, MOST_LONG)
    if p is NULL:
        return NO_MEMORY
    while rest > 0x7f:
        p[0] = <char>(<unsigned char>(rest & 0x7f) | 0x80)
        p += 1
        rest >>= 7
    p[0] = <char>rest
    out.size = p + 1 - out.data
    return 0


cdef int append_fields(Output *out, const Step *record, int64_t i) noexcept nogil:
    cdef Py_ssize_t j
    cdef int status
    for j in range(record.count):
        status = append_value(out, &record.children[j], i)
        if status != 0:
            return status
    return 0


cdef int append_value(Output *out, const Step *step, int64_t i) noexcept nogil:
    """Append one value; UNFIT if it does not fit, NO_MEMORY."""
    cdef const ArrowNode *node = step.node
    cdef bint is_null = node.kind == NULL_TYPE or not is_valid(node, i)
    cdef char *p
    if not is_null and node.kind == DICTIONARY:
        i = dictionary_row(node, i)
        if i < 0:
            return UNFIT        # changed by another thread: the slow way refuses it, too
        node = node.dictionary
        is_null = not is_valid(node, i)
    if is_null:
        return UNFIT if step.null_branch < 0 else append_long(out, step.null_branch)
    if step.null_branch >= 0:
        p = reserve(out, 1)
        if p is NULL:
            return NO_MEMORY
        p[0] = <char>(2 - 2 * step.null_branch)     # zigzag of the other branch
        out.size += 1
    if step.form == AS_INT or step.form == AS_LONG:
        return append_integer(out, step, node, node.offset + i)
    if AS_BYTES <= step.form <= AS_FIXED:
        return append_sized(out, step, node, i)
    if step.form == AS_RECORD:
        return append_fields(out, step, i)
    if step.form == AS_ARRAY:
        return append_array(out, step, node, i)
    return append_number(out, step, node, node.offset + i)


cdef inline int append_integer(Output *out, const Step *step, const ArrowNode *node, int64_t place) noexcept nogil:
    cdef int64_t value
    if step.kind == TIMESTAMP:
        value = (<const int64_t *>node.values)[place]
        if value > INT64_MAX // step.factor or value < -(INT64_MAX // step.factor):
            return UNFIT
        value *= step.factor
    elif step.kind == DATE32:
        value = (<const int32_t *>node.values)[place]
    else:
        value = integer_at(step.kind, node.values, place)
        if step.kind == UINT64 and value < 0:
            return UNFIT
    if step.form == AS_INT and not INT32_MIN <= value <= INT32_MAX:
        return UNFIT
    return append_long(out, value)


cdef inline int append_sized(Output *out, const Step *step, const ArrowNode *node, int64_t i) noexcept nogil:
    cdef const char *data = NULL
    cdef Py_ssize_t size = bytes_at(node, i, &data)
    if size < 0:
        return UNFIT
    if step.form == AS_FIXED:
        return append_bytes(out, data, size) if size == step.size else UNFIT
    if step.form == AS_TEXT and not is_utf8(data, size):
        return UNFIT
    if append_long(out, size) != 0:
        return NO_MEMORY
    return append_bytes(out, data, size)


cdef bint is_utf8(const char *data, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t length
    cdef uint64_t word
    while i < size:
        while i + 8 <= size:                    # ASCII, eight at a time
            memcpy(&word, data + i, 8)
            if word & <uint64_t>0x8080808080808080:
                break
            i += 8
        if i == size:
            return True
        if <uint8_t>data[i] < 0x80:
            i += 1
            continue
        length = sequence_length(<const uint8_t *>data + i, size - i)
        if length < 0:
            return False
        i += length
    return True


cdef int append_array(Output *out, const Step *step, const ArrowNode *node, int64_t i) noexcept nogil:
    """Append the items as one block, and the empty block that ends an array."""
    cdef int64_t begin
    cdef int64_t end
    cdef int64_t j
    cdef int status
    list_range(node, i, &begin, &end)
    if not has_items(node, begin, end):
        return UNFIT
    if end > begin:
        if append_long(out, end - begin) != 0:
            return NO_MEMORY
        for j in range(begin, end):
            status = append_value(out, &step.children[0], j)
            if status != 0:
                return status
    return append_long(out, 0)


cdef int append_number(Output *out, const Step *step, const ArrowNode *node, int64_t place) noexcept nogil:
    """Append a boolean, float or double; numbers are little endian."""
    cdef double number
    cdef float narrow
    cdef int64_t whole
    cdef char *p = reserve(out, 8)
    if p is NULL:
        return NO_MEMORY
    if step.form == AS_BOOLEAN:
        p[0] = <char>((node.values[place >> 3] >> (place & 7)) & 1)
        out.size += 1
        return 0
    if step.kind == FLOAT64:
        number = (<const double *>node.values)[place]
    elif step.kind == FLOAT32:
        number = (<const float *>node.values)[place]
    elif step.kind == FLOAT16:
        number = float_of_half((<const uint16_t *>node.values)[place])
    else:
        whole = integer_at(step.kind, node.values, place)
        number = <double>whole
        # A double rounds what is beyond 53 bits, a float what is beyond 24.
        if not -MOST_EXACT <= whole <= MOST_EXACT or (step.form == AS_FLOAT and <double><float>number != number):
            return UNFIT
    if step.form == AS_DOUBLE:
        memcpy(p, &number, 8)
        out.size += 8
        return 0
    narrow = <float>number
    if isinf(narrow) and not isinf(number):
        return UNFIT
    memcpy(p, &narrow, 4)
    out.size += 4
    return 0
