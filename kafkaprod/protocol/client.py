"""The client's side of a connection, as pure state: bytes and times in; bytes, outcomes and events out.

    transport connected -> start() -> ... events(): SaslChallenge* -> ConnectionReady
    send() / send_body() -> data_to_send() -> socket -> data_sent()
    socket -> receive_data() -> the request, with its response, is appended to `finished`
    connection_lost() / on_time() -> all requests, with the error, appended to `finished`; events(): ConnectionFailed

`handshake` makes the requests of the handshake and of logins. The SASL mechanism itself is outside, as it may block:
`SaslChallenge` requests its next token, `sasl_token` and `sasl_complete` answer. When the broker limits the session
(KIP-368), the connection stops taking requests near its end, lets those in flight finish, and logs in again.

Responses come back in request order (protocol guide, "Network"): one that does not carry the oldest correlation id
ends the connection. When a connection ends, all its requests fail in the order they were sent. Each failure notes
whether the broker may have received the request: it may once the socket has taken the last byte.

Threads: one at a time; no I/O, no clock, no lock inside. Secrets pass through but never into a repr or a message.
Sources: protocol guide "Network" and "Common Request and Response Structure".
"""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Callable, Sequence

from kafkaprod.errors import (
    ConnectionLostError,
    CorruptDataError,
    IllegalStateError,
    KafkaError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kafkaprod.protocol.api_keys import ApiKey, api_name
from kafkaprod.protocol.client_events import ConnectionFailed, Event
from kafkaprod.protocol.frames import (
    CORRELATION_ID_BYTES,
    FRAME_SIZE_BYTES,
    MAX_FRAME_BYTES,
    FrameSplitter,
    encode_request,
    encode_request_frame_start,
    peek_correlation_id,
    split_response,
)
from kafkaprod.protocol.handshake import FRAME_LIMITS, Handshake, State
from kafkaprod.protocol.in_flight import InFlightRequest, InFlightRequests, OnDone
from kafkaprod.protocol.messages import REQUESTS, RESPONSES
from kafkaprod.protocol.negotiation import BrokerVersions
from kafkaprod.protocol.outgoing import OutgoingBytes
from kafkaprod.protocol.primitives import MAX_ELEMENTS, Buffer, ByteChain, Reader
from kafkaprod.protocol.schema import Request, Response

MAX_CORRELATION_ID = 2**31 - 1
_ANSWER_START = struct.Struct(">iiB")  # size, correlation id, number of tagged fields of the header if it has any
_READY_FRAME_LIMIT = FRAME_LIMITS[State.READY]  # looked up for each answer, which hashes a name

# The largest answers to accept: decoding may take twenty times a response's size in memory. Others: MAX_FRAME_BYTES.
MAX_RESPONSE_BYTES = {ApiKey.METADATA: 32 << 20, ApiKey.INIT_PRODUCER_ID: 64 << 10}


def _on_handshake(request: InFlightRequest, now_ms: int) -> None:
    """Mark the connection's own requests, which are never given to its owner."""


class Connection:
    """The state of one connection.

    Args:
        client_id: Sent in each request header, for the broker's logs, metrics and quotas.
        software_name: This client's, for ApiVersions (KIP-511): letters, digits, dots and dashes.
        software_version: Its version, of the same characters.
        sasl_mechanism: Name of the mechanism to log in with; None: no login.
        identity: (cluster id, node id) the broker must have, or it answers error 129 (KIP-1242); None: not checked.
        handshake_timeout_ms: How long to wait for each answer of the handshake and of a re-authentication.
        random: Spreads the times of re-authentication.
        node_id: The broker's id, for the requests' outcomes.
        finished: The list to which ended requests are appended, in order; several connections may share it.

    Attributes:
        outgoing: What the socket has not taken yet; for reading its positions.
        has_events: Whether `events` would return some. The last event is the end of the connection.
    """

    def __init__(
        self,
        *,
        client_id: str | None,
        software_name: str,
        software_version: str,
        sasl_mechanism: str | None = None,
        identity: tuple[str, int] | None = None,
        handshake_timeout_ms: int = 30_000,
        random: Callable[[], float] = random.random,
        node_id: int = -1,
        finished: list[InFlightRequest] | None = None,
    ) -> None:
        self.finished: list[InFlightRequest] = [] if finished is None else finished
        self._node_id = node_id
        self._client_id = client_id
        self._handshake_timeout_ms = handshake_timeout_ms
        self.outgoing = OutgoingBytes()
        self._splitter = FrameSplitter(FRAME_LIMITS[State.CREATED])
        self._in_flight = InFlightRequests()
        self._has_ended = False  # connection_lost() is through
        self._events: list[Event] = []
        self.has_events = False
        self._next_correlation_id = 0
        self._handshake = Handshake(
            self._ask,
            self._emit,
            software=(software_name, software_version),
            sasl_mechanism=sasl_mechanism,
            identity=identity,
            timeout_ms=handshake_timeout_ms,
            random=random,
        )

    def __repr__(self) -> str:
        return f"<Connection {self.state.name} in_flight={len(self._in_flight)} outgoing={len(self.outgoing)}>"

    # --- state -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The stage of the connection."""
        return self._handshake.state

    @property
    def is_ready(self) -> bool:
        """Whether requests may be sent."""
        return self._handshake.state is State.READY

    def takes_request(self, max_in_flight: int) -> bool:
        """Return whether it is ready, the socket has taken all bytes, and fewer than that many have no outcome."""
        out = self.outgoing
        return (
            self._handshake.state is State.READY
            and out.queued_position == out.sent_position
            and len(self._in_flight.requests) < max_in_flight
        )

    @property
    def in_flight_count(self) -> int:
        """The number of requests without an outcome, including those of the handshake."""
        return len(self._in_flight.requests)

    @property
    def outgoing_bytes(self) -> int:
        """Bytes the socket has not taken yet."""
        return self.outgoing.queued_position - self.outgoing.sent_position

    @property
    def versions(self) -> BrokerVersions | None:
        """The versions the broker announced; None before the connection is ready."""
        return self._handshake.versions

    def usable_version(self, api_key: int, our_min: int, our_max: int) -> int | None:
        """Return the highest version of an API that both sides support; None without one, or not known yet."""
        versions = self._handshake.versions
        return None if versions is None else versions.usable_version(api_key, our_min, our_max)

    # --- requests --------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Begin the handshake, when the transport is connected (and TLS, if any, complete).

        Raises:
            IllegalStateError: It was started before.
        """
        self._handshake.start(now_ms)

    def send(self, request: Request, version: int, *, on_done: OnDone, now_ms: int, timeout_ms: int) -> int:
        """Queue a declared request; its response comes back decoded. Returns the correlation id.

        Raises:
            IllegalStateError: The connection is not ready.
            UnsupportedVersionError: The broker does not support that version. Nothing was queued in either case.
        """
        self._check_sendable(request.api, version)
        return self._queue(request, version, on_done, now_ms, timeout_ms)

    def send_body(
        self,
        api_key: int,
        version: int,
        parts: Sequence[Buffer | ByteChain],
        size: int,
        *,
        on_done: OnDone,
        now_ms: int,
        timeout_ms: int,
        expects_response: bool = True,
        max_response_bytes: int = MAX_FRAME_BYTES,
    ) -> int:
        """Queue a request whose body is already encoded; its response comes back as bytes. Returns the correlation id.

        The parts are referenced, not copied, until the socket took them or the connection ended; they must not change
        before the request's outcome.

        Args:
            api_key: The API of the request.
            version: The version of body and header.
            parts: The body in order.
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
        self._check_sendable(api_key, version)
        actual = 0
        for part in parts:
            actual += len(part) if isinstance(part, bytes | bytearray) else part.nbytes
        if actual != size:
            raise IllegalStateError(f"request body of {actual} bytes was announced with {size} bytes", api=api_key)
        correlation_id = self._take_correlation_id()
        is_flexible = _is_flexible(api_key, version)
        header = encode_request_frame_start(api_key, version, correlation_id, self._client_id, is_flexible, size)
        request = InFlightRequest(
            self._node_id, on_done, api_key, version, correlation_id, now_ms, now_ms + timeout_ms, expects_response
        )
        request.max_response_bytes = max_response_bytes
        request.end_position = self.outgoing.append([header, *parts])
        self._in_flight.requests.append(request)
        return correlation_id

    def extend_deadlines(self, extra_ms: int) -> None:
        """Give the requests in flight more time: the broker throttles and answers late (KIP-219)."""
        self._in_flight.extend_deadlines(extra_ms)

    def _check_sendable(self, api_key: int, version: int) -> None:
        versions = self._handshake.versions
        if self._handshake.state is not State.READY or versions is None:
            raise IllegalStateError(f"a connection in state {self.state.name} takes no requests", api=api_key)
        lowest, highest = versions.ranges.get(api_key, (0, -1))
        if not lowest <= version <= highest:
            raise UnsupportedVersionError(
                f"{api_name(api_key)} version {version} is outside the broker's range {lowest}..{highest}", api=api_key
            )

    def _queue(self, request: Request, version: int, on_done: OnDone, now_ms: int, timeout_ms: int) -> int:
        api, correlation_id = request.api, self._take_correlation_id()
        frame = _frame(request, version, correlation_id, self._client_id)
        entry = InFlightRequest(self._node_id, on_done, api, version, correlation_id, now_ms, now_ms + timeout_ms)
        entry.response_type = RESPONSES[api]
        entry.max_response_bytes = MAX_RESPONSE_BYTES.get(api, MAX_FRAME_BYTES)
        entry.end_position = self.outgoing.append([frame])
        self._in_flight.requests.append(entry)
        return correlation_id

    def _take_correlation_id(self) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & MAX_CORRELATION_ID
        return correlation_id

    # --- bytes -----------------------------------------------------------------------------------------------------

    def data_to_send(self, limit: int) -> list[Buffer]:
        """Return at most `limit` buffers for the socket, in order, none empty; invalid after `data_sent`."""
        return self.outgoing.front(limit)

    def data_sent(self, nbytes: int, now_ms: int) -> None:
        """Note that the socket took `nbytes` of what `data_to_send` returned."""
        self.outgoing.advance(nbytes)
        if self._in_flight.note_written(self.outgoing.sent_position, now_ms):
            self._in_flight.move_sent_without_response(self.outgoing.sent_position, self.finished)

    def receive_data(self, data: Buffer, now_ms: int) -> int:
        """Take bytes from the socket, split anywhere; return how many requests they answer.

        Bytes that must be kept are copied. A violation of the protocol ends the connection: `ConnectionFailed`
        with a CorruptDataError.
        """
        if self._handshake.state is State.CLOSED:
            return 0
        answered = 0
        try:
            if self._handshake.state is State.READY and not self._splitter.incomplete_bytes:
                body = _whole_answer(self._in_flight.requests, data, self.outgoing.sent_position)
                if body is not None:
                    self._finish(self._in_flight.requests[0], body, now_ms)
                    return 1
            self._splitter.max_frame_bytes = self._frame_limit()
            for frame in self._splitter.feed(data):
                answered += self._on_frame(frame, now_ms)
                self._splitter.max_frame_bytes = self._frame_limit()
        except KafkaError as error:
            self.connection_lost(error)
        self._maybe_login_again(now_ms)
        return answered

    def _frame_limit(self) -> int:
        """Return the largest frame to accept now; once ready, the limit of the request to be answered next."""
        oldest = self._in_flight.next_answered()
        state = self._handshake.state
        limit = _READY_FRAME_LIMIT if state is State.READY else FRAME_LIMITS[state]
        return limit if oldest is None else min(limit, oldest.max_response_bytes)

    def _emit(self, event: Event) -> None:
        self._events.append(event)
        self.has_events = True

    def events(self) -> list[Event]:
        """Return the events since the last call, in order."""
        events, self._events = self._events, []
        self.has_events = False
        return events

    def _on_frame(self, frame: Buffer, now_ms: int) -> bool:
        """Finish the request that a frame answers; return False for the connection's own requests."""
        request = self._in_flight.answered_by(peek_correlation_id(frame), self.outgoing.sent_position)
        is_flexible = _is_flexible(request.api_key, request.version)
        _, body = split_response(frame, request.api_key, is_flexible)
        if request.on_done is _on_handshake:
            self._in_flight.remove(request)
            self._handshake.on_response(request.version, body, now_ms)
            return False
        self._finish(request, body, now_ms)
        return True

    def _finish(self, request: InFlightRequest, body: memoryview, now_ms: int) -> None:
        if request.response_type is None:
            request.body = body
        else:
            request.response = _decoded(request.response_type, body, request.version)
        request.latency_ms = now_ms - request.sent_at_ms
        self.finished.append(request)  # first: if there is no memory for it, the request is still in flight
        self._in_flight.remove(request)

    # --- login -----------------------------------------------------------------------------------------------------

    def sasl_token(self, token: bytes, now_ms: int) -> None:
        """Send the mechanism's next token to the broker, in answer to `SaslChallenge`.

        Raises:
            IllegalStateError: No token is awaited.
        """
        self._handshake.sasl_token(token, now_ms)

    def sasl_complete(self, now_ms: int) -> None:
        """Complete the login: the mechanism has accepted the broker's proof.

        Raises:
            IllegalStateError: No token is awaited.
        """
        self._handshake.sasl_complete(now_ms)

    def _ask(self, request: Request, version: int, now_ms: int) -> None:
        self._queue(request, version, _on_handshake, now_ms, self._handshake_timeout_ms)

    def _maybe_login_again(self, now_ms: int) -> None:
        # There is no need to wait for requests without a response: the broker reads them before the login.
        if self._handshake.may_login_again and not any(request.expects_response for request in self._in_flight):
            self._handshake.begin_login(now_ms)

    # --- time and end ----------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """Return when `on_time` is due; None: never."""
        deadlines = [self._in_flight.next_deadline_ms(), *self._handshake.deadlines_ms()]
        return min([deadline for deadline in deadlines if deadline is not None], default=None)

    def on_time(self, now_ms: int) -> None:
        """End the connection if an answer is overdue; renew a session near its end.

        All requests in flight then fail with a RequestTimedOutError: answers come in order, so none can come after it.
        """
        overdue = self._in_flight.expired(now_ms)
        if overdue is not None:
            self.connection_lost(
                RequestTimedOutError(
                    f"no answer to {api_name(overdue.api_key)} version {overdue.version} after "
                    f"{now_ms - overdue.sent_at_ms} ms",
                    api=overdue.api_key,
                    correlation_id=overdue.correlation_id,
                )
            )
            return
        try:
            self._handshake.on_time(now_ms)
        except RequestTimedOutError as error:
            self.connection_lost(error)
        self._maybe_login_again(now_ms)

    def connection_lost(self, error: KafkaError) -> None:
        """End the connection. Requests in flight fail in the order they were sent.

        They fail with a ConnectionLostError whose cause is `error`, or with `error` itself if it is a timeout or a
        ConnectionLostError. Does nothing when the connection is already closed.
        """
        if self._has_ended:
            return
        # Memory may run out anywhere here. Then the same call later does what is left: no request gets lost.
        if self._handshake.state is not State.CLOSED:
            self._handshake.close()
        self.outgoing.clear()
        requests = self._in_flight.requests
        while requests:
            request = requests[0]
            if request.on_done is not _on_handshake:
                request.is_possibly_persisted = request.end_position <= self.outgoing.sent_position
                request.error = _request_error(error)
                self.finished.append(request)
            requests.popleft()
        self._events.append(ConnectionFailed(error))
        self.has_events = self._has_ended = True


def _whole_answer(requests: Sequence[InFlightRequest], data: Buffer, sent_position: int) -> memoryview | None:
    """Return the body of the oldest request's answer, if `data` is that and nothing else; else None.

    That is the usual case, in one step: the general way is ten calls, whose code is in no cache when an answer comes.
    """
    if not requests or len(data) < _ANSWER_START.size:
        return None
    request = requests[0]
    size, correlation_id, tagged_field_count = _ANSWER_START.unpack_from(data)
    if (
        size != len(data) - FRAME_SIZE_BYTES
        or size > request.max_response_bytes
        or correlation_id != request.correlation_id
        or not request.expects_response
        or request.end_position > sent_position
        or request.on_done is _on_handshake
    ):
        return None
    start = FRAME_SIZE_BYTES + CORRELATION_ID_BYTES
    if request.api_key != ApiKey.API_VERSIONS and _is_flexible(request.api_key, request.version):
        if tagged_field_count:
            return None
        start += 1
    return memoryview(bytearray(data))[start:]


def _frame(request: Request, version: int, correlation_id: int, client_id: str | None) -> bytes:
    body = request.quick_body(version)
    if body is None:
        return b"".join(encode_request(request, version, correlation_id, client_id))
    is_flexible = _is_flexible(request.api, version)
    return encode_request_frame_start(request.api, version, correlation_id, client_id, is_flexible, len(body)) + body


@functools.cache
def _is_flexible(api_key: int, version: int) -> bool:
    """Return whether headers have tagged fields; cached, as every request needs it twice."""
    return REQUESTS[ApiKey(api_key)].is_flexible(version)


def _decoded(response_type: type[Response], body: memoryview, version: int) -> Response:
    """Read a response as Kafka's clients do: bytes after its end are ignored.

    librdkafka's mock cluster 2.16 adds one after its Metadata responses.
    """
    quick = response_type.read_quick(body, version)
    if quick is not None:
        return quick
    codec = response_type.codec(version, response_type.is_flexible(version))
    try:
        response: Response = codec.read(Reader(body, MAX_ELEMENTS))
    except CorruptDataError as error:
        raise CorruptDataError(f"{response_type.__name__} v{version}: {error}", api=response_type.api.name) from None
    return response


def _request_error(error: KafkaError) -> KafkaError:
    """Return the error of a request in flight when the connection ends with `error`."""
    if isinstance(error, (RequestTimedOutError, ConnectionLostError)):
        return error
    lost = ConnectionLostError(f"the connection ended: {error}")
    lost.__cause__ = error
    return lost
