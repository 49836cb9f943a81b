"""Reads the format strings of the Arrow C data interface into Fields. With the GIL, once per stream.

Source: Arrow C data interface, "Data type description -- format strings". A type that is not known becomes UNSUPPORTED:
only a column that is used is complained about.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy
from kafkaprod._core.machine.types cimport forbid_new

from json.encoder import encode_basestring
import re

from kafkaprod.errors import InvalidRecordError

cdef enum:
    MOST_DEPTH = 64                 # of nested types: beyond it a schema is taken for a circle
    MOST_CHILDREN = 1 << 20
    MOST_PAIRS = 1 << 16            # of metadata
    MOST_METADATA = 1 << 26         # bytes of one key or value
    UUID_BYTES = 16
    MOST_FIELDS = 1 << 17           # nested ones included

# Extension types whose storage is no form of their values: a column of them that is used is refused by this name.
cdef dict OPAQUE = {
    "arrow.parquet.variant": "variant",
    "parquet.variant": "variant",
    "pandas.period": "period of pandas",
}
cdef dict PLAIN = {
    "n": (NULL_TYPE, 0, "null"),
    "b": (BOOL, 0, "bool"),
    "c": (INT8, 1, "int8"),
    "s": (INT16, 2, "int16"),
    "i": (INT32, 4, "int32"),
    "l": (INT64, 8, "int64"),
    "C": (UINT8, 1, "uint8"),
    "S": (UINT16, 2, "uint16"),
    "I": (UINT32, 4, "uint32"),
    "L": (UINT64, 8, "uint64"),
    "e": (FLOAT16, 2, "halffloat"),
    "f": (FLOAT32, 4, "float"),
    "g": (FLOAT64, 8, "double"),
    "z": (BINARY32, 4, "binary"),
    "Z": (BINARY64, 8, "large_binary"),
    "vz": (BINARY_VIEW, 16, "binary_view"),
    "u": (STRING32, 4, "string"),
    "U": (STRING64, 8, "large_string"),
    "vu": (STRING_VIEW, 16, "string_view"),
    "tdD": (DATE32, 4, "date32"),
    "tdm": (DATE64, 8, "date64"),
    "+s": (STRUCT, 0, "struct"),
    "+l": (LIST32, 4, "list"),
    "+L": (LIST64, 8, "large_list"),
    "+vl": (LIST_VIEW32, 4, "list_view"),
    "+vL": (LIST_VIEW64, 8, "large_list_view"),
    "+m": (MAP, 4, "map"),
}
cdef dict UNITS = {"s": 1, "m": 1000, "u": 1_000_000, "n": 1_000_000_000}
cdef dict UNIT_NAMES = {"s": "s", "m": "ms", "u": "us", "n": "ns"}


@cython.final
cdef class Field:
    def __repr__(self):
        return f"Field({self.name!r}, {self.type_name})"


forbid_new(Field)


cdef Field read_field(const ArrowSchema *schema):
    """The schema as Fields. Raises InvalidRecordError for a struct that breaks the specification."""
    cdef int64_t left = MOST_FIELDS
    return _read_field(schema, "", 0, &left)


cdef Field _read_field(const ArrowSchema *schema, str path, int depth, int64_t *left):
    """As `read_field`; `left` is how many more fields the schema may have: structs may share a child, forged ones
    twice at each depth."""
    cdef Field field = Field.__new__(Field)
    cdef int64_t i
    if schema is NULL or schema.release is NULL or schema.format is NULL:
        raise InvalidRecordError(f"the Arrow schema{path} is released or has no format")
    if depth > MOST_DEPTH:
        raise InvalidRecordError(f"the Arrow schema{path} is nested more than {MOST_DEPTH} deep")
    left[0] -= 1
    if left[0] < 0:
        raise InvalidRecordError(f"the Arrow schema has more than {MOST_FIELDS} fields, nested ones included")
    if not 0 <= schema.n_children <= MOST_CHILDREN or (schema.n_children > 0 and schema.children is NULL):
        raise InvalidRecordError(f"the Arrow schema{path} has n_children={schema.n_children} but no such children")
    field.name = "" if schema.name is NULL else (<bytes>schema.name).decode("utf-8", "replace")
    field.json_key = encode_basestring(field.name).encode("utf-8", "replace") + b":"
    field.children = tuple([_read_field(schema.children[i], f"{path}[{i}]", depth + 1, left) for i in range(schema.n_children)])
    _read_format(field, (<bytes>schema.format).decode("utf-8", "replace"))
    if schema.metadata is not NULL:
        _read_extension(field, _extension_of(schema.metadata, path))
    if schema.dictionary is not NULL:
        field.dictionary = _read_field(schema.dictionary, f"{path}.dictionary", depth + 1, left)
        field.type_name = f"dictionary<values={field.dictionary.type_name}, indices={field.type_name}>"
        field.index_kind = field.kind
        field.kind = DICTIONARY if INT8 <= field.kind <= UINT64 else UNSUPPORTED
    return field


cdef int _read_extension(Field field, str name) except -1:
    """Note what the values of an extension type mean; those whose storage is not what they are become UNSUPPORTED."""
    if name == "arrow.uuid" and field.kind == FIXED_BINARY and field.width == UUID_BYTES:
        field.meaning = UUIDS
    elif name == "arrow.bool8" and field.kind == INT8:
        field.meaning = BOOLEANS
    elif name in OPAQUE:
        field.kind = UNSUPPORTED
        field.type_name = OPAQUE[name]
    return 0


cdef str _extension_of(const char *metadata, str path):
    """Return the name of the extension type in the metadata of a field; "" if it has none.

    Source: Arrow C data interface, "ArrowSchema.metadata": the number of pairs, then length and bytes of each part.
    """
    cdef int32_t count
    cdef int32_t length
    cdef int32_t i
    memcpy(&count, metadata, 4)
    metadata += 4
    key = b""
    for i in range(2 * min(max(count, 0), MOST_PAIRS)):
        memcpy(&length, metadata, 4)
        if not 0 <= length <= MOST_METADATA:
            raise InvalidRecordError(f"the Arrow schema{path} has metadata of {length} bytes")
        text = metadata[4:4 + length]
        metadata += 4 + length
        if i % 2 == 0:
            key = text
        elif key == b"ARROW:extension:name":
            return text.decode("utf-8", "replace")
    return ""


cdef int _read_format(Field field, str text) except -1:
    cdef str parameter = text.partition(":")[2]
    if text in PLAIN:
        field.kind, field.width, field.type_name = PLAIN[text]
    elif text.startswith("w:"):
        field.kind, field.width = FIXED_BINARY, _number(parameter, 0, 1 << 30, text)
        field.type_name = f"fixed_size_binary[{field.width}]"
    elif text.startswith("+w:"):
        field.kind, field.width = FIXED_LIST, _number(parameter, 0, 1 << 30, text)
        field.type_name = "fixed_size_list"
    elif text.startswith("d:"):
        _read_decimal(field, parameter, text)
    elif text.startswith("ts") and text[2:3] in UNITS and text[3:4] == ":":
        field.kind, field.width = TIMESTAMP, 8
        field.units_per_second = UNITS[text[2]]
        field.timezone = parameter or None
        field.zone_offset_s = _offset_of_zone(parameter)
        field.type_name = f"timestamp[{UNIT_NAMES[text[2]]}{', tz=' + parameter if parameter else ''}]"
    elif text in ("tts", "ttm"):
        field.kind, field.width, field.units_per_second = TIME32, 4, UNITS[text[2]]
        field.type_name = f"time32[{UNIT_NAMES[text[2]]}]"
    elif text in ("ttu", "ttn"):
        field.kind, field.width, field.units_per_second = TIME64, 8, UNITS[text[2]]
        field.type_name = f"time64[{UNIT_NAMES[text[2]]}]"
    else:
        field.kind = UNSUPPORTED
        field.type_name = _name_of_unsupported(text)
    return _read_nesting(field)


cdef int _read_nesting(Field field) except -1:
    """Nested types: the right number of children, and their names in the type's own."""
    cdef Field child
    if field.kind == STRUCT:
        field.type_name = f"struct<{', '.join([f'{child.name}: {child.type_name}' for child in field.children])}>"
    elif field.kind in (LIST32, LIST64, LIST_VIEW32, LIST_VIEW64, FIXED_LIST, MAP):
        if len(field.children) != 1:
            raise InvalidRecordError(f"column {field.name!r}: a {field.type_name} has {len(field.children)} children")
        child = field.children[0]
        if field.kind == MAP and (child.kind != STRUCT or len(child.children) != 2):
            raise InvalidRecordError(f"column {field.name!r}: a map holds pairs, not {child.type_name}")
        field.type_name += f"<{child.type_name}>"
    return 0


cdef int _read_decimal(Field field, str parameter, str text) except -1:
    parts = parameter.split(",")
    if len(parts) not in (2, 3):
        raise InvalidRecordError(f"column {field.name!r}: Arrow format {text!r} is not one of the specification's")
    bits = _number(parts[2], 8, 1024, text) if len(parts) == 3 else 128
    field.scale = _number(parts[1], -(1 << 15), 1 << 15, text)
    field.kind = DECIMAL if bits in (32, 64, 128) else UNSUPPORTED
    field.width = bits // 8
    field.type_name = f"decimal{bits}({parts[0]}, {parts[1]})"
    return 0


cdef object _number(str text, int64_t least, int64_t most, str whole):
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise InvalidRecordError(f"Arrow format {whole[:40]!r} has {text[:20]!r} where {least}..{most} is due")
    return number


cdef str _name_of_unsupported(str text):
    if text.startswith("tD"):
        return f"duration[{UNIT_NAMES.get(text[2:], text[2:])}]"
    for start, name in (("ti", "interval"), ("+u", "union"), ("+r", "run_end_encoded")):
        if text.startswith(start):
            return name
    return f"Arrow format {text[:40]!r}"


cdef int32_t _offset_of_zone(str zone):
    """Seconds east of Greenwich of +HH:MM; 0 for UTC, and for a region: its times are then written in UTC."""
    match = re.fullmatch(r"([+-])(\d\d):?(\d\d)", zone)
    if match is None:
        return 0
    seconds = 3600 * int(match[2]) + 60 * int(match[3])
    return -seconds if match[1] == "-" else seconds
