"""One HTTP request and its answer, for token endpoints and proxies of names. Blocks: helper threads only."""

from __future__ import annotations

import http.client
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Final, NamedTuple

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
        url: Http: or https:.
        headers: To send.
        body: To send; None for none.
        connect_timeout_ms: How long TCP and TLS may take.
        read_timeout_ms: How long the server may be silent.
        tls: The context for https; None: the system's authorities.

    Raises:
        OSError: The server cannot be reached, its certificate was refused, or it was silent for too long.
        http.client.HTTPException: It does not speak HTTP.
    """
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    connect_s = connect_timeout_ms / 1000
    if parts.scheme == "https":
        context = ssl.create_default_context() if tls is None else tls
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, parts.port, timeout=connect_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=connect_s)
    try:
        connection.connect()
        connection.sock.settimeout(read_timeout_ms / 1000)
        path = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        connection.request(method, path, body, dict(headers))
        with connection.getresponse() as response:
            content = response.read(MAX_ANSWER_BYTES + 1)
            if len(content) > MAX_ANSWER_BYTES:
                raise http.client.HTTPException(f"the answer exceeds {MAX_ANSWER_BYTES} bytes")
            names = {name.lower(): value for name, value in response.getheaders()}
            return HttpAnswer(response.status, response.reason, names, content)
    finally:
        connection.close()
