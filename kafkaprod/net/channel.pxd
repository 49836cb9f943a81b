"""A broker's connection, as each request passes it: see channel.pyx."""

from libc.stdint cimport int64_t

from kafkaprod.metrics.sums cimport NodeCounters
from kafkaprod.protocol.exchange cimport Exchange


cdef class Channel:
    cdef public Exchange protocol
    cdef public object failure
    cdef public bint has_answered
    cdef public int64_t last_active_ms
    cdef public object _transport       # None: not connecting yet, or closed
    cdef public int _fd                 # of a plain stream that is open; -1: the transport itself moves the bytes
    cdef public int _interest           # what the poller watches the transport for
    cdef public bint _is_plain          # no TLS, which may hold bytes that the poller does not see
    cdef public bint _is_open           # the transport is: bytes flow
    cdef public NodeCounters _metrics
    cdef public object _receive_buffer  # a writable buffer

    cdef int write(self, int64_t now_ms) except -1
    cdef int read(self, int64_t now_ms) except -1
    cdef Py_ssize_t _receive_bytes(self, char *target, Py_ssize_t room) except -1
    cdef int _take(self, char *data, Py_ssize_t size, int64_t now_ms) except -1


cdef class Link:
    cdef public Channel connection
    cdef public NodeCounters metrics
    cdef public int64_t throttled_until_ms
    cdef public bint is_steady

    cdef bint takes(self, int64_t now_ms, Py_ssize_t max_in_flight) except -1
