"""The handshake of a connection: ApiVersions, the SASL login, and later logins. Pure state.

    without SASL   NEGOTIATING -> READY
    with SASL      PROBING_SASL -> SASL_HANDSHAKE -> AUTHENTICATING -> NEGOTIATING -> READY
    session over   READY -> DRAINING -> SASL_HANDSHAKE -> AUTHENTICATING -> READY

There is one request at a time. The owner queues the requests, passes on the responses, and reports the events.
Source: protocol guide "Protocol", KIP-35 (ApiVersions), KIP-43 and KIP-152 (SASL), KIP-368 (re-authentication).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from kafkaprod.errors import IllegalStateError, RequestTimedOutError
from kafkaprod.protocol import login
from kafkaprod.protocol.client_events import ConnectionReady, Event, SaslChallenge, SessionReauthenticated
from kafkaprod.protocol.frames import MAX_FRAME_BYTES
from kafkaprod.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkaprod.protocol.negotiation import (
    BrokerVersions,
    highest_versions_request,
    read_versions,
    version_after_refusal,
    versions_request,
)
from kafkaprod.protocol.schema import Request

FIRST_FRAME_MAX_BYTES = 1 << 20  # an ApiVersions answer; bounded while the peer is unknown
SASL_FRAME_MAX_BYTES = 512 << 10  # Kafka's own bound of SASL frames


class ConnectionState(Enum):
    """The stage of a connection."""

    CREATED = auto()
    PROBING_SASL = auto()  # ApiVersions v0 sent: which SASL requests does the broker know?
    SASL_HANDSHAKE = auto()  # SaslHandshake sent: does it accept the mechanism?
    AUTHENTICATING = auto()  # tokens are exchanged
    NEGOTIATING = auto()  # full ApiVersions sent
    READY = auto()
    DRAINING = auto()  # the session is nearly over: wait for answers, then log in again
    CLOSED = auto()


TRANSITIONS: dict[ConnectionState, frozenset[ConnectionState]] = {
    ConnectionState.CREATED: frozenset(
        {ConnectionState.PROBING_SASL, ConnectionState.NEGOTIATING, ConnectionState.CLOSED}
    ),
    ConnectionState.PROBING_SASL: frozenset({ConnectionState.SASL_HANDSHAKE, ConnectionState.CLOSED}),
    ConnectionState.SASL_HANDSHAKE: frozenset({ConnectionState.AUTHENTICATING, ConnectionState.CLOSED}),
    ConnectionState.AUTHENTICATING: frozenset(
        {ConnectionState.NEGOTIATING, ConnectionState.READY, ConnectionState.CLOSED}
    ),
    ConnectionState.NEGOTIATING: frozenset({ConnectionState.READY, ConnectionState.CLOSED}),
    ConnectionState.READY: frozenset({ConnectionState.DRAINING, ConnectionState.CLOSED}),
    ConnectionState.DRAINING: frozenset({ConnectionState.SASL_HANDSHAKE, ConnectionState.CLOSED}),
    ConnectionState.CLOSED: frozenset(),
}

# The largest frame to accept, so that a peer that is not trusted yet cannot fill the memory.
FRAME_LIMITS: dict[ConnectionState, int] = {
    ConnectionState.CREATED: FIRST_FRAME_MAX_BYTES,
    ConnectionState.PROBING_SASL: FIRST_FRAME_MAX_BYTES,
    ConnectionState.SASL_HANDSHAKE: SASL_FRAME_MAX_BYTES,
    ConnectionState.AUTHENTICATING: SASL_FRAME_MAX_BYTES,
    ConnectionState.NEGOTIATING: FIRST_FRAME_MAX_BYTES,
    ConnectionState.READY: MAX_FRAME_BYTES,
    ConnectionState.DRAINING: MAX_FRAME_BYTES,
    ConnectionState.CLOSED: 0,
}


class Handshake:
    """The handshake of one connection, and the logins that follow.

    Args:
        ask: Queues a request (request, version, now_ms) whose response `on_response` takes.
        emit: Takes an event for the owner of the connection.
        note_ready: Called at each change of the state, with the versions if it is READY now, else None.
        software: Name and version of this client.
        sasl_mechanism: Name of the mechanism; None: no login.
        identity: (cluster id, node id) the broker must have; None: not checked.
        timeout_ms: How long the mechanism may take for each token.
        random: Spreads the times of re-authentication.

    Attributes:
        state: The stage of the connection.
        versions: The versions the broker announced; None before the connection is ready.
    """

    def __init__(
        self,
        ask: Callable[[Request, int, int], None],
        emit: Callable[[Event], None],
        note_ready: Callable[[BrokerVersions | None], None],
        *,
        software: tuple[str, str],
        sasl_mechanism: str | None,
        identity: tuple[str, int] | None,
        timeout_ms: int,
        random: Callable[[], float],
    ) -> None:
        self.state = ConnectionState.CREATED
        self.versions: BrokerVersions | None = None
        self._ask = ask
        self._emit = emit
        self._note_ready = note_ready
        self._software = software
        self._sasl_mechanism = sasl_mechanism
        self._identity = identity
        self._timeout_ms = timeout_ms
        self._random = random
        self._sasl_authenticate_version = 0
        self._session_lifetime_ms = 0  # of the last login; 0: unlimited
        self._login_started_ms = 0
        self._login_answered_ms = 0
        self._token_deadline_ms: int | None = None  # set while the mechanism makes a token
        self._reauthenticate_at_ms: int | None = None
        self._next_login_ms: int | None = None  # no re-authentication begins before; None: it may

    def start(self, now_ms: int) -> None:
        """Send the first request.

        Raises:
            IllegalStateError: It was started before.
        """
        if self._sasl_mechanism is None:
            self._transition(ConnectionState.NEGOTIATING)
            self._ask_for_versions(highest_versions_request(self._identity), now_ms)
        else:
            self._transition(ConnectionState.PROBING_SASL)
            self._ask_for_versions(0, now_ms)

    @property
    def may_login_again(self) -> bool:
        """Whether the session is nearly over, and the next login may begin when no answer is outstanding."""
        return self.state is ConnectionState.DRAINING and self._next_login_ms is None

    def begin_login(self, now_ms: int) -> None:
        """Begin the first login, or the next one when no answer is outstanding."""
        self._transition(ConnectionState.SASL_HANDSHAKE)
        self._login_started_ms = now_ms
        if self.versions is not None:
            self._next_login_ms = now_ms + login.MIN_REAUTHENTICATION_MS
        self._ask(login.handshake_request(self._sasl_mechanism), login.HANDSHAKE_VERSION, now_ms)

    def sasl_token(self, token: bytes, now_ms: int) -> None:
        """Send the mechanism's token. Raises IllegalStateError if none is expected."""
        self._check_token_awaited()
        self._ask(SaslAuthenticateRequest(auth_bytes=token), self._sasl_authenticate_version, now_ms)

    def sasl_complete(self, now_ms: int) -> None:
        """Complete the login. Raises IllegalStateError if no token is expected."""
        self._check_token_awaited()
        if self._session_lifetime_ms > 0:
            after_ms = login.reauthenticate_after_ms(self._session_lifetime_ms, self._random)
            self._reauthenticate_at_ms = self._login_answered_ms + after_ms
        if self.versions is None:
            self._transition(ConnectionState.NEGOTIATING)
            self._ask_for_versions(highest_versions_request(self._identity), now_ms)
        else:
            self._transition(ConnectionState.READY)
            self._emit(SessionReauthenticated(now_ms - self._login_started_ms))

    def on_response(self, version: int, body: memoryview, now_ms: int) -> None:
        """Handle the answer to the last request, which had this version.

        Raises:
            KafkaError: The connection is unusable: AuthenticationError, BrokerError or CorruptDataError.
        """
        match self.state:
            case ConnectionState.PROBING_SASL:
                self._sasl_authenticate_version = login.authenticate_version(read_versions(body, version))
                self.begin_login(now_ms)
            case ConnectionState.SASL_HANDSHAKE:
                login.check_mechanism(body, self._sasl_mechanism)
                self._transition(ConnectionState.AUTHENTICATING)
                self._await_token(None, now_ms)
            case ConnectionState.AUTHENTICATING:
                challenge, self._session_lifetime_ms = login.read_token(body, version)
                self._login_answered_ms = now_ms
                self._await_token(challenge, now_ms)
            case ConnectionState.NEGOTIATING:
                self._on_versions(version, body, now_ms)
            case _:
                raise IllegalStateError(f"no answer is expected in state {self.state.name}")

    def deadlines_ms(self) -> tuple[int | None, int | None, int | None]:
        """Return the times at which `on_time` is due; None: never."""
        next_login_ms = self._next_login_ms if self.state is ConnectionState.DRAINING else None
        return self._token_deadline_ms, self._reauthenticate_at_ms, next_login_ms

    def on_time(self, now_ms: int) -> None:
        """Begin to drain when the session is nearly over.

        Raises:
            RequestTimedOutError: The mechanism gave no token in time.
        """
        if self._token_deadline_ms is not None and now_ms >= self._token_deadline_ms:
            raise RequestTimedOutError(f"the SASL mechanism gave no token within {self._timeout_ms} ms")
        if self._next_login_ms is not None and now_ms >= self._next_login_ms:
            self._next_login_ms = None
        if self._reauthenticate_at_ms is not None and now_ms >= self._reauthenticate_at_ms:
            self._reauthenticate_at_ms = None
            self._transition(ConnectionState.DRAINING)

    def close(self) -> None:
        """End the handshake with its connection."""
        self._transition(ConnectionState.CLOSED)
        self._token_deadline_ms = self._reauthenticate_at_ms = None

    def _ask_for_versions(self, version: int, now_ms: int) -> None:
        name, software_version = self._software
        self._ask(versions_request(name, software_version, self._identity), version, now_ms)

    def _on_versions(self, version: int, body: memoryview, now_ms: int) -> None:
        next_version = version_after_refusal(body, version)
        if next_version is not None:
            self._ask_for_versions(next_version, now_ms)
            return
        self.versions = read_versions(body, version)
        self._transition(ConnectionState.READY)
        self._emit(ConnectionReady(self.versions))

    def _await_token(self, challenge: bytes | None, now_ms: int) -> None:
        self._token_deadline_ms = now_ms + self._timeout_ms
        self._emit(SaslChallenge(challenge))

    def _check_token_awaited(self) -> None:
        if self._token_deadline_ms is None:
            raise IllegalStateError(f"no SASL token is expected in state {self.state.name}")
        self._token_deadline_ms = None

    def _transition(self, target: ConnectionState) -> None:
        if target not in TRANSITIONS[self.state]:
            raise IllegalStateError(f"connection cannot go from {self.state.name} to {target.name}")
        self.state = target
        self._note_ready(self.versions if target is ConnectionState.READY else None)
