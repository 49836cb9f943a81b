"""Non-blocking TLS byte streams over a socket. Apart from `transport`, so that plain connections do not load OpenSSL.

Threads and errors: as in `transport`. A TLS transport never falls back to plain text: until its handshake is complete
it neither sends nor receives.

Exactness: `send` reports a byte as sent only when the kernel has the whole TLS record that carries it. TLS data is
therefore written one record (at most 16 KiB) a call, and a record that the kernel did not take is passed again with
exactly the same length. A request whose last byte was not reported cannot have reached the peer.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Sequence

from kafkaprod.net.poller import READABLE, WRITABLE
from kafkaprod.net.transport import is_connected
from kafkaprod.structs import BytesLike

TLS_RECORD_BYTES = 16_384  # RFC 8446 section 5.1: most plain text in one record


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
            if not is_connected(self._sock):
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

    def send(self, buffers: Sequence[BytesLike]) -> int:
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


def _record(buffers: Sequence[BytesLike], index: int, position: int, limit: int) -> tuple[BytesLike, int, int]:
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
