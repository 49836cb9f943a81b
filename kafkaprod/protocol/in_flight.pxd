"""Requests from `send` to their outcome: see in_flight.pyx."""

from libc.stdint cimport int32_t, int64_t


cdef class InFlightRequest:
    cdef public object node_id
    cdef public object on_done
    cdef public object api_key
    cdef public int version
    cdef public int32_t correlation_id
    cdef public int64_t sent_at_ms
    cdef public int64_t deadline_ms
    cdef public bint expects_response
    cdef public object response_type
    cdef public int64_t max_response_bytes
    cdef public int64_t end_position
    cdef public int64_t written_at_ms
    cdef public object response
    cdef public object body
    cdef public object error
    cdef public bint is_possibly_persisted
    cdef public int64_t latency_ms
    cdef public int64_t latest_deadline_ms


cdef class InFlightRequests:
    cdef readonly object requests       # a deque

    cdef InFlightRequest _next_answered(self)
    cdef int take_out(self, InFlightRequest request) except -1
    cdef bint mark_written(self, int64_t sent_position, int64_t now_ms) except -1
