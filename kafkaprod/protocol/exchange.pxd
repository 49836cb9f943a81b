"""Requests and answers of one connection: see exchange.pyx."""

from libc.stdint cimport int32_t, int64_t

from kafkaprod.protocol.in_flight cimport InFlightRequest, InFlightRequests
from kafkaprod.protocol.outgoing cimport OutgoingBytes

cdef enum:
    NO_VERSION = -1
    # What `_take_answer` did, if it did not finish a request:
    NOT_TAKEN = 0
    BROKEN = -2


cdef class RequestKind:             # what all requests of one API and version on one connection have in common
    cdef bint is_checked            # the broker supports it
    cdef bint has_tagged_answer     # the header of its answers ends with tagged fields
    cdef bytes start                # of its frames, with a size and correlation id of 0
    cdef object response_type       # decodes its answers
    cdef int64_t max_response_bytes


cdef class Exchange:
    cdef readonly OutgoingBytes outgoing
    cdef public list finished
    cdef readonly bint is_ready
    cdef public bint has_events
    cdef readonly InFlightRequests _in_flight
    cdef public int64_t _next_correlation_id
    cdef public bint _has_part_of_frame     # the splitter holds bytes of a frame that is not complete
    cdef object _ranges                     # API key -> (lowest, highest version) of the broker; None before it is ready
    cdef readonly object _node_id
    cdef object _client_id
    cdef dict _kinds                        # by API key << 16 | version

    cdef int usable(self, api_key, int our_min, int our_max) except -2
    cdef bint takes(self, Py_ssize_t max_in_flight) except -1
    cdef int32_t send_request(self, request, int version, on_done, int64_t now_ms, int64_t timeout_ms) except -1
    cdef int32_t send_parts(self, api_key, int version, parts, int64_t size, on_done, int64_t now_ms, int64_t timeout_ms,
                            bint expects_response, int64_t max_response_bytes) except -1
    cdef int32_t _put_request(self, request, int version, on_done, int64_t now_ms, int64_t timeout_ms) except -1
    cdef RequestKind _sendable_kind(self, api_key, int version)
    cdef RequestKind _kind(self, api_key, int version)
    cdef int32_t _take_correlation_id(self) noexcept
    cdef int note_sent(self, int64_t nbytes, int64_t now_ms) except -1
    cdef Py_ssize_t take_answers(self, const char *data, Py_ssize_t size, int64_t now_ms, int64_t *answered) except -1
    cdef Py_ssize_t _take_answer(self, const char *data, Py_ssize_t size, int64_t now_ms) except -1
    cdef int _finish_request(self, InFlightRequest request, body, int64_t now_ms) except -1
