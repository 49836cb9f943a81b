"""Single values of Arrow arrays: the bytes of a row, and any value as a Python object.

The objects are what pyarrow's to_pylist gives, but maps are dicts. Slow: for Avro, previews and tests.
"""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kafkaprod._core.columns.arrow_array cimport dictionary_row, has_items, integer_at, is_valid, list_range
from kafkaprod._core.columns.arrow_schema cimport (
    BINARY32,
    BINARY64,
    BOOL,
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
    TIME32,
    TIME64,
    UINT64,
    Kind,
)
from kafkaprod._core.columns.columns cimport PLACES, Column, Place, wrapping_difference
from kafkaprod._core.machine.lock cimport load_i32, load_i64
from kafkaprod._core.records.record_view cimport NULL_LENGTH

import datetime
import decimal
import zoneinfo

from kafkaprod.errors import InvalidRecordError

EPOCH = datetime.datetime(1970, 1, 1)

cdef const char *HEX = "0123456789abcdef"


cdef float float_of_half(uint16_t half) noexcept nogil:
    """An IEEE 754 half as a float."""
    cdef uint32_t bits = <uint32_t>(half & 0x7FFF) << 13
    cdef float number
    if (half & 0x7C00) == 0x7C00:
        bits |= 0x7F800000
        memcpy(&number, &bits, 4)
    else:
        # A half's exponent is biased by 15, a float's by 127; the product handles subnormal numbers too.
        memcpy(&number, &bits, 4)
        number *= <float>5.192296858534828e+33
    return -number if half & 0x8000 else number


cdef void write_uuid(char *text, const char *data) noexcept nogil:
    """Write the UUID_TEXT characters of a UUID: groups of 4, 2, 2, 2 and 6 bytes, in lower case."""
    cdef int i
    cdef unsigned char byte
    for i in range(UUID_BYTES):
        if i == 4 or i == 6 or i == 8 or i == 10:
            text[0] = c"-"
            text += 1
        byte = <unsigned char>data[i]
        text[0] = HEX[byte >> 4]
        text[1] = HEX[byte & 15]
        text += 2


cdef Column uuid_texts(const ArrowNode *node):
    """A column of UUIDs as their texts, as people write them."""
    cdef Column column = Column.__new__(Column)
    cdef Place *places = <Place *>column._allocate(node.length, sizeof(Place))
    cdef char *text = <char *>column._allocate(node.length, UUID_TEXT)
    cdef int64_t i
    column.row_count = node.length
    column.c.layout = PLACES
    column.c.places = places
    column.c.longest = UUID_TEXT
    with nogil:
        for i in range(node.length):
            places[i].data = NULL
            places[i].length = NULL_LENGTH
            if is_valid(node, i):
                places[i].data = text + UUID_TEXT * i
                places[i].length = UUID_TEXT
                write_uuid(text + UUID_TEXT * i, node.values + UUID_BYTES * (node.offset + i))
    return column


cdef object changed_error():
    """The error of a row whose place was right when the array was taken over, and is no longer."""
    return InvalidRecordError(
        "the Arrow buffers have changed while rows were read from them: the place of a value lies outside of its "
        "buffer; give a copy of memory that is used again"
    )


cdef Py_ssize_t bytes_at(const ArrowNode *node, int64_t i, const char **data) noexcept nogil:
    """Point at the bytes of row i of a string or binary column and return how many they are.

    The array was checked, but its offsets and views are memory of the caller, which another thread may change. Each is
    read once; -1 is returned for a place that lies outside of the data by now.
    """
    cdef Kind kind = node.kind
    cdef int64_t begin
    cdef int64_t size
    cdef int32_t length
    cdef int32_t place[2]
    i += node.offset
    if kind == BINARY32 or kind == STRING32:
        begin = load_i32(&(<const int32_t *>node.values)[i])
        size = load_i32(&(<const int32_t *>node.values)[i + 1]) - begin
    elif kind == BINARY64 or kind == STRING64:
        begin = load_i64(&(<const int64_t *>node.values)[i])
        size = wrapping_difference(load_i64(&(<const int64_t *>node.values)[i + 1]), begin)
    elif kind == FIXED_BINARY:
        data[0] = node.values + i * node.width
        return node.width
    else:
        memcpy(&length, node.values + 16 * i, 4)
        if 0 <= length <= 12:
            data[0] = node.values + 16 * i + 4
            return length
        memcpy(place, node.values + 16 * i + 8, 8)
        if (length < 0 or place[1] < 0 or not 0 <= place[0] < node.view_buffer_count
                or place[1] > node.view_buffer_sizes[place[0]] - length):
            return -1
        data[0] = node.view_buffers[place[0]] + place[1]
        return length
    if size < 0 or size > node.data_size or not 0 <= begin <= node.data_size - size:
        return -1
    data[0] = node.data + begin
    return <Py_ssize_t>size


cdef object python_value(const ArrowNode *node, Field field, int64_t i):
    """Row i as a Python object.

    Raises OverflowError for a time that datetime cannot hold (its range, nanoseconds), UnicodeDecodeError for a text that is
    not UTF-8.
    """
    cdef const char *data = NULL
    cdef Py_ssize_t size
    cdef Kind kind = node.kind
    cdef int64_t place = node.offset + i
    if kind == NULL_TYPE or not is_valid(node, i):
        return None
    if kind == DICTIONARY:
        place = dictionary_row(node, i)
        if place < 0:
            raise changed_error()
        return python_value(node.dictionary, field.dictionary, place)
    if kind == UINT64:
        return (<const uint64_t *>node.values)[place]
    if INT8 <= kind < UINT64:
        return integer_at(kind, node.values, place)
    if kind == BOOL:
        return bool((node.values[place >> 3] >> (place & 7)) & 1)
    if kind == FLOAT64:
        return (<const double *>node.values)[place]
    if kind == FLOAT32:
        return (<const float *>node.values)[place]
    if kind == FLOAT16:
        return float_of_half((<const uint16_t *>node.values)[place])
    if BINARY32 <= kind <= FIXED_BINARY:
        size = bytes_at(node, i, &data)
        if size < 0:
            raise changed_error()
        text = data[:size]
        return text.decode("utf-8") if kind in (STRING32, STRING64, STRING_VIEW) else text
    if kind == DECIMAL:
        number = int.from_bytes(node.values[place * node.width:(place + 1) * node.width], "little", signed=True)
        return decimal.Decimal((number < 0, tuple([int(c) for c in str(abs(number))]), -node.scale))
    if kind >= STRUCT:
        return _nested_value(node, field, i)
    return _time_value(node, field, place)


cdef object _nested_value(const ArrowNode *node, Field field, int64_t i):
    cdef int64_t begin
    cdef int64_t end
    cdef int64_t j
    cdef Field child
    if node.kind == STRUCT:
        row = {}
        for j in range(node.child_count):
            child = field.children[j]
            row[child.name] = python_value(&node.children[j], child, i)
        return row
    list_range(node, i, &begin, &end)
    if not has_items(node, begin, end):
        raise changed_error()
    child = field.children[0]
    if node.kind != MAP:
        return [python_value(&node.children[0], child, j) for j in range(begin, end)]
    pairs = {}
    for j in range(begin, end):
        key = python_value(&node.children[0].children[0], child.children[0], j)
        pairs[key] = python_value(&node.children[0].children[1], child.children[1], j)
    return pairs


cdef object _time_value(const ArrowNode *node, Field field, int64_t place):
    cdef object number
    if node.width == 4:
        number = (<const int32_t *>node.values)[place]
    else:
        number = (<const int64_t *>node.values)[place]
    if node.kind == DATE32:
        return (EPOCH + datetime.timedelta(days=number)).date()
    if node.kind == DATE64:
        return (EPOCH + datetime.timedelta(milliseconds=number)).date()
    if node.units_per_second > 1_000_000 and number % (node.units_per_second // 1_000_000):
        raise OverflowError(f"{number} ns are no whole microseconds")
    moment = EPOCH + datetime.timedelta(microseconds=number * 1_000_000 // node.units_per_second)
    if node.kind == TIME32 or node.kind == TIME64:
        return moment.time()
    if field.timezone is None:
        return moment
    return moment.replace(tzinfo=datetime.UTC).astimezone(_zone(field))


cdef object _zone(Field field):
    if field.zone_offset_s or field.timezone[:1] in "+-":
        return datetime.timezone(datetime.timedelta(seconds=field.zone_offset_s))
    try:
        return zoneinfo.ZoneInfo(field.timezone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return datetime.UTC
