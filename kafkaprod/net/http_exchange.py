"""One HTTP request and its answer, for token endpoints and proxies of names. Blocks: helper threads only."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kafkaprod.clock import monotonic_s

MAX_ANSWER_BYTES: Final = 1 << 20


class HttpAnswer(NamedTuple):
    """What a server answered; header names are in lower case."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


def exchange(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    *,
    connect_timeout_ms: int,
    read_timeout_ms: int,
    tls: ssl.SSLContext | None,
) -> HttpAnswer:
    """Send one request on a connection of its own; redirects are not followed.

    Args:
        method: GET, POST ...
        url: Http: or https:, its path and query percent-encoded.
        headers: To send.
        body: To send; None for none.
        connect_timeout_ms: How long TCP and TLS may take.
        read_timeout_ms: How long the whole answer may take, from when there is a connection.
        tls: The context for https; None: the system's authorities.

    Raises:
        OSError: The server cannot be reached, its certificate was refused, or its answer took too long.
        http.client.HTTPException: It does not speak HTTP.
        UnicodeError: No host can have such a name.
    """
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    connect_s = connect_timeout_ms / 1000
    if parts.scheme == "https":
        context = _system_context() if tls is None else tls
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, parts.port, timeout=connect_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=connect_s)
    try:
        connection.connect()
        _bound(connection, read_timeout_ms)
        path = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        connection.request(method, path, body, dict(headers))
        with connection.getresponse() as response:
            content = response.read(MAX_ANSWER_BYTES + 1)
            if len(content) > MAX_ANSWER_BYTES:
                raise http.client.HTTPException(f"the answer exceeds {MAX_ANSWER_BYTES} bytes")
            if response.length:  # None: the server did not say how much it is
                raise http.client.HTTPException(f"the answer ended {response.length} bytes before its end")
            names = {name.lower(): value for name, value in response.getheaders()}
            return HttpAnswer(response.status, response.reason, names, content)
    finally:
        connection.close()


def _system_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.hostname_checks_common_name = False  # only subject alternative names count (RFC 6125)
    return context


def _bound(connection: http.client.HTTPConnection, timeout_ms: int) -> None:
    """Let everything that comes from now on end in time: a server that sends a byte now and then is not waited for."""
    deadline_s = monotonic_s() + timeout_ms / 1000

    def response(sock: socket.socket, **options: Any) -> http.client.HTTPResponse:
        return http.client.HTTPResponse(_BoundSocket(sock, deadline_s, timeout_ms), **options)  # type: ignore[arg-type]

    connection.sock.settimeout(timeout_ms / 1000)
    connection.response_class = response  # type: ignore[assignment]


class _BoundSocket:
    """What `HTTPResponse` uses of a socket: a file to read it."""

    def __init__(self, sock: socket.socket, deadline_s: float, timeout_ms: int) -> None:
        self._reader = _BoundReader(sock, deadline_s, timeout_ms)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._reader)


class _BoundReader(io.RawIOBase):
    """Reads a socket until a deadline; then TimeoutError is raised, even if bytes come."""

    def __init__(self, sock: socket.socket, deadline_s: float, timeout_ms: int) -> None:
        self._sock = sock
        self._file = sock.makefile("rb", buffering=0)
        self._deadline_s = deadline_s
        self._timeout_ms = timeout_ms

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._deadline_s - monotonic_s()
        try:
            if left_s <= 0:
                raise TimeoutError
            self._sock.settimeout(left_s)
            return self._file.readinto(buffer)
        except TimeoutError:
            raise TimeoutError(f"no complete answer within {self._timeout_ms} ms") from None

    def close(self) -> None:
        self._file.close()
        super().close()
