"""What a client connection reports. Frozen; tokens come back as they were given to `send`.

A request ends in exactly one of `ResponseReceived`, `RequestSent` (no response expected) and `RequestFailed`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kafkaprod.errors import KafkaError
from kafkaprod.protocol.negotiation import BrokerVersions


@dataclass(frozen=True, slots=True)
class SaslChallenge:
    """The login waits for the mechanism's next token: answer with `sasl_token` or `sasl_complete`.

    Attributes:
        challenge: The server's message; None asks for the first token of a new exchange.
    """

    challenge: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConnectionReady:
    """The handshake is complete: requests may be sent. Comes once."""

    versions: BrokerVersions


@dataclass(frozen=True, slots=True)
class SessionReauthenticated:
    """A login during the connection's life succeeded: requests may be sent again.

    Attributes:
        latency_ms: From the last answer before it to its end.
    """

    latency_ms: int


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The broker answered.

    Attributes:
        body: The response behind its header, for requests sent with `send_body`; it owns its memory.
        response: The decoded response, for requests sent with `send`.
        latency_ms: From `send` to the response.
        write_ms: From `send` to when the socket had taken the request; part of the above.
    """

    token: Any
    api_key: int
    version: int
    body: memoryview | None
    response: Any
    latency_ms: int
    write_ms: int = 0


@dataclass(frozen=True, slots=True)
class RequestSent:
    """A request that expects no response was taken by the socket to its last byte, `write_ms` after `send`."""

    token: Any
    api_key: int
    version: int
    write_ms: int = 0


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The connection ended before the answer.

    Attributes:
        is_possibly_persisted: Whether the socket took all of the request, so that the broker may have acted on it.
    """

    token: Any
    api_key: int
    version: int
    error: KafkaError
    is_possibly_persisted: bool


@dataclass(frozen=True, slots=True)
class ConnectionFailed:
    """The connection has ended; the last event. `error` is an AuthenticationError if the login was refused."""

    error: KafkaError


Event = (
    SaslChallenge
    | ConnectionReady
    | SessionReauthenticated
    | ResponseReceived
    | RequestSent
    | RequestFailed
    | ConnectionFailed
)
