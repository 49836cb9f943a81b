"""Connections through a SOCKS or HTTP proxy, by the library python-socks (extra `kafkaprod[proxy]`).

The library connects and speaks to the proxy on a helper thread; the socket is then as any other. The proxy resolves
names, so brokers may have names that only its network knows.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkaprod.clock import monotonic_s
from kafkaprod.config.connection_options import ConnectionOptions
from kafkaprod.config.secret import Secret, without_secrets
from kafkaprod.errors import ConfigError, printable
from kafkaprod.net.background import Offload
from kafkaprod.net.transport import OS_DEFAULT, TcpTransport, Transport
from kafkaprod.structs import Node
from kafkaprod.text import address_text

if TYPE_CHECKING:
    import ssl

    from kafkaprod.net.settings import ConnectionSettings

_MAX_REASON_CHARACTERS: Final = 200


class Proxy:
    """A proxy. Thread-safe.

    Args:
        url: `socks5://user:password@host:port`, `socks4://` or `http://`; one in a variable or a file is read for each
            connection.

    Attributes:
        place: The address without user and password, for messages.

    Raises:
        ConfigError: The text is not an address, or python-socks is not installed.
    """

    def __init__(self, url: Secret, check_use: Callable[[], None] = lambda: None) -> None:
        try:
            from python_socks import ProxyError, ProxyTimeoutError
        except ImportError as error:
            raise ConfigError("proxy_url needs python-socks: pip install 'kafkaprod[proxy]'") from error
        self._url = url
        self._check_use = check_use
        _, self.place, _ = _read(url)
        self._errors = (ProxyError, ProxyTimeoutError)

    def connect(self, host: str, port: int, timeout_ms: int) -> socket.socket:
        """Return a socket that is connected to a broker. Blocks.

        Raises:
            OSError: The proxy cannot be reached, refuses, cannot reach the broker, or takes too long.
            ConfigError: The address has changed and cannot be used, or where it is read may no longer be read.
        """
        self._check_use()
        proxy, self.place, secrets = _read(self._url, _Opener(timeout_ms))
        try:
            bound = proxy.connect(host, port)
        except self._errors as error:
            why = printable(without_secrets(str(error), *secrets), _MAX_REASON_CHARACTERS)
        else:
            return socket.socket(fileno=bound.detach())
        raise OSError(why)  # behind the block: the other error, which may repeat the login, is not its context

    def begin(
        self,
        offload: Offload,
        node: Node,
        settings: ConnectionSettings,
        tls: ssl.SSLContext | None,
        timeout_ms: int,
        on_transport: Callable[[Transport], None],
        on_error: Callable[[Exception, str], None],
    ) -> None:
        """Connect to a broker on a helper thread; call one of the two on the I/O thread."""
        offload(
            partial(self.connect, node.host, node.port, timeout_ms),
            lambda sock, _: on_transport(_transport_over(sock, settings.options, tls, node.host)),
            lambda error, _: on_error(error, f"the proxy {self.place} gives no connection"),
        )


class _Opener:
    """Opens the connection to the proxy itself, in the place where the library takes another proxy for that.

    Args:
        timeout_ms: How long opening and the whole exchange may take: a proxy that sends a byte now and then is not
            waited for.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms

    def connect(self, dest_host: str, dest_port: int, timeout: float | None = None) -> _BoundSocket:
        """Return a socket that is connected to the proxy. Raises OSError."""
        deadline_s = monotonic_s() + self._timeout_ms / 1000
        opened = socket.create_connection((dest_host, dest_port), self._timeout_ms / 1000)
        return _BoundSocket(opened, deadline_s, self._timeout_ms)


class _BoundSocket(socket.socket):
    """A socket whose reads all end before one deadline."""

    def __init__(self, opened: socket.socket, deadline_s: float, timeout_ms: int) -> None:
        left_s = opened.gettimeout()
        super().__init__(fileno=opened.detach())
        self.settimeout(left_s)
        self._deadline_s = deadline_s
        self._timeout_ms = timeout_ms

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Read as a socket does. Raises ProxySlowError after the deadline."""
        left_s = self._deadline_s - monotonic_s()
        try:
            if left_s <= 0:
                raise TimeoutError
            self.settimeout(left_s)
            return super().recv(size, flags)
        except TimeoutError:
            raise ProxySlowError(f"no complete answer within {self._timeout_ms} ms") from None


class ProxySlowError(OSError):
    """The proxy's answer was not complete in time."""


def _read(url: Secret, opener: _Opener | None = None) -> tuple[Any, str, list[str]]:
    """Return the library's proxy, its place, and what is hidden though a proxy repeats it.

    Raises:
        ConfigError: The text is not an address.
    """
    from python_socks import parse_proxy_url
    from python_socks.sync import Proxy as SyncProxy

    try:
        text = url.reveal()
        kind, host, port, user, password = parse_proxy_url(text)
        scheme = kind.name.lower()
        options: dict[str, Any] = {} if scheme == "http" else {"rdns": True}
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        proxy = SyncProxy.from_url(text, forward=opener, **options)
        return proxy, f"{scheme}://{address_text(host, port)}", [password or "", login]
    except (ValueError, TypeError):
        pass  # the error may quote the password
    raise ConfigError(
        "proxy_url must be socks5://host:port, socks4://host:port or http://host:port, before the host "
        "user:password@ if the proxy wants them"
    )


def _transport_over(
    sock: socket.socket, options: ConnectionOptions, tls: ssl.SSLContext | None, host: str
) -> Transport:
    """Return a transport over a socket that is connected; the arguments are those of `Network.connect`."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if options.send_buffer_bytes != OS_DEFAULT:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
    if options.receive_buffer_bytes != OS_DEFAULT:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
    if tls is None:
        return TcpTransport(sock)
    from kafkaprod.net.tls_transport import TlsTransport  # loads OpenSSL

    return TlsTransport(sock, tls, server_hostname=host)
