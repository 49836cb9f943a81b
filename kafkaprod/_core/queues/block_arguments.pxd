"""The arguments of a block, checked. See block_arguments.pyx."""

from libc.stdint cimport int32_t, int64_t


cdef int check_timestamps(const int64_t *timestamps, Py_ssize_t row_count) except -1
cdef int take_partitions(const int32_t *partitions, Py_ssize_t row_count, str topic, int32_t partition_count,
                         int32_t *taken) except -1
cdef object int_array(object source, str name, str code, Py_ssize_t row_count)
cdef Py_ssize_t agree(list columns, object row_count) except -1
