"""Non-blocking TCP byte streams: connect, send a chain of buffers, receive into a buffer. TLS: `tls_transport`.

Threads: the I/O thread only. Nothing here blocks except `resolve`, which is meant for a helper thread.
Errors are `OSError`s (`ssl.SSLError` is one); the caller that catches one closes the transport.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401  # see `resolve`
import os
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from kafkaprod.net.poller import READABLE, WRITABLE
from kafkaprod.net.socket_calls import receive_into, send
from kafkaprod.structs import BytesLike

IOV_MAX = 1024  # Linux: most buffers one sendmsg takes
OS_DEFAULT = -1

FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}  # broker_address_family


class Address(NamedTuple):
    """Where to connect: an address family and what `socket.connect` takes for it."""

    family: int
    sockaddr: Any


def resolve(host: str, port: int, *, family: int = socket.AF_UNSPEC, flags: int = 0) -> list[Address]:
    """Return all addresses of a name, in the order of the system's resolver, without duplicates. Blocks.

    Python encodes names with `encodings.idna`. This module imports it: if the I/O thread did so later, a program that
    forks at that moment would have a child that waits for ever for the lock of the import.

    Raises:
        OSError: The name is unknown (`socket.gaierror`), or no resolver answers.
    """
    answers = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, socket.IPPROTO_TCP, flags)
    return list(dict.fromkeys(Address(family, sockaddr) for family, _, _, _, sockaddr in answers))


_UNKNOWN_NAME = frozenset(
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_FAIL") if hasattr(socket, name)
)


def is_unknown_name(error: BaseException | None) -> bool:
    """Whether a resolver has answered that a name does not exist; one that cannot answer now may know it later."""
    return isinstance(error, UnicodeError) or (isinstance(error, socket.gaierror) and error.errno in _UNKNOWN_NAME)


def numeric_addresses(host: str, port: int) -> list[Address] | None:
    """Return the address if `host` is an IPv4 or IPv6 number; None for a name, which needs a resolver."""
    try:
        return resolve(host, port, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return None


def connecting_socket(address: Address, *, send_buffer_bytes: int, receive_buffer_bytes: int) -> socket.socket:
    """Return a non-blocking socket that has begun to connect.

    Args:
        address: The peer.
        send_buffer_bytes: SO_SNDBUF, or `OS_DEFAULT`, which lets the kernel adapt it.
        receive_buffer_bytes: SO_RCVBUF, or `OS_DEFAULT`.

    Raises:
        OSError: The connect failed at once; the socket is closed.
    """
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if send_buffer_bytes != OS_DEFAULT:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if receive_buffer_bytes != OS_DEFAULT:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        with contextlib.suppress(BlockingIOError):
            sock.connect(address.sockaddr)
    except BaseException:
        sock.close()
        raise
    return sock


class Transport(Protocol):
    """A byte stream to one peer. Made with a socket that is connected or connecting."""

    def fileno(self) -> int:
        """Return the descriptor, which never changes."""
        ...

    def try_open(self) -> bool:
        """Advance connect and handshake without blocking; True once bytes can flow. Raises OSError on failure."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether TCP is connected; the TLS handshake may not be complete."""
        ...

    def interest(self, *, has_output: bool) -> int:
        """Return what to poll for now: READABLE | WRITABLE."""
        ...

    def send(self, buffers: Sequence[BytesLike]) -> int:
        """Write bytes to the kernel; return how many it took from the front, 0 if it takes none now."""
        ...

    def receive_into(self, target: memoryview) -> int | None:
        """Read; return the number of bytes, 0 at the end of the stream, None if there are none now."""
        ...

    def close(self) -> None:
        """Close. Idempotent. Reads no buffer passed to `send` afterwards."""
        ...


class TcpTransport:
    """A plain TCP stream. Owns `sock`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.is_connected = False

    def fileno(self) -> int:
        """The socket's descriptor, -1 when closed."""
        return self._sock.fileno()

    def try_open(self) -> bool:
        """Return whether it is connected. Raises OSError if the connect failed."""
        if not self.is_connected:
            self.is_connected = is_connected(self._sock)
        return self.is_connected

    def interest(self, *, has_output: bool) -> int:
        """Return WRITABLE while connecting; then READABLE, and WRITABLE while there is output."""
        if not self.is_connected:
            return WRITABLE
        return READABLE | WRITABLE if has_output else READABLE

    def send(self, buffers: Sequence[BytesLike]) -> int:
        """Write at most `IOV_MAX` buffers a call until the kernel takes no more; nothing is copied in user space."""
        return send(self._sock.fileno(), buffers)

    def receive_into(self, target: memoryview) -> int | None:
        """Read once."""
        return receive_into(self._sock.fileno(), target)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


def is_connected(sock: socket.socket) -> bool:
    """Return whether a connect has ended; raises OSError if it failed."""
    error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))
    try:
        sock.getpeername()
    except OSError:  # ENOTCONN: still connecting
        return False
    return True
