"""Integers from Python objects. See integers.pyx."""

from libc.stdint cimport int64_t


cdef int64_t to_int64(object number, str name, int64_t lowest, int64_t highest) except? -2
