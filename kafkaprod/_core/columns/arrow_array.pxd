"""Arrow arrays as a tree of checked pointers that nogil code may walk."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from kafkaprod._core.columns.arrow_schema cimport (
    FIXED_LIST, INT8, INT16, INT32, INT64, LIST32, LIST64, LIST_VIEW32, MAP, UINT16, UINT32, UINT64, Field, Kind,
    Meaning,
)
from kafkaprod._core.columns.arrow_structs cimport ArrowArray
from kafkaprod._core.machine.lock cimport load_i32, load_i64


cdef struct ArrowNode:
    # Row i is at place offset + i of each buffer; the children of a struct have the struct's rows.
    Kind kind
    Kind index_kind                 # DICTIONARY
    Meaning meaning
    int32_t width
    int32_t scale
    int32_t units_per_second
    int32_t zone_offset_s
    bint has_zone
    int64_t offset
    int64_t length
    const uint8_t *validity         # NULL: no nulls
    const char *values              # buffer 1: values, offsets, indices or views
    const char *data                # buffer 2: bytes; list views: sizes
    int64_t data_size               # bytes that offsets may reach
    const char **view_buffers
    const int64_t *view_buffer_sizes
    int64_t view_buffer_count
    const char *key                 # name as the start of a JSON member, '"name":'; the Field owns it
    Py_ssize_t key_length
    int64_t child_count
    ArrowNode *children
    ArrowNode *dictionary
    const ArrowNode *parent         # the struct that has these rows, too; NULL: none


cdef class OwnedArray:
    """Owns a moved ArrowArray, released when this dies, and the nodes made of it."""

    cdef ArrowArray array
    cdef void **_allocations
    cdef Py_ssize_t _allocation_count
    cdef list _kept                         # of make_batch: the buffers' owners
    cdef dict _sizes                        # address of a buffer -> its bytes, as far as they are known

    cdef void *_allocate(self, int64_t count, int64_t size) except NULL
    cdef ArrowNode *node(self, const ArrowArray *array, Field field, int64_t offset, int64_t length, str path) except NULL
    cdef int _fill(self, ArrowNode *node, const ArrowArray *array, Field field, int64_t offset, int64_t length,
                   str path) except -1
    cdef const void *_buffer(self, const ArrowArray *array, int64_t index, int64_t count, int64_t size, Field field,
                             str path) except? NULL
    cdef int _fill_buffers(self, ArrowNode *node, const ArrowArray *array, Field field, str path) except -1
    cdef const uint8_t *_visible_rows(self, const ArrowNode *node) except NULL
    cdef int64_t _known_size(self, const void *buffer) except -2
    cdef const void *_offsets(self, const ArrowArray *array, int64_t end, int64_t size, Field field, str path) except NULL
    cdef const char *_bytes(self, const ArrowArray *array, int64_t size, Field field, str path) except NULL
    cdef int _fill_views(self, ArrowNode *node, const ArrowArray *array, str path) except -1
    cdef int _fill_children(self, ArrowNode *node, const ArrowArray *array, Field field, str path) except -1


cdef enum:
    MOST_ROWS = 0x80000000000000            # rows times 16 bytes stay inside 63 bits


cdef OwnedArray new_owner()
cdef OwnedArray adopt_array(ArrowArray *source, dict sizes)


cdef inline bint is_valid(const ArrowNode *node, int64_t i) noexcept nogil:
    i += node.offset
    return node.validity is NULL or (node.validity[i >> 3] >> (i & 7)) & 1


cdef inline int64_t integer_at(Kind kind, const char *values, int64_t i) noexcept nogil:
    """The integer at place i; a UINT64 beyond int64 comes out negative."""
    if kind == INT64 or kind == UINT64:
        return (<const int64_t *>values)[i]
    if kind == INT32:
        return (<const int32_t *>values)[i]
    if kind == INT16:
        return (<const int16_t *>values)[i]
    if kind == INT8:
        return (<const int8_t *>values)[i]
    if kind == UINT32:
        return (<const uint32_t *>values)[i]
    if kind == UINT16:
        return (<const uint16_t *>values)[i]
    return (<const uint8_t *>values)[i]


cdef inline int64_t dictionary_row(const ArrowNode *node, int64_t i) noexcept nogil:
    """The row of the dictionary that row i names; -1 if its index, which is memory of the caller, has changed."""
    cdef int64_t row = integer_at(node.index_kind, node.values, node.offset + i)
    return row if 0 <= row < node.dictionary.length else -1


cdef inline bint has_items(const ArrowNode *node, int64_t begin, int64_t end) noexcept nogil:
    """Whether a range of list_range lies within the items; offsets are memory of the caller, which may change."""
    return 0 <= begin <= end <= node.children[0].length


cdef inline void list_range(const ArrowNode *node, int64_t i, int64_t *begin, int64_t *end) noexcept nogil:
    """The child rows of list row i; each offset is read once."""
    if node.kind == FIXED_LIST:
        begin[0] = (node.offset + i) * node.width
        end[0] = begin[0] + node.width
        return
    i += node.offset
    if node.kind == LIST32 or node.kind == MAP:
        begin[0] = load_i32(&(<const int32_t *>node.values)[i])
        end[0] = load_i32(&(<const int32_t *>node.values)[i + 1])
    elif node.kind == LIST64:
        begin[0] = load_i64(&(<const int64_t *>node.values)[i])
        end[0] = load_i64(&(<const int64_t *>node.values)[i + 1])
    elif node.kind == LIST_VIEW32:
        begin[0] = load_i32(&(<const int32_t *>node.values)[i])
        end[0] = begin[0] + load_i32(&(<const int32_t *>node.data)[i])
    else:
        begin[0] = load_i64(&(<const int64_t *>node.values)[i])
        # Unsigned: a hostile size must come out as an end before its begin, not as an overflow.
        end[0] = <int64_t>(<uint64_t>begin[0] + <uint64_t>load_i64(&(<const int64_t *>node.data)[i]))
