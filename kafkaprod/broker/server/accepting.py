"""The sockets that listen, and what becomes of the connections they accept: a session, or a refusal. The event loop
owns it.

    poller -> Acceptors.accept -> rates: too many a second? -> admission: is there a place? -> Session -> Loop.begin
"""

from __future__ import annotations

import errno
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from kafkaprod.broker.calls.login import Login
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster_config import ClusterConfig
from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.listeners import Endpoint, Listener, bind_error
from kafkaprod.broker.server.admission import Admission
from kafkaprod.broker.server.connection_rates import ConnectionRates
from kafkaprod.broker.server.session import Session
from kafkaprod.broker.settings.broker_options import listener_limit
from kafkaprod.clock import Clock
from kafkaprod.net.poller import READABLE, Poller
from kafkaprod.net.tls_transport import TlsTransport
from kafkaprod.net.transport import TcpTransport, Transport
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.frames import MAX_FRAME_BYTES

logger = logging.getLogger(__name__)

_BACKLOG = 128
_ACCEPT_TURN = 64
_ACCEPT_PAUSE_MS = 1_000
_WARNING_MS = 1_000  # one line about refused connections in that time
_PEER_HOST = "peer"

AnnouncedVersions = Mapping[ApiKey, tuple[int, int]]
"""What is announced: API -> lowest and highest version."""


class Acceptor(NamedTuple):
    """A socket that listens, and the address that its clients get."""

    listener: Listener
    sock: socket.socket
    tls: ssl.SSLContext | None
    endpoint: Endpoint
    is_peer: bool = False

    @property
    def bound(self) -> Endpoint:
        """The address of the socket."""
        return Endpoint(self.listener.host, self.sock.getsockname()[1])


class AcceptingLoop(Protocol):
    """The part of the event loop that accepting uses."""

    def call_after(self, delay_ms: int, call_later: Callable[[], None]) -> None:
        """Have a call made by the loop, later."""
        ...

    def begin(self, session: Session) -> None:
        """Serve a new session."""
        ...

    def close_session(self, session: Session) -> None:
        """Close a connection."""
        ...


class Acceptors:
    """See the module docstring.

    Args:
        acceptors: Those of clients.
        broker: What the sessions serve.
        admission: Decides who gets a place.
        versions: What is announced, by whether clients have to log in.
        poller, clock, loop: Those of the server.

    Attributes:
        are_clients_cut: Clients are refused (tests).
    """

    def __init__(
        self,
        acceptors: list[Acceptor],
        broker: Broker,
        admission: Admission,
        versions: AnnouncedVersions,
        poller: Poller,
        clock: Clock,
        loop: AcceptingLoop,
    ) -> None:
        self.are_clients_cut = False
        self._acceptors = acceptors
        self._peer_acceptor: Acceptor | None = None
        self._broker = broker
        self._admission = admission
        self._rates = ConnectionRates(
            lambda: broker.quotas.table,
            lambda: broker.config.limits.max_connections_per_s,
            lambda listener: listener_limit(broker.config, listener, "max.connection.creation.rate"),
        )
        self._held: set[socket.socket] = set()  # above a quota: they are closed after a time
        self._versions = versions
        self._poller = poller
        self._clock = clock
        self._loop = loop
        self._refused_count = 0  # since the last warning about them
        self._warned_ms = -_WARNING_MS

    def accept_clients(self) -> None:
        """Begin to accept connections of clients."""
        for acceptor in self._acceptors:
            self._poller.register(acceptor.sock, READABLE, acceptor)

    def accept_peers(self, cluster: ClusterConfig) -> None:
        """Open the socket for the other processes of the cluster, and accept their connections."""
        self._peer_acceptor = _listen_for_peers(self._acceptors[0], cluster, self._broker.config.node_id)
        self._poller.register(self._peer_acceptor.sock, READABLE, self._peer_acceptor)

    def close(self) -> None:
        """Listen no more."""
        close_acceptors(self._acceptors)
        for sock in self._held:
            sock.close()
        if self._peer_acceptor is not None:
            self._peer_acceptor.sock.close()

    def accept(self, acceptor: Acceptor) -> None:
        """Take the connections that wait, at most a turn's worth."""
        for _ in range(_ACCEPT_TURN):
            try:
                sock, address = acceptor.sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    logger.error("no connection can be accepted for %d ms: %s", _ACCEPT_PAUSE_MS, error)
                    self._pause(acceptor, _ACCEPT_PAUSE_MS)
                    return
                continue  # the client gave up before we came
            if acceptor.is_peer:
                self._open_session(acceptor, sock, _PEER_HOST)
            elif self.are_clients_cut or not _is_prepared(sock):
                sock.close()
            elif pause_ms := self._rates.pause_ms(acceptor.listener.name, self._clock.now_ms()):
                self._held.add(sock)
                self._pause(acceptor, pause_ms, partial(self._resume, acceptor, sock, address[0]))
                return
            else:
                self._admit(acceptor, sock, address[0])

    def _resume(self, acceptor: Acceptor, sock: socket.socket, host: str) -> None:
        """Take the connection that had to wait."""
        self._held.discard(sock)
        self._admit(acceptor, sock, host)

    def _admit(self, acceptor: Acceptor, sock: socket.socket, host: str) -> None:
        """Open a session, or refuse the connection; one above its address's quota is held until it is closed."""
        hold_ms = self._rates.hold_ms(host, self._clock.now_ms())
        if hold_ms and len(self._held) < self._broker.config.limits.max_connections:
            self._held.add(sock)
            self._loop.call_after(hold_ms, lambda: self._let_go(sock))
        elif hold_ms or not self._has_place(acceptor, host):
            sock.close()
        else:
            self._open_session(acceptor, sock, host)

    def _let_go(self, sock: socket.socket) -> None:
        self._held.discard(sock)
        sock.close()

    def _has_place(self, acceptor: Acceptor, host: str) -> bool:
        """Whether a client gets a place, maybe that of another one, which is closed."""
        if self.are_clients_cut:  # since the connection came
            return False
        verdict = self._admission.check(host, self._clock.now_ms(), acceptor.listener.name)
        if verdict.victim is not None:
            self._loop.close_session(verdict.victim)
        if verdict.refusal is not None:
            self._warn_of_refusal(host, verdict.refusal)
        return verdict.refusal is None

    def _warn_of_refusal(self, host: str, limit: str) -> None:
        self._refused_count += 1
        now_ms = self._clock.now_ms()
        if now_ms - self._warned_ms >= _WARNING_MS:
            logger.warning("%d connections refused by %s, the last one from %s", self._refused_count, limit, host)
            self._warned_ms, self._refused_count = now_ms, 0

    def _pause(self, acceptor: Acceptor, pause_ms: int, then: Callable[[], None] = lambda: None) -> None:
        """Accept nothing for a while, then continue."""

        def resume() -> None:
            self._poller.register(acceptor.sock, READABLE, acceptor)
            then()

        self._poller.unregister(acceptor.sock)
        self._loop.call_after(pause_ms, resume)

    def _open_session(self, acceptor: Acceptor, sock: socket.socket, host: str) -> None:
        sock.setblocking(False)
        transport: Transport = (
            TcpTransport(sock) if acceptor.tls is None else TlsTransport(sock, acceptor.tls, server_hostname=None)
        )
        broker, config = self._broker, self._broker.config
        has_login = acceptor.listener.has_login and not acceptor.is_peer
        limits = config.limits
        session = Session(
            transport,
            host,
            broker.peer_api_versions if acceptor.is_peer else self._versions,
            limits.max_unauthenticated_bytes if has_login else limits.max_request_bytes,
            MAX_FRAME_BYTES if acceptor.is_peer else limits.max_other_request_bytes,
            Login(broker.credentials, config.sasl_oauthbearer) if has_login else None,
            acceptor.endpoint,
            self._clock.now_ms(),
            listener="" if acceptor.is_peer else acceptor.listener.name,
            is_peer=acceptor.is_peer,
        )
        self._admission.add(session)
        self._loop.begin(session)


def open_acceptors(config: BrokerConfig) -> list[Acceptor]:
    """Bind the sockets of all listeners; nothing is accepted yet.

    Raises:
        OSError: An address cannot be bound; none stays open.
    """
    opened: list[Acceptor] = []
    try:
        for listener in config.all_listeners:
            sock = _listen(listener.host, listener.port)
            endpoint = config.advertised_as(listener, sock.getsockname()[1])
            opened.append(Acceptor(listener, sock, config.tls if listener.has_tls else None, endpoint))
    except BaseException:
        close_acceptors(opened)
        raise
    return opened


def close_acceptors(acceptors: list[Acceptor]) -> None:
    """Close their sockets."""
    for acceptor in acceptors:
        acceptor.sock.close()


def _is_prepared(sock: socket.socket) -> bool:
    """Set the options of a client's socket; False if the client is gone, where macOS refuses them with EINVAL."""
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        return False
    return True


def _listen_for_peers(first: Acceptor, cluster: ClusterConfig, node_id: int) -> Acceptor:
    from kafkaprod.broker.peers.rules import socket_path  # a broker alone starts without them
    from kafkaprod.broker.peers.server import listen

    return first._replace(sock=listen(socket_path(cluster.directory, str(node_id))), tls=None, is_peer=True)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise bind_error(host, port, error) from error
    listener.setblocking(False)
    return listener
