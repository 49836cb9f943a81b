"""Requests from `send` to their outcome, in the order they were sent. Pure state.

The connection fills in the outcome of an `InFlightRequest` and appends the same object to its owner's list of finished
requests; the loop that polls calls its `on_done`.

Compiled for the reason that `outgoing` gives.
"""

cimport cython
from libc.stdint cimport int64_t

from collections import deque
from collections.abc import Callable
from typing import Any

from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.frames import MAX_FRAME_BYTES

OnDone = Callable[[Any, int], object]

cdef enum:
    NOT_WRITTEN = -1


@cython.final
cdef class InFlightRequest:
    """A request and, once it has ended, its outcome: a response, a body, or an error (none of them for acks=0).

    Attributes:
        node_id: The broker it was sent to.
        on_done: Called once, with this object and the time in ms, when the outcome is known; never by the connection.
        sent_at_ms: When it was queued.
        deadline_ms: When it counts as unanswered; a throttle moves it, to `latest_deadline_ms` at most.
        latest_deadline_ms: So far throttles may move the deadline; 0 before the first one.
        expects_response: False for acks=0: the request then ends when the socket has taken its last byte.
        response_type: Declaration that decodes the response; None: the raw body.
        max_response_bytes: A longer response ends the connection.
        end_position: The position after its last byte in the connection's outgoing stream.
        written_at_ms: When the socket took its last byte; -1 before that.
        response: The decoded response of a declared request.
        body: The raw response after its header, of a request that was sent encoded; it owns its memory.
        error: Why there is no response; None on success.
        is_possibly_persisted: On error: whether the broker may have acted on the request.
        latency_ms: From `send` to the response; 0 without one.
    """

    def __cinit__(self, node_id, on_done, api_key, version, correlation_id, int64_t sent_at_ms, int64_t deadline_ms,
                  bint expects_response=True):
        self.node_id = node_id
        self.on_done = on_done
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.sent_at_ms = sent_at_ms
        self.deadline_ms = deadline_ms
        self.expects_response = expects_response
        self.max_response_bytes = MAX_FRAME_BYTES
        self.written_at_ms = NOT_WRITTEN

    @property
    def write_ms(self):
        """The time from queuing until the socket took it; 0 before that."""
        return 0 if self.written_at_ms == NOT_WRITTEN else self.written_at_ms - self.sent_at_ms


@cython.final
cdef class InFlightRequests:
    """A queue: answers must come in the order of the requests (protocol guide, "Network").

    Attributes:
        requests: Those in flight, oldest first; only the connection changes it.
    """

    def __cinit__(self):
        self.requests = deque()

    def __len__(self):
        return len(self.requests)

    def __iter__(self):
        return iter(self.requests)

    def add(self, InFlightRequest request not None):
        """Append the newest request."""
        self.requests.append(request)

    def next_answered(self):
        """Return the request that the next response must answer; None if none is expected."""
        return self._next_answered()

    cdef InFlightRequest _next_answered(self):
        cdef InFlightRequest request
        for request in self.requests:       # mostly the first
            if request.expects_response:
                return request
        return None

    def answered_by(self, correlation_id, int64_t sent_position):
        """Return the request that a response with `correlation_id` answers; it stays in flight until `remove`.

        Raises:
            CorruptDataError: It is not the oldest one, or was not sent to its last byte.
        """
        cdef InFlightRequest oldest = self._next_answered()
        if oldest is None or oldest.end_position > sent_position:
            raise CorruptDataError(f"the broker sent a response with correlation id {correlation_id} to no request")
        if correlation_id != oldest.correlation_id:
            raise CorruptDataError(
                f"response with correlation id {correlation_id}, expected {oldest.correlation_id}: not in order",
                api=oldest.api_key,
                correlation_id=oldest.correlation_id,
            )
        return oldest

    def remove(self, InFlightRequest request not None):
        """Remove a request that was answered; mostly the oldest one."""
        self.take_out(request)

    cdef int take_out(self, InFlightRequest request) except -1:
        if self.requests[0] is request:
            self.requests.popleft()
        else:
            self.requests.remove(request)
        return 0

    cdef bint mark_written(self, int64_t sent_position, int64_t now_ms) except -1:
        """Note that the socket has taken the bytes before `sent_position`; return whether one expects no response."""
        cdef InFlightRequest request
        cdef bint is_any_over = False
        for request in self.requests:
            if request.end_position <= sent_position:
                if request.written_at_ms == NOT_WRITTEN:
                    request.written_at_ms = now_ms
                is_any_over = is_any_over or not request.expects_response
        return is_any_over

    def move_sent_without_response(self, int64_t sent_position, list target not None):
        """Move the requests that expect no response and were sent to their last byte to `target`, one by one.

        Nothing between the two steps needs memory: a request is in one place only, even if memory runs out.
        """
        cdef InFlightRequest request
        cdef Py_ssize_t at = 0
        requests = self.requests
        while at < len(requests):
            request = requests[at]
            if request.expects_response or request.end_position > sent_position:
                at += 1
                continue
            target.append(request)
            del requests[at]

    def expired(self, int64_t now_ms):
        """Return the first request whose deadline has come, if any."""
        cdef InFlightRequest request
        for request in self.requests:
            if request.deadline_ms <= now_ms:
                return request
        return None

    def next_deadline_ms(self):
        """Return the earliest deadline; None when nothing is in flight."""
        cdef InFlightRequest request
        cdef int64_t earliest = 0
        cdef bint is_any = False
        for request in self.requests:
            if not is_any or request.deadline_ms < earliest:
                earliest = request.deadline_ms
                is_any = True
        return earliest if is_any else None

    def extend_deadlines(self, int64_t extra_ms):
        """Give every request more time, up to twice its timeout."""
        cdef InFlightRequest request
        for request in self.requests:
            if request.latest_deadline_ms == 0:
                request.latest_deadline_ms = 2 * request.deadline_ms - request.sent_at_ms
            request.deadline_ms = min(request.deadline_ms + extra_ms, request.latest_deadline_ms)
