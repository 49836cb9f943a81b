"""Types of Arrow columns, read from an ArrowSchema."""

from libc.stdint cimport int32_t

from kafkaprod._core.columns.arrow_structs cimport ArrowSchema


cdef enum Kind:
    UNSUPPORTED
    NULL_TYPE
    BOOL
    INT8
    INT16
    INT32
    INT64
    UINT8
    UINT16
    UINT32
    UINT64
    FLOAT16
    FLOAT32
    FLOAT64
    BINARY32            # int32 offsets
    BINARY64            # int64 offsets
    BINARY_VIEW
    STRING32
    STRING64
    STRING_VIEW
    FIXED_BINARY
    DECIMAL             # width bytes, two's complement, little endian
    DATE32              # days
    DATE64              # ms
    TIME32
    TIME64
    TIMESTAMP           # int64
    STRUCT
    LIST32
    LIST64
    LIST_VIEW32
    LIST_VIEW64
    FIXED_LIST
    MAP
    DICTIONARY          # of `dictionary`, by indices of the integer kind `index_kind`


cdef enum Meaning:
    # What values of an extension type stand for, where that is not what they are stored as.
    PLAIN_VALUES
    UUIDS               # FIXED_BINARY of 16 bytes
    BOOLEANS            # INT8


cdef class Field:
    """Name and type of one column, with its children. Immutable."""

    cdef readonly str name
    cdef readonly str type_name     # as pyarrow prints it, for messages
    cdef Kind kind
    cdef Kind index_kind
    cdef int32_t width              # FIXED_BINARY, DECIMAL: bytes; FIXED_LIST: items a row; others: bytes a value, or 0
    cdef int32_t scale              # DECIMAL
    cdef int32_t units_per_second   # TIMESTAMP, TIME32, TIME64
    cdef readonly str timezone      # TIMESTAMP; None: none
    cdef int32_t zone_offset_s      # of `timezone`, if it is a fixed one; else 0
    cdef readonly tuple children
    cdef readonly Field dictionary
    cdef Meaning meaning
    cdef bytes json_key             # '"name":', escaped


cdef Field read_field(const ArrowSchema *schema)
