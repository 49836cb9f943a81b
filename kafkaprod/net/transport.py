"""Non-blocking TCP and TLS byte streams: connect, send a chain of buffers, receive into a buffer.

Threads: the I/O thread only. Nothing here blocks except `resolve`, which is meant for a helper thread.
Errors are `OSError`s (`ssl.SSLError` is one); the caller that catches one closes the transport. A TLS transport never
falls back to plain text: until its handshake is complete it neither sends nor receives.

Exactness: `send` reports a byte as sent only when the kernel has the whole TLS record that carries it. TLS data is
therefore written one record (at most 16 KiB) a call, and a record that the kernel did not take is passed again with
exactly the same length. A request whose last byte was not reported cannot have reached the peer.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from kafkaprod.net.poller import READABLE, WRITABLE
from kafkaprod.net.socket_calls import receive_into, send

IOV_MAX = 1024  # Linux: most buffers one sendmsg takes
TLS_RECORD_BYTES = 16_384  # RFC 8446 section 5.1: most plain text in one record
OS_DEFAULT = -1

Buffer = bytes | bytearray | memoryview


class Address(NamedTuple):
    """Where to connect: an address family and what `socket.connect` takes for it."""

    family: int
    sockaddr: Any


def resolve(host: str, port: int, *, flags: int = 0) -> list[Address]:
    """Return all addresses of a name, in the order of the system's resolver, without duplicates. Blocks.

    Raises:
        OSError: The name is unknown (`socket.gaierror`), or no resolver answers.
    """
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=flags)
    return list(dict.fromkeys(Address(family, sockaddr) for family, _, _, _, sockaddr in answers))


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

    def send(self, buffers: Sequence[Buffer]) -> int:
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
            self.is_connected = _is_connected(self._sock)
        return self.is_connected

    def interest(self, *, has_output: bool) -> int:
        """Return WRITABLE while connecting; then READABLE, and WRITABLE while there is output."""
        if not self.is_connected:
            return WRITABLE
        return READABLE | WRITABLE if has_output else READABLE

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Write at most `IOV_MAX` buffers a call until the kernel takes no more; nothing is copied in user space."""
        return send(self._sock.fileno(), buffers)

    def receive_into(self, target: memoryview) -> int | None:
        """Read once."""
        return receive_into(self._sock.fileno(), target)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


class TlsTransport:
    """A TLS stream. Owns `sock`, which must be connected or connecting.

    Args:
        sock: Non-blocking socket.
        context: Used as it is.
        server_hostname: Name for SNI that the certificate must have; None on the server's side.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, server_hostname: str | None) -> None:
        self._sock = sock
        self._context = context
        # A trailing dot marks a name as absolute in DNS; certificates and SNI do not have it (RFC 6066 section 3).
        self._server_hostname = server_hostname.rstrip(".") if server_hostname is not None else None
        self._tls: ssl.SSLSocket | None = None
        self._is_open = False
        self._handshake_interest = WRITABLE  # connecting
        # Set when OpenSSL needs the opposite direction first (key update); cleared by the next attempt.
        self._is_read_blocked_on_write = False
        self._is_write_blocked_on_read = False
        self._refused_bytes = 0  # length of the record OpenSSL holds encrypted and the kernel did not take

    def fileno(self) -> int:
        """The socket's descriptor, -1 when closed."""
        return self._sock.fileno()

    @property
    def is_connected(self) -> bool:
        """Whether TCP is connected."""
        return self._tls is not None

    def try_open(self) -> bool:
        """Advance connect and handshake; return whether the handshake is complete and the certificate accepted.

        Raises:
            OSError: Connect failed; `ssl.SSLCertVerificationError`: the certificate was refused;
                `ssl.SSLError`: the peer does not support this TLS.
        """
        if self._tls is None:
            if not _is_connected(self._sock):
                return False
            self._tls = self._context.wrap_socket(
                self._sock,
                server_side=self._server_hostname is None,
                server_hostname=self._server_hostname,
                do_handshake_on_connect=False,
            )
            self._sock = self._tls  # the plain socket object no longer has the descriptor
        if not self._is_open:
            try:
                self._tls.do_handshake()
                self._is_open = True
            except ssl.SSLWantReadError:
                self._handshake_interest = READABLE
            except ssl.SSLWantWriteError:
                self._handshake_interest = WRITABLE
        return self._is_open

    def interest(self, *, has_output: bool) -> int:
        """Return what connect, handshake or stream wait for."""
        if not self._is_open:
            return self._handshake_interest
        wants_write = self._is_read_blocked_on_write or (has_output and not self._is_write_blocked_on_read)
        return READABLE | WRITABLE if wants_write else READABLE

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Encrypt and write record by record until the buffers end or the kernel takes no more."""
        self._is_write_blocked_on_read = False
        sent_bytes = 0
        index, position = 0, 0  # the next byte to send is buffers[index][position]
        try:
            while index < len(buffers):
                record, index, position = _record(buffers, index, position, self._refused_bytes or TLS_RECORD_BYTES)
                self._refused_bytes = len(record)
                taken_bytes = self._open_tls().send(record)
                self._refused_bytes = 0
                sent_bytes += taken_bytes
                if taken_bytes < len(record):  # smaller records were negotiated
                    break
        except ssl.SSLWantWriteError:
            pass
        except ssl.SSLWantReadError:
            self._is_write_blocked_on_read = True
        return sent_bytes

    def receive_into(self, target: memoryview) -> int | None:
        """Read one record at most; `target` should hold 16 KiB or more, so that none is left half-read."""
        self._is_read_blocked_on_write = False
        try:
            return self._open_tls().recv_into(target)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLWantWriteError:
            self._is_read_blocked_on_write = True
            return None
        except ssl.SSLZeroReturnError:
            return 0

    def _open_tls(self) -> ssl.SSLSocket:
        if self._tls is None or not self._is_open:
            raise ssl.SSLError("the TLS handshake is not complete: nothing may be sent or received")
        return self._tls

    def close(self) -> None:
        """Send a close_notify if that is possible at once, and close the socket."""
        if self._tls is not None and self._is_open and self._refused_bytes == 0:
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()  # raises SSLWantRead: it does not wait for the peer's close_notify
        self._is_open = False
        self._sock.close()


def _is_connected(sock: socket.socket) -> bool:
    error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))
    try:
        sock.getpeername()
    except OSError:  # ENOTCONN: still connecting
        return False
    return True


def _record(buffers: Sequence[Buffer], index: int, position: int, limit: int) -> tuple[Buffer, int, int]:
    """Return up to `limit` bytes from (index, position) on, and the position after them.

    A slice of one buffer is not copied; small neighbours (frame header, records, tail) are joined into one record.
    """
    first = memoryview(buffers[index])[position : position + limit]
    if len(first) == limit or index + 1 == len(buffers):
        end = position + len(first)
        return (first, index, end) if end < len(buffers[index]) else (first, index + 1, 0)
    joined = bytearray()
    while len(joined) < limit and index < len(buffers):
        part = memoryview(buffers[index])[position : position + limit - len(joined)]
        joined += part
        position += len(part)
        if position == len(buffers[index]):
            index, position = index + 1, 0
    return joined, index, position
