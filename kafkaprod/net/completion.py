"""What the network layer reports: the outcome of each request, and counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafkaprod.errors import KafkaError


@dataclass(frozen=True, slots=True)
class Completion:
    """The outcome of one request.

    Attributes:
        node_id: The broker it was sent to.
        token: As given to `send`.
        response: The decoded response of a declared request.
        body: The response body of an encoded request; it owns its memory. Both are None on error and for acks=0.
        error: Why there is no response; None on success.
        is_possibly_persisted: On error: whether the broker may have acted on the request.
        latency_ms: From send to response; 0 on error.
        write_ms: From send to when the socket had taken the request; 0 on error.
    """

    node_id: int
    token: Any
    api_key: int
    version: int
    response: Any = None
    body: memoryview | None = None
    error: KafkaError | None = None
    is_possibly_persisted: bool = False
    latency_ms: int = 0
    write_ms: int = 0


@dataclass(slots=True)
class NodeMetrics:
    """Counters of one broker over all its connections."""

    bytes_sent: int = 0
    bytes_received: int = 0
    requests_sent: int = 0
    responses_received: int = 0
    connections_created: int = 0
    connections_closed: int = 0
    authentications_succeeded: int = 0
    authentications_failed: int = 0
    reauthentications_succeeded: int = 0
