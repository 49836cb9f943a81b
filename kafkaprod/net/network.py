"""Where connections come from: a network makes the transports of a client, and what waits for them.

`SOCKETS` is the machine's network. Another one may live in memory: whatever uses a pool takes any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkaprod.config.connection_options import ConnectionOptions
from kafkaprod.net.poller import Poller
from kafkaprod.net.transport import Address, TcpTransport, Transport, connecting_socket

if TYPE_CHECKING:
    import ssl


class Readiness(Protocol):
    """Waits for transports; see `Poller`. Belongs to the I/O thread, except `wakeup`."""

    to_wake: list[Callable[[], None]]

    @property
    def poll_count(self) -> int:
        """How often `poll` has waited."""
        ...

    @property
    def wait_ns(self) -> int:
        """Nanoseconds spent waiting there."""
        ...

    @property
    def wakeup(self) -> Callable[[], None]:
        """Called, it makes the current or next `poll` return at once. Thread-safe."""
        ...

    def modify(self, file: Transport, interest: int, data: Any) -> None:
        """Change what a transport is watched for; 0 stops watching."""
        ...

    def unregister(self, file: Transport) -> None:
        """Stop watching a transport."""
        ...

    def poll(self, timeout_ms: float | None) -> list[tuple[Any, int]]:
        """Call `to_wake` and empty it; wait at most so long; return (data, READABLE | WRITABLE) of what is ready."""
        ...

    def close(self) -> None:
        """Release what it holds. Idempotent."""
        ...


class Network(Protocol):
    """Makes the transports of a client."""

    def make_poller(self) -> Readiness:
        """Return what waits for the transports that `connect` makes."""
        ...

    def connect(self, address: Address, options: ConnectionOptions, tls: ssl.SSLContext | None, host: str) -> Transport:
        """Begin to connect.

        Args:
            address: The peer.
            options: Buffer sizes of the connection.
            tls: Context for TLS; None: plain TCP.
            host: The peer's name, which its certificate must have.

        Raises:
            OSError: It failed at once.
        """
        ...


class SocketNetwork:
    """The machine's network. Stateless, so thread-safe."""

    def make_poller(self) -> Poller:
        """Return a poller of file descriptors."""
        return Poller()

    def connect(self, address: Address, options: ConnectionOptions, tls: ssl.SSLContext | None, host: str) -> Transport:
        """Begin to connect a socket; see `Network.connect`."""
        sock = connecting_socket(
            address, send_buffer_bytes=options.send_buffer_bytes, receive_buffer_bytes=options.receive_buffer_bytes
        )
        if tls is None:
            return TcpTransport(sock)
        from kafkaprod.net.tls_transport import TlsTransport  # loads OpenSSL

        return TlsTransport(sock, tls, server_hostname=host)


SOCKETS: Final = SocketNetwork()
