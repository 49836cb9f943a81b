"""Takes ArrowArray structs over and checks them, so that loops without the GIL need no check.

What the C data interface allows to check is checked: counts of buffers and children, missing buffers, lengths of
children, offsets, views, indices. How long a plain buffer is it does not say: that is the producer's word, unless the
caller knows the sizes. An array is released exactly once, when the last column that reads it dies. Buffers that are not
aligned are copied.
"""

cimport cython
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset
from kafkaprod._core.machine.types cimport forbid_new

from kafkaprod._core.columns.arrow_schema cimport (
    BINARY32,
    BINARY64,
    BINARY_VIEW,
    BOOL,
    DICTIONARY,
    LIST_VIEW64,
    NULL_TYPE,
    STRING32,
    STRING64,
    STRING_VIEW,
    STRUCT,
    UNSUPPORTED,
)

from kafkaprod.errors import InvalidRecordError

cdef int64_t MOST_BYTES = 0x7FFFFFFFFFFFFFFF
cdef const char *NO_BYTES = ""


cdef OwnedArray new_owner():
    """Return an owner of nothing yet."""
    return OwnedArray.__new__(OwnedArray)


cdef OwnedArray adopt_array(ArrowArray *source, dict sizes):
    """Move the struct out of `source` and mark that as released, as the specification demands.

    With `sizes`, bytes of a buffer by its address, buffers that are shorter than their rows need are refused.
    """
    cdef OwnedArray owner = new_owner()
    if source is NULL or source.release is NULL:
        raise InvalidRecordError("the Arrow array has been released, or was consumed before")
    owner._sizes = sizes
    owner.array = source[0]
    source.release = NULL
    return owner


@cython.final
cdef class OwnedArray:
    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.array.release is not NULL:
            self.array.release(&self.array)
        for i in range(self._allocation_count):
            free(self._allocations[i])
        free(self._allocations)

    cdef void *_allocate(self, int64_t count, int64_t size) except NULL:
        """Zeroed memory that lives as long as this object."""
        cdef void **grown = <void **>realloc(self._allocations, <size_t>(self._allocation_count + 1) * sizeof(void *))
        if grown is NULL:
            raise MemoryError
        self._allocations = grown
        if not 0 <= count <= MOST_BYTES // max(size, <int64_t>1):
            raise MemoryError
        cdef size_t total = <size_t>max(count * size, <int64_t>1)
        cdef void *memory = malloc(total)
        if memory is NULL:
            raise MemoryError
        memset(memory, 0, total)
        self._allocations[self._allocation_count] = memory
        self._allocation_count += 1
        return memory

    cdef ArrowNode *node(self, const ArrowArray *array, Field field, int64_t offset, int64_t length, str path) except NULL:
        """A checked node for `array`: rows from `offset` on (besides its own), or all that it has if length is -1."""
        cdef ArrowNode *node = <ArrowNode *>self._allocate(1, sizeof(ArrowNode))
        self._fill(node, array, field, offset, length, path)
        return node

    cdef int _fill(self, ArrowNode *node, const ArrowArray *array, Field field, int64_t offset, int64_t length,
                   str path) except -1:
        if array is NULL or array.release is NULL:
            raise InvalidRecordError(f"column {path!r}: its Arrow array is missing or released")
        if not 0 <= array.length <= <int64_t>MOST_ROWS or not 0 <= array.offset <= <int64_t>MOST_ROWS:
            raise InvalidRecordError(f"column {path!r}: length={array.length}, offset={array.offset} is no Arrow array")
        if length < 0:
            length = array.length
        if offset + length > array.length:
            raise InvalidRecordError(
                f"column {path!r} has {array.length} rows, but its parent reads up to row {offset + length}"
            )
        if field.kind == UNSUPPORTED:
            raise InvalidRecordError(f"column {path!r} has type {field.type_name}, which is not supported: cast it first")
        node.kind = field.kind
        node.index_kind = field.index_kind
        node.width = field.width
        node.scale = field.scale
        node.units_per_second = field.units_per_second
        node.zone_offset_s = field.zone_offset_s
        node.has_zone = field.timezone is not None
        node.offset = array.offset + offset
        node.length = length
        node.meaning = field.meaning
        node.key = field.json_key
        node.key_length = len(field.json_key)
        if field.kind == NULL_TYPE:
            return 0
        if not 1 <= array.n_buffers <= 1 << 30 or array.buffers is NULL:
            raise InvalidRecordError(f"column {path!r} of type {field.type_name} has {array.n_buffers} buffers")
        if array.null_count != 0:
            node.validity = <const uint8_t *>array.buffers[0]
            if node.validity is NULL and array.null_count > 0:
                raise InvalidRecordError(f"column {path!r} has null_count={array.null_count} but no validity bitmap")
            if node.validity is not NULL:
                self._buffer(array, 0, (node.offset + node.length + 7) // 8, 1, field, path)
        return self._fill_buffers(node, array, field, path)

    cdef int _fill_buffers(self, ArrowNode *node, const ArrowArray *array, Field field, str path) except -1:
        cdef int64_t end = node.offset + node.length
        cdef Kind kind = node.kind
        cdef int64_t bad
        if kind == BOOL:
            node.values = <const char *>self._buffer(array, 1, (end + 7) // 8, 1, field, path)
        elif kind == STRUCT:
            pass
        elif kind == FIXED_LIST:
            if end > <int64_t>MOST_ROWS // max(<int64_t>field.width, <int64_t>1):
                raise InvalidRecordError(f"column {path!r}: {end} lists of {field.width} items are no Arrow array")
        elif kind in (BINARY32, STRING32, LIST32, MAP):
            node.values = <const char *>self._offsets(array, end, 4, field, path)
        elif kind in (BINARY64, STRING64, LIST64):
            node.values = <const char *>self._offsets(array, end, 8, field, path)
        elif kind == LIST_VIEW32 or kind == LIST_VIEW64:
            node.values = <const char *>self._buffer(array, 1, end, field.width, field, path)
            node.data = <const char *>self._buffer(array, 2, end, field.width, field, path)
        elif kind == DICTIONARY:
            node.values = <const char *>self._buffer(array, 1, end, _index_width(node.index_kind), field, path)
        else:
            node.values = <const char *>self._buffer(array, 1, end, field.width, field, path)
        if kind in (BINARY32, STRING32):
            node.data_size = (<const int32_t *>node.values)[end]
            node.data = self._bytes(array, node.data_size, field, path)
        elif kind in (BINARY64, STRING64):
            node.data_size = (<const int64_t *>node.values)[end]
            node.data = self._bytes(array, node.data_size, field, path)
        elif kind == BINARY_VIEW or kind == STRING_VIEW:
            self._fill_views(node, array, path)
        elif kind == DICTIONARY:
            node.dictionary = self.node(array.dictionary, field.dictionary, 0, -1, path)
        self._fill_children(node, array, field, path)
        with nogil:
            bad = _first_bad_row(node)
        if bad >= 0 and _is_hidden(node, bad):
            node.validity = self._visible_rows(node)
            with nogil:
                bad = _first_bad_row(node)
        if bad >= 0:
            raise InvalidRecordError(f"column {path!r} of type {field.type_name}: row {bad} {_describe_bad(node, bad)}")
        return 0

    cdef const uint8_t *_visible_rows(self, const ArrowNode *node) except NULL:
        """A bitmap of the rows that are not null, neither by themselves nor because a struct above them is."""
        cdef uint8_t *validity = <uint8_t *>self._allocate((node.offset + node.length + 7) // 8, 1)
        cdef int64_t i
        for i in range(node.length):
            if is_valid(node, i) and not _is_hidden(node, i):
                validity[(node.offset + i) >> 3] |= <uint8_t>(1 << ((node.offset + i) & 7))
        return validity

    cdef const void *_buffer(self, const ArrowArray *array, int64_t index, int64_t count, int64_t size, Field field,
                             str path) except? NULL:
        """A buffer of `count` items, aligned to their size; NULL only where there are no items."""
        cdef const void *buffer
        cdef void *copy
        cdef int64_t known
        if index >= array.n_buffers:
            raise InvalidRecordError(f"column {path!r} of type {field.type_name} has only {array.n_buffers} buffers")
        if count > MOST_BYTES // max(size, <int64_t>1):
            raise InvalidRecordError(f"column {path!r}: {count} rows of {size} bytes are more than any memory")
        buffer = array.buffers[index]
        if buffer is NULL:
            if count * size > 0:
                raise InvalidRecordError(f"column {path!r} of type {field.type_name}: buffer {index} is missing")
            return NO_BYTES
        known = self._known_size(buffer)
        if 0 <= known < count * size:
            raise InvalidRecordError(
                f"column {path!r} of type {field.type_name}: its buffer {index} has {known} bytes, but its rows reach to "
                f"byte {count * size}"
            )
        if <size_t>buffer % <size_t>_alignment(size):
            copy = self._allocate(count, size)
            memcpy(copy, buffer, <size_t>(count * size))
            return copy
        return buffer

    cdef int64_t _known_size(self, const void *buffer) except -2:
        """The bytes of a buffer; -1: not known."""
        if self._sizes is None:
            return -1
        return <int64_t>self._sizes.get(<size_t>buffer, -1)

    cdef const void *_offsets(self, const ArrowArray *array, int64_t end, int64_t size, Field field, str path) except NULL:
        if end == 0 and array.n_buffers > 1 and (array.buffers[1] is NULL or self._known_size(array.buffers[1]) == 0):
            return self._allocate(1, size)      # the specification lets an empty array go without its one offset
        return self._buffer(array, 1, end + 1, size, field, path)

    cdef const char *_bytes(self, const ArrowArray *array, int64_t size, Field field, str path) except NULL:
        cdef const void *buffer = self._buffer(array, 2, max(size, <int64_t>0), 1, field, path)
        return <const char *>buffer

    cdef int _fill_views(self, ArrowNode *node, const ArrowArray *array, str path) except -1:
        """Views are followed by their data buffers and, last, the sizes of those."""
        cdef int64_t i
        cdef int64_t *sizes
        node.view_buffer_count = array.n_buffers - 3
        if node.view_buffer_count < 0:
            raise InvalidRecordError(f"column {path!r}: a view has {array.n_buffers} buffers, not at least 3")
        node.view_buffers = <const char **>(array.buffers + 2)
        if node.view_buffer_count > 0 and array.buffers[array.n_buffers - 1] is NULL:
            raise InvalidRecordError(f"column {path!r}: the sizes of its {node.view_buffer_count} data buffers are missing")
        # A copy: what views are checked against must not change with them.
        sizes = <int64_t *>self._allocate(node.view_buffer_count, sizeof(int64_t))
        memcpy(sizes, array.buffers[array.n_buffers - 1], <size_t>node.view_buffer_count * sizeof(int64_t))
        node.view_buffer_sizes = sizes
        for i in range(node.view_buffer_count):
            if node.view_buffers[i] is NULL and node.view_buffer_sizes[i] > 0:
                raise InvalidRecordError(f"column {path!r}: data buffer {i} is missing")
        return 0

    cdef int _fill_children(self, ArrowNode *node, const ArrowArray *array, Field field, str path) except -1:
        cdef int64_t i
        cdef Field child
        if array.n_children != len(field.children) or (array.n_children > 0 and array.children is NULL):
            raise InvalidRecordError(
                f"column {path!r} of type {field.type_name} has {array.n_children} children, not {len(field.children)}"
            )
        if array.n_children == 0:
            return 0
        node.child_count = array.n_children
        node.children = <ArrowNode *>self._allocate(array.n_children, sizeof(ArrowNode))
        for i in range(array.n_children):
            child = field.children[i]
            if node.kind == STRUCT:
                node.children[i].parent = node
                self._fill(&node.children[i], array.children[i], child, node.offset, node.length, f"{path}.{child.name}")
            else:
                self._fill(&node.children[i], array.children[i], child, 0, -1, f"{path}.{child.name}")
        return 0


forbid_new(OwnedArray)


cdef int64_t _alignment(int64_t size) noexcept:
    """Items of 16 bytes (views, decimals) are read in halves of 8; odd widths are bytes."""
    return 8 if size == 16 else size if size in (2, 4, 8) else 1


cdef int64_t _index_width(Kind kind) noexcept:
    if kind == INT64 or kind == UINT64:
        return 8
    if kind == INT32 or kind == UINT32:
        return 4
    return 2 if kind == INT16 or kind == UINT16 else 1


cdef bint _is_hidden(const ArrowNode *node, int64_t i) noexcept nogil:
    """Whether a struct above row i is null there: then the row has no value, and its place means nothing."""
    cdef const ArrowNode *parent = node.parent
    while parent is not NULL:
        if not is_valid(parent, i):
            return True
        parent = parent.parent
    return False


cdef int64_t _first_bad_row(const ArrowNode *node) noexcept nogil:
    """The first row whose place is outside its buffers or children, -1 if there is none."""
    cdef int64_t i
    cdef int64_t begin
    cdef int64_t end
    cdef int64_t limit
    cdef int32_t length
    cdef int32_t place[2]
    cdef Kind kind = node.kind
    if kind == BINARY32 or kind == STRING32:
        for i in range(node.offset, node.offset + node.length):
            begin = (<const int32_t *>node.values)[i]
            if begin < 0 or begin > (<const int32_t *>node.values)[i + 1]:
                return i - node.offset
    elif kind == BINARY64 or kind == STRING64:
        for i in range(node.offset, node.offset + node.length):
            begin = (<const int64_t *>node.values)[i]
            if begin < 0 or begin > (<const int64_t *>node.values)[i + 1]:
                return i - node.offset
    elif kind == BINARY_VIEW or kind == STRING_VIEW:
        for i in range(node.length):
            memcpy(&length, node.values + 16 * (node.offset + i), 4)
            memcpy(place, node.values + 16 * (node.offset + i) + 8, 8)
            if length <= 12 and length >= 0 or not is_valid(node, i):
                continue
            if (length < 0 or place[0] < 0 or place[0] >= node.view_buffer_count or place[1] < 0
                    or place[1] + <int64_t>length > node.view_buffer_sizes[place[0]]):
                return i
    elif kind == DICTIONARY:
        limit = node.dictionary.length
        for i in range(node.length):
            begin = integer_at(node.index_kind, node.values, node.offset + i)
            if (begin < 0 or begin >= limit) and is_valid(node, i):
                return i
    elif kind == FIXED_LIST:        # not row by row: lists of no items can be more than any loop ends with
        if node.length > 0 and (node.offset + node.length) * node.width > node.children[0].length:
            return node.children[0].length // max(node.width, 1) - node.offset
    elif kind in (LIST32, LIST64, LIST_VIEW32, LIST_VIEW64, MAP):
        limit = node.children[0].length
        for i in range(node.length):
            list_range(node, i, &begin, &end)
            if (begin < 0 or end < begin or end > limit) and (kind != LIST_VIEW32 and kind != LIST_VIEW64
                                                              or is_valid(node, i)):
                return i
    return -1


cdef str _describe_bad(const ArrowNode *node, int64_t row):
    cdef int64_t begin
    cdef int64_t end
    cdef int32_t length
    cdef int32_t place[2]
    if node.kind == DICTIONARY:
        begin = integer_at(node.index_kind, node.values, node.offset + row)
        return f"has index {begin}, outside the {node.dictionary.length} values"
    if node.kind == BINARY_VIEW or node.kind == STRING_VIEW:
        memcpy(&length, node.values + 16 * (node.offset + row), 4)
        memcpy(place, node.values + 16 * (node.offset + row) + 8, 8)
        return (f"has a view of {length} bytes at {place[1]} of buffer {place[0]}, outside the "
                f"{node.view_buffer_count} buffers")
    if node.child_count:
        list_range(node, row, &begin, &end)
        return f"has the range {begin}..{end}, which runs backwards or past the {node.children[0].length} items"
    row += node.offset
    if node.kind == BINARY32 or node.kind == STRING32:
        begin, end = (<const int32_t *>node.values)[row], (<const int32_t *>node.values)[row + 1]
    else:
        begin, end = (<const int64_t *>node.values)[row], (<const int64_t *>node.values)[row + 1]
    return f"has offsets {begin}..{end}, which run backwards"
