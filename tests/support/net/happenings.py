"""What a client connection reported: requests that have ended, and events, in one list."""

from __future__ import annotations

from typing import Any

from kafkaprod.protocol.client import Connection
from kafkaprod.protocol.in_flight import InFlightRequest


def happened(connection: Connection) -> list[Any]:
    """Everything since the last call: first the requests that have ended, then the events."""
    finished = connection.finished.copy()
    connection.finished.clear()
    return [*finished, *connection.events()]


def kind(happening: Any) -> Any:
    """How a request has ended (answered, written, failed); the class of an event."""
    if not isinstance(happening, InFlightRequest):
        return type(happening)
    if happening.error is not None:
        return "failed"
    return "answered" if happening.expects_response else "written"
