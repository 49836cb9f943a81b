"""The queue of bytes for a socket: see outgoing.pyx."""

from libc.stdint cimport int64_t


cdef class OutgoingBytes:
    cdef readonly int64_t queued_position
    cdef readonly int64_t sent_position
    cdef object _parts          # memoryviews, and chains of buffers
    cdef int64_t _taken         # bytes of the first part, if that is a chain; a view is cut instead

    cdef int add(self, part) except -1
    cdef list first(self, Py_ssize_t limit)
    cdef int drop(self, int64_t nbytes) except -1
    cdef int _drop_first(self) except -1
