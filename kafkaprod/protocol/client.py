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
from collections.abc import Callable

from kafkaprod.errors import (
    ConnectionLostError,
    IllegalStateError,
    KafkaError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kafkaprod.protocol.api_keys import ApiKey, api_name
from kafkaprod.protocol.client_events import ConnectionFailed, Event
from kafkaprod.protocol.exchange import Exchange
from kafkaprod.protocol.frames import FrameSplitter, peek_correlation_id, split_response
from kafkaprod.protocol.handshake import FRAME_LIMITS, ConnectionState, Handshake
from kafkaprod.protocol.in_flight import InFlightRequest
from kafkaprod.protocol.messages import REQUESTS
from kafkaprod.protocol.negotiation import BrokerVersions
from kafkaprod.protocol.schema import Request
from kafkaprod.structs import BytesLike

_READY_FRAME_LIMIT = FRAME_LIMITS[ConnectionState.READY]  # looked up for each answer, which hashes a name


def _on_handshake(request: InFlightRequest, now_ms: int) -> None:
    """Mark the connection's own requests, which are never given to its owner."""


class Connection(Exchange):
    """The state of one connection.

    Args:
        client_id: Sent in each request header, for the broker's logs, metrics and quotas.
        software_name: This client's, for ApiVersions (KIP-511): letters, digits, dots and dashes.
        software_version: Its version, of the same characters.
        sasl_mechanism: Name of the mechanism to log in with; None: no login.
        identity: (cluster id, node id) the broker must have, or it answers REBOOTSTRAP_REQUIRED (KIP-1242); None: not
            checked.
        handshake_timeout_ms: How long to wait for each answer of the handshake and of a re-authentication.
        random: Spreads the times of re-authentication.
        node_id: The broker's id, for the requests' outcomes.
        finished: The list to which ended requests are appended, in order; several connections may share it.
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
        super().__init__(client_id, node_id, [] if finished is None else finished)
        self._handshake_timeout_ms = handshake_timeout_ms
        self._splitter = FrameSplitter(FRAME_LIMITS[ConnectionState.CREATED])
        self._has_ended = False  # connection_lost() is through
        self._events: list[Event] = []
        self._handshake = Handshake(
            self._ask,
            self._emit,
            self._note_ready,
            software=(software_name, software_version),
            sasl_mechanism=sasl_mechanism,
            identity=identity,
            timeout_ms=handshake_timeout_ms,
            random=random,
        )

    def __repr__(self) -> str:
        return f"<Connection {self.state.name} in_flight={len(self._in_flight)} outgoing={len(self.outgoing)}>"

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConnectionState:
        """The stage of the connection."""
        return self._handshake.state

    @property
    def versions(self) -> BrokerVersions | None:
        """The versions the broker announced; None before the connection is ready."""
        return self._handshake.versions

    # -- requests ------------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Begin the handshake, when the transport is connected (and TLS, if any, complete).

        Raises:
            IllegalStateError: It was started before.
        """
        self._handshake.start(now_ms)

    def extend_deadlines(self, extra_ms: int) -> None:
        """Give the requests in flight more time: the broker throttles and answers late (KIP-219)."""
        self._in_flight.extend_deadlines(extra_ms)

    def _check_sendable(self, api_key: int, version: int) -> None:
        versions = self._handshake.versions
        if self._handshake.state is not ConnectionState.READY or versions is None:
            raise IllegalStateError(f"a connection in state {self.state.name} takes no requests", api=api_key)
        lowest, highest = versions.ranges.get(api_key, (0, -1))
        if not lowest <= version <= highest:
            raise UnsupportedVersionError(
                f"{api_name(api_key)} version {version} is outside the broker's range {lowest}..{highest}", api=api_key
            )

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def _receive_parts(self, data: BytesLike, now_ms: int) -> int:
        if self._handshake.state is ConnectionState.CLOSED:
            return 0
        answered = 0
        try:
            self._splitter.max_frame_bytes = self._frame_limit()
            for frame in self._splitter.feed(data):
                answered += self._on_frame(frame, now_ms)
                self._splitter.max_frame_bytes = self._frame_limit()
        except KafkaError as error:
            self.connection_lost(error)
        finally:
            self._has_part_of_frame = self._splitter.incomplete_bytes > 0
        self._maybe_login_again(now_ms)
        return answered

    def _frame_limit(self) -> int:
        """Return the largest frame to accept now; once ready, the limit of the request to be answered next."""
        oldest = self._in_flight.next_answered()
        state = self._handshake.state
        limit = _READY_FRAME_LIMIT if state is ConnectionState.READY else FRAME_LIMITS[state]
        return limit if oldest is None else min(limit, oldest.max_response_bytes)

    def _emit(self, event: Event) -> None:
        self._events.append(event)
        self.has_events = True

    def events(self) -> list[Event]:
        """Return the events since the last call, in order."""
        events, self._events = self._events, []
        self.has_events = False
        return events

    def _on_frame(self, frame: BytesLike, now_ms: int) -> bool:
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

    # -- login ---------------------------------------------------------------------------------------------------------

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

    # -- time and end --------------------------------------------------------------------------------------------------

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
        if self._handshake.state is not ConnectionState.CLOSED:
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


@functools.cache
def _is_flexible(api_key: int, version: int) -> bool:
    """Return whether headers have tagged fields; cached, as every request needs it twice."""
    return REQUESTS[ApiKey(api_key)].is_flexible(version)


def _request_error(error: KafkaError) -> KafkaError:
    """Return the error of a request in flight when the connection ends with `error`."""
    if isinstance(error, (RequestTimedOutError, ConnectionLostError)):
        return error
    lost = ConnectionLostError(f"the connection ended: {error}")
    lost.__cause__ = error
    return lost
