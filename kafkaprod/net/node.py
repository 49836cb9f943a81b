"""One connection to one broker: a transport driving a `protocol.client.Connection`.

    start -> resolve -> connect (each address in turn) -> TLS -> SASL -> ApiVersions -> ready -> closed

A `NodeConnection` is used once, from connect to close; the pool makes the next one. When its requests fail it closes
its socket in the same call and keeps no buffers: nothing reads their memory afterwards.
Threads: the I/O thread. Blocking work (name resolution, SASL mechanisms) goes through `offload`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkaprod.config.host_patterns import HostPatterns
from kafkaprod.errors import AuthenticationError, ConnectionLostError, KafkaError, RequestTimedOutError
from kafkaprod.metrics.sums import NodeCounters
from kafkaprod.net.background import Offload
from kafkaprod.net.certificate_errors import is_certificate_error, refusal_of_own
from kafkaprod.net.channel import Channel
from kafkaprod.net.network import Readiness
from kafkaprod.net.proxy import Proxy
from kafkaprod.net.settings import SOFTWARE_NAME, ConnectionSettings
from kafkaprod.net.transport import (
    FAMILIES,
    Address,
    TcpTransport,
    Transport,
    numeric_addresses,
    resolve,
)
from kafkaprod.protocol.client import Connection
from kafkaprod.protocol.client_events import (
    ConnectionFailed,
    ConnectionReady,
    Event,
    SaslChallenge,
    SessionReauthenticated,
)
from kafkaprod.protocol.handshake import ConnectionState
from kafkaprod.protocol.in_flight import InFlightRequest
from kafkaprod.security.sasl import Mechanism
from kafkaprod.structs import Node

if TYPE_CHECKING:
    import ssl

HURRIED_MS: Final = (
    250  # of an address while others are left, the interval of RFC 8305; a silent one is tried again at the end
)
ADVERTISED_HINT: Final = "the cluster names this address in its advertised.listeners: can it be reached from here?"
HINT = "does security_protocol={protocol} fit this port, and is it a Kafka broker?"


class ConnectionStage(StrEnum):
    """The progress of a connection; failures report it."""

    RESOLVE = "resolve"
    CONNECT = "connect"
    TLS = "tls"
    SASL = "sasl"
    API_VERSIONS = "api_versions"
    READY = "ready"


class NodeConnection(Channel):
    """One connection attempt and, if it succeeds, the connection. See also `Channel`.

    Args:
        node: The broker.
        settings: The client's settings.
        poller: Watches the socket; its entries carry this object.
        offload: Runs blocking calls.
        metrics: The broker's counters.
        receive_buffer: Scratch memory for reads, at least one TLS record; shared by all connections of the thread.
        finished: The list to which ended requests are appended; shared by all connections, too.
        setup_timeout_ms: Bound of an address's attempt, and of the handshake; HURRIED_MS while others are left.
        identity: (cluster id, node id) the broker must have (KIP-1242); None: not checked.
        is_bootstrap: Whether the address is the user's own choice, which `allowed_brokers` does not bound.

    Attributes:
        stage: Its progress.
        is_closed_by_us: Whether this client ended it, because it was idle or on request, which is no failure.
        was_idle: Whether it had answered, and nothing was in flight, when it ended.
    """

    protocol: Connection
    failure: KafkaError | None
    _transport: Transport | None

    def __init__(
        self,
        node: Node,
        settings: ConnectionSettings,
        poller: Readiness,
        offload: Offload,
        metrics: NodeCounters,
        receive_buffer: memoryview,
        finished: list[InFlightRequest],
        *,
        setup_timeout_ms: int,
        identity: tuple[str, int] | None = None,
        is_bootstrap: bool = False,
    ) -> None:
        self.node = node
        self.stage = ConnectionStage.RESOLVE
        self.is_closed_by_us = False
        self.was_idle = False
        self._settings = settings
        self._poller = poller
        self._offload = offload
        self._metrics = metrics
        self._receive_buffer = receive_buffer
        self._setup_timeout_ms = setup_timeout_ms
        self._setup_deadline_ms = 0
        self._is_bootstrap = is_bootstrap
        # The bootstrap servers are the user's own choice.
        self._allowed = HostPatterns() if is_bootstrap else settings.options.allowed_brokers
        self._addresses: deque[Address] = deque()
        self._address: Address | None = None
        self._hurried: set[Address] = set()  # had HURRIED_MS, and get another try when all others had theirs
        self._attempt_ms = setup_timeout_ms
        self._is_plain = settings.tls is None
        self._tls = settings.tls
        self._mechanism: Mechanism | None = None if settings.mechanism is None else settings.mechanism(node.host)
        self.protocol = Connection(
            client_id=settings.options.client_id,
            software_name=SOFTWARE_NAME,
            software_version=settings.software_version,
            sasl_mechanism=None if self._mechanism is None else self._mechanism.name,
            identity=identity,
            handshake_timeout_ms=settings.options.request_timeout_ms,
            node_id=node.node_id,
            finished=finished,
        )

    # -- connecting ----------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Begin to connect."""
        self._metrics.connections_created += 1
        self.last_active_ms = now_ms
        self._setup_deadline_ms = now_ms + self._setup_timeout_ms
        files = self._settings.certificate_files
        if files is None:
            self._find_addresses(now_ms)
        else:
            self._offload(files.current, self._on_context, partial(self._fail, "the certificates cannot be used"))

    def _on_context(self, context: ssl.SSLContext, now_ms: int) -> None:
        if not self.is_closed:
            self._tls = context
            self._find_addresses(now_ms)

    def _find_addresses(self, now_ms: int) -> None:
        host, port = self.node.host, self.node.port
        addresses = numeric_addresses(host, port)
        if addresses is None and self._settings.proxy is not None and self._allowed.allows_name(host):
            self._connect_by(self._settings.proxy)
        elif addresses is not None or not (self._allowed.networks or self._allowed.allows_name(host)):
            self._on_resolved(addresses or [], now_ms)  # the name of a host that is not allowed is not looked up
        else:
            call = partial(resolve, host, port, family=FAMILIES[self._settings.options.broker_address_family])
            self._offload(
                call, self._on_resolved, partial(self._fail, f"the name cannot be resolved{self._advertised_hint()}")
            )

    def _fail(self, what: str, error: Exception, now_ms: int) -> None:
        self._close_for(error, what)

    def _connect_by(self, proxy: Proxy) -> None:
        """Let a helper thread connect; the proxy resolves a name."""
        self.stage = ConnectionStage.CONNECT
        proxy.begin(
            self._offload, self.node, self._settings, self._tls, self._setup_timeout_ms, self._use, self._close_for
        )

    def _use(self, transport: Transport) -> None:
        if self.is_closed:
            transport.close()
            return
        self._transport = transport
        self._update_interest()

    def _on_resolved(self, addresses: list[Address], now_ms: int) -> None:
        if self.failure is not None:
            return
        is_named = self._allowed.allows_name(self.node.host)
        usable = [found for found in addresses if is_named or self._allowed.allows_address(found.sockaddr[0])]
        if not usable and not is_named:
            self._close_for(None, self._allowed.refusal_of(self.node.host, [found.sockaddr[0] for found in addresses]))
            return
        if self._settings.proxy is not None:
            self._connect_by(self._settings.proxy)
            return
        self._addresses.extend(usable)
        self._connect_next(now_ms, None)

    def _connect_next(self, now_ms: int, error: Exception | None) -> None:
        """Try the next address of the name; close when none is left."""
        self._drop_transport()
        self.stage = ConnectionStage.CONNECT
        while self._addresses:
            address = self._address = self._addresses.popleft()
            is_hurried = bool(self._addresses) and address not in self._hurried
            self._attempt_ms = min(HURRIED_MS, self._setup_timeout_ms) if is_hurried else self._setup_timeout_ms
            self._setup_deadline_ms = now_ms + self._attempt_ms
            try:
                self._transport = self._settings.network.connect(
                    address, self._settings.options, self._tls, self.node.host
                )
            except OSError as failure:
                error = failure
                continue
            self._update_interest()
            return
        self._close_for(error, f"no address accepts a connection{self._advertised_hint()}")

    def _advance_setup(self, transport: Transport, now_ms: int) -> None:
        try:
            is_open = transport.try_open()
        except OSError as error:
            if transport.is_connected:
                self.stage = ConnectionStage.TLS
                hint = "" if is_certificate_error(error) else self.hint()
                self._close_for(error, refusal_of_own(error) or f"the TLS handshake failed{hint}")
            else:
                self._connect_next(now_ms, error)
            return
        if transport.is_connected and self.stage is ConnectionStage.CONNECT:
            self._setup_deadline_ms += self._setup_timeout_ms - self._attempt_ms  # the handshake has all of it
            self._attempt_ms = self._setup_timeout_ms
        if transport.is_connected and self._settings.tls is not None:
            self.stage = ConnectionStage.TLS
        if is_open:
            self.stage = ConnectionStage.API_VERSIONS if self._mechanism is None else ConnectionStage.SASL
            self._is_open = True
            self._fd = transport.fileno() if type(transport) is TcpTransport else -1
            self.protocol.start(now_ms)
            self.flush(now_ms)

    # -- input and output ----------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether this connection takes requests."""
        return self.protocol.is_ready

    @property
    def is_closed(self) -> bool:
        """Whether it has ended; `failure` then has the reason."""
        return self.failure is not None

    def _advance(self, now_ms: int) -> None:
        if self._transport is not None:
            self._advance_setup(self._transport, now_ms)
            self._update_interest()

    def _on_receive_error(self, error: OSError) -> None:
        self._close_for(error, refusal_of_own(error) or f"receiving failed{self.hint()}")

    def _on_end_of_stream(self) -> None:
        self._close_for(None, self._end_of_stream_reason())

    def _end_of_stream_reason(self) -> str:
        if self._metrics.responses_received:
            return "the broker closed the connection"
        # A port that requires a login answers ApiVersions without one, and closes at the first request.
        what = "before it answered any request" if self.stage is ConnectionStage.READY else f"during {self.stage}"
        return f"the broker closed the connection {what}{self.hint()}"

    def hint(self) -> str:
        """Return advice about a peer that never answered a request and ended the connection or sent nothing."""
        if self._metrics.responses_received:
            return ""
        return f" ({HINT.format(protocol=self._protocol_name())})"

    def _advertised_hint(self) -> str:
        """Return advice about an address that the cluster gave and that was never of use."""
        if self._is_bootstrap or self._metrics.responses_received:
            return ""
        return f" ({ADVERTISED_HINT})"

    def _protocol_name(self) -> str:
        name = "PLAINTEXT" if self._settings.tls is None else "SSL"
        return name if self._settings.mechanism is None else f"SASL_{name}"

    def _update_interest(self) -> None:
        if self._transport is not None:
            interest = self._transport.interest(has_output=self.protocol.outgoing_bytes > 0)
            if interest != self._interest:
                self._poller.modify(self._transport, interest, self)
                self._interest = interest

    # -- events --------------------------------------------------------------------------------------------------------

    def _handle_events(self) -> None:
        if self.protocol.state is ConnectionState.CLOSED:
            self._drop_transport()  # before the owner of `finished` sees it: nothing may read the buffers afterwards
        for event in self.protocol.events():
            self._handle_event(event)

    def _handle_event(self, event: Event) -> None:
        match event:
            case SaslChallenge():
                self._answer_challenge(event.challenge)
            case ConnectionReady():
                self.stage = ConnectionStage.READY
                self._metrics.authentications_succeeded += self._settings.mechanism is not None
            case SessionReauthenticated():
                self._metrics.reauthentications_succeeded += 1
                self._metrics.reauthentication_ms += event.latency_ms
            case ConnectionFailed():
                self.failure = event.error
                self._metrics.connections_closed += 1
                if isinstance(event.error, AuthenticationError):
                    self._metrics.reauthentications_failed += self.stage is ConnectionStage.READY
                    self._metrics.authentications_failed += self.stage is not ConnectionStage.READY

    def _answer_challenge(self, challenge: bytes | None) -> None:
        if challenge is None:
            if self._mechanism is None:  # a mechanism is used once: this is a re-authentication
                assert self._settings.mechanism is not None
                self._mechanism = self._settings.mechanism(self.node.host)
            call: Callable[[], bytes | None] = self._mechanism.first
        else:
            assert self._mechanism is not None
            call = partial(self._mechanism.step, challenge)
        self._offload(call, self._on_token, partial(self._fail, "the SASL mechanism failed"))

    def _on_token(self, token: bytes | None, now_ms: int) -> None:
        if self.is_closed:
            return
        if token is None:
            self._mechanism = None
            self.protocol.sasl_complete(now_ms)
        else:
            self.protocol.sasl_token(token, now_ms)
        self.flush(now_ms)

    # -- time and end --------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """Return when `on_time` is due; None: never. It may be early, never late."""
        if self.is_closed:
            return None
        if self.stage is not ConnectionStage.READY:
            return self._setup_deadline_ms
        deadline_ms = self.protocol.next_deadline_ms()
        if self.protocol.in_flight_count:
            return deadline_ms
        idle_at_ms = self.last_active_ms + self._settings.options.connections_max_idle_ms
        return idle_at_ms if deadline_ms is None else min(deadline_ms, idle_at_ms)

    def on_time(self, now_ms: int) -> None:
        """Close after a timeout or when idle; begin a re-authentication that is due."""
        if self.is_closed:
            return
        if self.stage is not ConnectionStage.READY:
            if now_ms >= self._setup_deadline_ms:
                self._on_setup_timeout(now_ms)
            return
        self.protocol.on_time(now_ms)
        is_idle = now_ms - self.last_active_ms >= self._settings.options.connections_max_idle_ms
        if is_idle and self.protocol.is_ready and not self.protocol.in_flight_count:
            self.is_closed_by_us = True
            self._close_for(None, "the connection was idle")
        self.flush(now_ms)

    def _on_setup_timeout(self, now_ms: int) -> None:
        error = RequestTimedOutError(f"no answer within {self._attempt_ms} ms at stage {self.stage}")
        if self.stage is ConnectionStage.CONNECT:
            if self._address is not None and self._attempt_ms < self._setup_timeout_ms:
                self._hurried.add(self._address)
                self._addresses.append(self._address)
            self._connect_next(now_ms, error)
        else:
            self._close_for(error, f"connecting took too long{self.hint()}")

    def close(self, error: KafkaError) -> None:
        """End the connection; its requests fail with `error` as their cause."""
        self.is_closed_by_us = True
        self._close_for(error, "closed")

    def _close_for(self, error: Exception | None, what: str) -> None:
        if self.is_closed:
            return
        if error is not None:
            error.__traceback__ = None  # its frames hold buffers, which must not outlive the connection
        reason = _typed(self.node, error, what)
        self.was_idle = self.has_answered and not self.protocol.in_flight_count
        self.protocol.connection_lost(reason)
        self._handle_events()
        if self.failure is None:
            self.failure = reason  # memory ran out where the event of an earlier call was handled

    def _drop_transport(self) -> None:
        if self._transport is not None:
            self._poller.unregister(self._transport)
            self._fd, self._is_open = -1, False
            self._transport.close()
            self._transport = None
            self._interest = 0


def _typed(node: Node, error: Exception | None, what: str) -> KafkaError:
    """Return the error of a closing connection; an AuthenticationError where retries cannot help."""
    if isinstance(error, KafkaError) and not isinstance(error, RequestTimedOutError):
        return error
    text = f"{node.name}: {what}"
    kind = AuthenticationError if is_certificate_error(error) else ConnectionLostError
    typed = kind(text if error is None else f"{text}: {error}", node=node.node_id)
    typed.__cause__ = error
    return typed
