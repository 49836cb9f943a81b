"""Requests from `send` to their outcome, in the order they were sent. Pure state.

The connection fills in the outcome of an `InFlightRequest` and appends the same object to its owner's list of finished
requests; the loop that polls calls its `on_done`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from kafkaprod.errors import CorruptDataError, KafkaError
from kafkaprod.protocol.frames import MAX_FRAME_BYTES
from kafkaprod.protocol.schema import Response


@dataclass(slots=True, eq=False)
class InFlightRequest:
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
        written_at_ms: When the socket took its last byte; None before that.
        response: The decoded response of a declared request.
        body: The raw response after its header, of a request that was sent encoded; it owns its memory.
        error: Why there is no response; None on success.
        is_possibly_persisted: On error: whether the broker may have acted on the request.
        latency_ms: From `send` to the response; 0 without one.
    """

    node_id: int
    on_done: OnDone
    api_key: int
    version: int
    correlation_id: int
    sent_at_ms: int
    deadline_ms: int
    expects_response: bool = True
    response_type: type[Response] | None = None
    max_response_bytes: int = MAX_FRAME_BYTES
    end_position: int = 0
    written_at_ms: int | None = None
    response: Any = None
    body: memoryview | None = None
    error: KafkaError | None = None
    is_possibly_persisted: bool = False
    latency_ms: int = 0
    latest_deadline_ms: int = 0

    @property
    def write_ms(self) -> int:
        """The time from queuing until the socket took it; 0 before that."""
        return 0 if self.written_at_ms is None else self.written_at_ms - self.sent_at_ms


OnDone: TypeAlias = Callable[[InFlightRequest, int], object]


class InFlightRequests:
    """A queue: answers must come in the order of the requests (protocol guide, "Network").

    Attributes:
        requests: Those in flight, oldest first; only the methods change it.
    """

    def __init__(self) -> None:
        self.requests: deque[InFlightRequest] = deque()

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[InFlightRequest]:
        return iter(self.requests)

    def add(self, request: InFlightRequest) -> None:
        """Append the newest request."""
        self.requests.append(request)

    def next_answered(self) -> InFlightRequest | None:
        """Return the request that the next response must answer; None if none is expected."""
        for request in self.requests:  # mostly the first
            if request.expects_response:
                return request
        return None

    def answered_by(self, correlation_id: int, sent_position: int) -> InFlightRequest:
        """Return the request that a response with `correlation_id` answers; it stays in flight until `remove`.

        Raises:
            CorruptDataError: It is not the oldest one, or was not sent to its last byte.
        """
        oldest = self.next_answered()
        if oldest is None or oldest.end_position > sent_position:
            raise CorruptDataError(f"the broker sent a response with correlation id {correlation_id} to no request")
        if correlation_id != oldest.correlation_id:
            raise CorruptDataError(
                f"response with correlation id {correlation_id}, expected {oldest.correlation_id}: not in order",
                api=oldest.api_key,
                correlation_id=oldest.correlation_id,
            )
        return oldest

    def remove(self, request: InFlightRequest) -> None:
        """Remove a request that was answered; mostly the oldest one."""
        if self.requests[0] is request:
            self.requests.popleft()
        else:
            self.requests.remove(request)

    def note_written(self, sent_position: int, now_ms: int) -> bool:
        """Note that the socket has taken the bytes before `sent_position`; return whether one expects no response."""
        is_any_over = False
        for request in self.requests:
            if request.end_position <= sent_position:
                if request.written_at_ms is None:
                    request.written_at_ms = now_ms
                is_any_over = is_any_over or not request.expects_response
        return is_any_over

    def move_sent_without_response(self, sent_position: int, target: list[InFlightRequest]) -> None:
        """Move the requests that expect no response and were sent to their last byte to `target`, one by one.

        Nothing between the two steps needs memory: a request is in one place only, even if memory runs out.
        """
        requests = self.requests
        at = 0
        while at < len(requests):
            request = requests[at]
            if request.expects_response or request.end_position > sent_position:
                at += 1
                continue
            target.append(request)
            del requests[at]

    def expired(self, now_ms: int) -> InFlightRequest | None:
        """Return the first request whose deadline has come, if any."""
        return next((request for request in self.requests if request.deadline_ms <= now_ms), None)

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline; None when nothing is in flight."""
        return min([request.deadline_ms for request in self.requests], default=None)

    def extend_deadlines(self, extra_ms: int) -> None:
        """Give every request more time, up to twice its timeout."""
        for request in self.requests:
            if request.latest_deadline_ms == 0:
                request.latest_deadline_ms = 2 * request.deadline_ms - request.sent_at_ms
            request.deadline_ms = min(request.deadline_ms + extra_ms, request.latest_deadline_ms)
