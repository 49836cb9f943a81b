"""Tables that other libraries hand over through the Arrow PyCapsule interface."""

from kafkaprod._core.columns.arrow_array cimport ArrowNode, OwnedArray
from kafkaprod._core.columns.arrow_schema cimport Field
from kafkaprod._core.columns.arrow_structs cimport ArrowArrayStream, ArrowSchema


cdef class ArrowBatch:
    """Some rows of a table: columns of equal length."""

    cdef readonly Py_ssize_t row_count
    cdef readonly tuple fields              # of Field; immutable, nodes are made by it
    cdef OwnedArray _owner
    cdef bint _is_struct
    cdef dict _nodes                        # index of a column -> _Node

    cdef ArrowNode *node(self, Py_ssize_t index) except NULL


cdef class ArrowStream:
    """The batches of a table, one after the other."""

    cdef ArrowArrayStream _stream
    cdef object _capsule
    cdef readonly tuple fields
    cdef Field _field
    cdef dict _sizes                        # of the source's buffers, by address; None: not known
    cdef OwnedArray _only                   # of __arrow_c_array__; None: a stream, or taken
    cdef bint _is_over

    cdef int _move_stream(self, ArrowSchema *schema) except -1
    cdef object _last_error(self, int code)
