"""Values of Arrow arrays as Python objects."""

from libc.stdint cimport int64_t, uint16_t

from kafkaprod._core.columns.arrow_array cimport ArrowNode
from kafkaprod._core.columns.arrow_schema cimport Field
from kafkaprod._core.columns.columns cimport Column


cdef enum:
    UUID_BYTES = 16
    UUID_TEXT = 36

cdef object python_value(const ArrowNode *node, Field field, int64_t i)
cdef object changed_error()
cdef Py_ssize_t bytes_at(const ArrowNode *node, int64_t i, const char **data) noexcept nogil
cdef Column uuid_texts(const ArrowNode *node)
cdef void write_uuid(char *text, const char *data) noexcept nogil
cdef float float_of_half(uint16_t half) noexcept nogil
