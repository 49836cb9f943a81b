"""Counters of a broker's connections. They never go back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, repr=False, eq=False)
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
    reauthentications_failed: int = 0
    reauthentication_ms: int = 0  # sum over all of them
