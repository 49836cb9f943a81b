"""The requests of a connection and their answers, as pure state: the part of `client.Connection` that each request passes.

`Connection` has the rest: handshake, logins, timeouts, answers that come in pieces, the end.

Compiled for the reason that `outgoing` gives: a request and its answer were thirty calls of Python, whose code and data are
in no cache when they come.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcpy

from kafkaprod.errors import CorruptDataError, IllegalStateError, KafkaError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.frames import (
    MAX_FRAME_BYTES,
    encode_request,
    encode_request_frame_start,
    has_tagged_response_header,
)
from kafkaprod.protocol.messages import REQUESTS, RESPONSES
from kafkaprod.protocol.primitives import MAX_ELEMENTS, Reader

MAX_CORRELATION_ID = 2**31 - 1

# The largest answers to accept: decoding may take twenty times a response's size in memory. Others: MAX_FRAME_BYTES.
MAX_RESPONSE_BYTES = {ApiKey.METADATA: 32 << 20, ApiKey.INIT_PRODUCER_ID: 64 << 10}

cdef enum:
    SIZE_BYTES = 4              # of the size before a frame
    CORRELATION_ID_AT = 8       # in the frame of a request, size included
    ANSWER_START = 8            # size and correlation id of an answer


cdef inline void _put_i32(char *at, int64_t value) noexcept nogil:
    cdef int i
    for i in range(4):
        at[i] = <char>(value >> (24 - 8 * i))


cdef inline int32_t _get_i32(const char *at) noexcept nogil:
    cdef const unsigned char *b = <const unsigned char *>at
    return <int32_t>(<uint32_t>b[0] << 24 | <uint32_t>b[1] << 16 | <uint32_t>b[2] << 8 | b[3])


cdef bytes _frame_start(RequestKind kind, int64_t body_bytes, int32_t correlation_id, body):
    """Return size and header of a frame, and its body behind them if it is given."""
    cdef Py_ssize_t start_bytes = PyBytes_GET_SIZE(kind.start)
    cdef Py_ssize_t copied = 0 if body is None else body_bytes
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, start_bytes + copied)
    cdef char *at = PyBytes_AS_STRING(frame)
    memcpy(at, PyBytes_AS_STRING(kind.start), <size_t>start_bytes)
    _put_i32(at, start_bytes - SIZE_BYTES + body_bytes)
    _put_i32(at + CORRELATION_ID_AT, correlation_id)
    if copied:
        memcpy(at + start_bytes, PyBytes_AS_STRING(<bytes>body), <size_t>copied)
    return frame


@cython.final
cdef class RequestKind:
    """What all requests of one API and version on one connection have in common; made by an Exchange."""


cdef class Exchange:
    """Base of `Connection`.

    Args:
        client_id: Sent in each request header; None: none.
        node_id: The broker's id, for the requests' outcomes.
        finished: The list to which ended requests are appended.

    Attributes:
        outgoing: What the socket has not taken yet; for reading its positions.
        finished: Ended requests, in order; several connections may share it.
        is_ready: Whether requests may be sent.
        has_events: Whether `events` would return some. The last event is the end of the connection.
    """

    def __cinit__(self, *_, **__):
        self.outgoing = OutgoingBytes()
        self._in_flight = InFlightRequests()
        self.finished = []
        self._kinds = {}
        self._node_id = -1

    def __init__(self, client_id, node_id, list finished not None):
        self._client_id = client_id
        self._node_id = node_id
        self.finished = finished

    # -- state ---------------------------------------------------------------------------------------------------------

    def _note_ready(self, versions):
        """Take the versions of a connection that is ready now; None: it is not, or no longer."""
        self.is_ready = versions is not None
        self._kinds = {}
        if versions is not None:
            self._ranges = versions.ranges

    cdef bint takes(self, Py_ssize_t max_in_flight) except -1:
        """Return whether it is ready, the socket has taken all bytes, and fewer than that many have no outcome."""
        cdef OutgoingBytes out = self.outgoing
        return self.is_ready and out.queued_position == out.sent_position and \
            len(self._in_flight.requests) < max_in_flight

    @property
    def in_flight_count(self):
        """The number of requests without an outcome, including those of the handshake."""
        return len(self._in_flight.requests)

    @property
    def outgoing_bytes(self):
        """Bytes the socket has not taken yet."""
        return self.outgoing.queued_position - self.outgoing.sent_position

    def usable_version(self, api_key, int our_min, int our_max):
        """Return the highest version of an API that both sides support; None without one, or not known yet."""
        cdef int version = self.usable(api_key, our_min, our_max)
        return None if version == NO_VERSION else version

    cdef int usable(self, api_key, int our_min, int our_max) except -2:
        cdef int lowest
        cdef int highest
        found = None if self._ranges is None else self._ranges.get(api_key)
        if found is None:
            return NO_VERSION
        lowest, highest = found
        highest = min(our_max, highest)
        return highest if highest >= max(our_min, lowest) else NO_VERSION

    # -- requests ------------------------------------------------------------------------------------------------------

    def send(self, request not None, int version, *, on_done, int64_t now_ms, int64_t timeout_ms):
        """Queue a declared request; its response comes back decoded. Returns the correlation id.

        Raises:
            IllegalStateError: The connection is not ready.
            UnsupportedVersionError: The broker does not support that version. Nothing was queued in either case.
        """
        return self.send_request(request, version, on_done, now_ms, timeout_ms)

    cdef int32_t send_request(self, request, int version, on_done, int64_t now_ms, int64_t timeout_ms) except -1:
        self._sendable_kind(request.api, version)
        return self._put_request(request, version, on_done, now_ms, timeout_ms)

    def send_body(self, api_key, int version, parts not None, int64_t size, *, on_done, int64_t now_ms, int64_t timeout_ms,
                  bint expects_response=True, int64_t max_response_bytes=MAX_FRAME_BYTES):
        """Queue a request whose body is already encoded; its response comes back as bytes. Returns the correlation id.

        The parts are referenced, not copied, until the socket took them or the connection ended; they must not change
        before the request's outcome.

        Args:
            api_key: The API of the request.
            version: The version of body and header.
            parts: The body in order, each a Buffer or a ByteChain.
            size: Bytes of the body; must be the sum of the parts.
            on_done: Called with the outcome, by the owner of `finished`.
            now_ms: The time.
            timeout_ms: How long to wait for the response.
            expects_response: False for Produce with acks=0.
            max_response_bytes: A longer response ends the connection.

        Raises:
            IllegalStateError: The connection is not ready, or `size` is wrong. Nothing was queued.
            UnsupportedVersionError: The broker does not support that version. Nothing was queued.
        """
        return self.send_parts(api_key, version, parts, size, on_done, now_ms, timeout_ms, expects_response,
                               max_response_bytes)

    cdef int32_t send_parts(self, api_key, int version, parts, int64_t size, on_done, int64_t now_ms, int64_t timeout_ms,
                            bint expects_response, int64_t max_response_bytes) except -1:
        cdef RequestKind kind = self._sendable_kind(api_key, version)
        cdef InFlightRequest request
        cdef int64_t actual = 0
        cdef int32_t correlation_id
        for part in parts:
            actual += <int64_t>(len(part) if isinstance(part, (bytes, bytearray)) else part.nbytes)
        if actual != size:
            raise IllegalStateError(f"request body of {actual} bytes was announced with {size} bytes", api=api_key)
        correlation_id = self._take_correlation_id()
        request = InFlightRequest(self._node_id, on_done, api_key, version, correlation_id, now_ms, now_ms + timeout_ms,
                                  expects_response)
        request.max_response_bytes = max_response_bytes
        self.outgoing.add(_frame_start(kind, size, correlation_id, None))
        for part in parts:
            self.outgoing.add(part)
        request.end_position = self.outgoing.queued_position
        self._in_flight.requests.append(request)
        return correlation_id

    def _queue(self, request, int version, on_done, int64_t now_ms, int64_t timeout_ms):
        """Queue a declared request in any state; return its correlation id."""
        return self._put_request(request, version, on_done, now_ms, timeout_ms)

    cdef int32_t _put_request(self, request, int version, on_done, int64_t now_ms, int64_t timeout_ms) except -1:
        cdef RequestKind kind = self._kind(request.api, version)
        cdef InFlightRequest entry
        cdef int32_t correlation_id = self._take_correlation_id()
        body = request.quick_body(version)
        if body is None:
            frame = b"".join(encode_request(request, version, correlation_id, self._client_id))
        else:
            frame = _frame_start(kind, len(<bytes?>body), correlation_id, body)
        if kind.response_type is None:
            kind.response_type = RESPONSES[request.api]
        entry = InFlightRequest(self._node_id, on_done, request.api, version, correlation_id, now_ms, now_ms + timeout_ms)
        entry.response_type = kind.response_type
        entry.max_response_bytes = kind.max_response_bytes
        self.outgoing.add(frame)
        entry.end_position = self.outgoing.queued_position
        self._in_flight.requests.append(entry)
        return correlation_id

    def _check_sendable(self, api_key, int version):
        """Raise IllegalStateError or UnsupportedVersionError if such a request cannot be sent."""
        raise NotImplementedError

    cdef RequestKind _sendable_kind(self, api_key, int version):
        cdef RequestKind kind = None
        if self.is_ready:
            kind = self._kinds.get(<int64_t>api_key << 16 | version)
        if kind is None or not kind.is_checked:
            self._check_sendable(api_key, version)
            kind = self._kind(api_key, version)
            kind.is_checked = True
        return kind

    cdef RequestKind _kind(self, api_key, int version):
        cdef int64_t key = <int64_t>api_key << 16 | version
        cdef RequestKind kind = self._kinds.get(key)
        if kind is None:
            kind = RequestKind.__new__(RequestKind)
            is_flexible = REQUESTS[ApiKey(api_key)].is_flexible(version)
            kind.has_tagged_answer = has_tagged_response_header(api_key, is_flexible)
            kind.start = encode_request_frame_start(api_key, version, 0, self._client_id, is_flexible, 0)
            kind.max_response_bytes = MAX_RESPONSE_BYTES.get(api_key, MAX_FRAME_BYTES)
            self._kinds[key] = kind
        return kind

    cdef int32_t _take_correlation_id(self) noexcept:
        cdef int64_t correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        return <int32_t>correlation_id

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def data_to_send(self, Py_ssize_t limit):
        """Return at most `limit` buffers for the socket, in order, none empty; invalid after `data_sent`."""
        return self.outgoing.first(limit)

    def data_sent(self, int64_t nbytes, int64_t now_ms):
        """Note that the socket took `nbytes` of what `data_to_send` returned."""
        self.note_sent(nbytes, now_ms)

    cdef int note_sent(self, int64_t nbytes, int64_t now_ms) except -1:
        self.outgoing.drop(nbytes)
        if self._in_flight.mark_written(self.outgoing.sent_position, now_ms):
            self._in_flight.move_sent_without_response(self.outgoing.sent_position, self.finished)
        return 0

    def receive_data(self, data not None, int64_t now_ms):
        """Take bytes from the socket, split anywhere; return how many requests they answer.

        Bytes that must be kept are copied. A violation of the protocol ends the connection: `ConnectionFailed`
        with a CorruptDataError.
        """
        cdef Py_buffer view
        cdef Py_ssize_t size
        cdef Py_ssize_t taken
        cdef int64_t answered = 0
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            size = view.len
            taken = self.take_answers(<const char *>view.buf, size, now_ms, &answered)
        finally:
            PyBuffer_Release(&view)
        return answered if 0 < taken == size else answered + self._receive_parts(memoryview(data)[taken:], now_ms)

    def _receive_parts(self, data, int64_t now_ms):
        """Take bytes that do not begin with the oldest request's whole answer; return how many requests they answer."""
        raise NotImplementedError

    def connection_lost(self, error):
        """End the connection."""
        raise NotImplementedError

    cdef Py_ssize_t take_answers(self, const char *data, Py_ssize_t size, int64_t now_ms, int64_t *answered) except -1:
        """Finish the oldest requests, as long as what follows is a whole answer to the oldest one. Mostly all of it is.

        Adds to `answered` how many these are. Returns how many bytes were taken; all, if the connection has ended because
        an answer cannot be decoded.
        """
        cdef Py_ssize_t taken = 0
        cdef Py_ssize_t frame_bytes
        while taken < size:
            frame_bytes = self._take_answer(data + taken, size - taken, now_ms)
            if frame_bytes == NOT_TAKEN:
                break
            if frame_bytes == BROKEN:
                return size
            answered[0] += 1
            taken += frame_bytes
        return taken

    cdef Py_ssize_t _take_answer(self, const char *data, Py_ssize_t size, int64_t now_ms) except -1:
        """Finish the oldest request if the bytes begin with its whole answer; return the size of that, with its own field.

        NOT_TAKEN if they do not: nothing was done. BROKEN: it cannot be decoded, and the connection has ended.
        """
        cdef int64_t frame_bytes
        cdef InFlightRequest request
        cdef RequestKind kind
        cdef Py_ssize_t start = ANSWER_START
        if not self.is_ready or self._has_part_of_frame or size <= ANSWER_START or not self._in_flight.requests:
            return NOT_TAKEN
        request = self._in_flight.requests[0]
        frame_bytes = SIZE_BYTES + <int64_t>_get_i32(data)
        if not ANSWER_START < frame_bytes <= size or frame_bytes - SIZE_BYTES > request.max_response_bytes \
                or _get_i32(data + SIZE_BYTES) != request.correlation_id or not request.expects_response \
                or request.end_position > self.outgoing.sent_position:
            return NOT_TAKEN
        kind = self._kinds.get(<int64_t>request.api_key << 16 | request.version)
        if kind is None:
            return NOT_TAKEN    # of the handshake, or sent before a later one
        if kind.has_tagged_answer:
            if data[start] != 0:
                return NOT_TAKEN
            start += 1
        body = PyMemoryView_FromObject(PyBytes_FromStringAndSize(data + start, frame_bytes - start))
        try:
            self._finish_request(request, body, now_ms)
        except KafkaError as error:
            self.connection_lost(error)
            return BROKEN
        return frame_bytes

    def _finish(self, InFlightRequest request not None, body, int64_t now_ms):
        """Give a request its answer."""
        self._finish_request(request, body, now_ms)

    cdef int _finish_request(self, InFlightRequest request, body, int64_t now_ms) except -1:
        if request.response_type is None:
            request.body = body
        else:
            request.response = _decoded(request.response_type, body, request.version)
        request.latency_ms = now_ms - request.sent_at_ms
        self.finished.append(request)   # first: if there is no memory for it, the request is still in flight
        self._in_flight.take_out(request)
        return 0


cdef object _decoded(response_type, body, int version):
    """Read a response as Kafka's clients do: bytes after its end are ignored.

    librdkafka's mock cluster 2.16 adds one after its Metadata responses.
    """
    quick = response_type.read_quick(body, version)
    if quick is not None:
        return quick
    codec = response_type.codec(version, response_type.is_flexible(version))
    try:
        return codec.read(Reader(body, MAX_ELEMENTS))
    except CorruptDataError as error:
        raise CorruptDataError(f"{response_type.__name__} v{version}: {error}", api=response_type.api.name) from None
