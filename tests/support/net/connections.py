"""A client's connection and a broker that answers it, without a socket."""

from __future__ import annotations

from typing import Any

from kafkaprod.protocol.client import Connection
from kafkaprod.protocol.client_events import ConnectionReady, SaslChallenge
from tests.support.net.fake_broker import FakeBroker, Received
from tests.support.net.happenings import happened, kind

PRODUCE = 0


def make(**options: Any) -> Connection:
    settings: dict[str, Any] = {"client_id": "c", "software_name": "kafkaprod", "software_version": "0.1.0"}
    return Connection(**settings | options)


def take(connection: Connection, limit: int | None = None) -> bytes:
    """The bytes for the socket, `limit` of them at most, reported as sent."""
    data = b"".join(connection.data_to_send(1024))[:limit]
    connection.data_sent(len(data), 0)
    return data


def exchange(connection: Connection, broker: FakeBroker, now_ms: int = 0) -> list[Any]:
    """Let both talk, and answer SASL challenges with `token`, until nothing moves; return the other events."""
    events: list[Any] = []
    while True:
        answer = broker.receive(take(connection))
        connection.receive_data(answer, now_ms)
        fresh = happened(connection)
        for event in fresh:
            if isinstance(event, SaslChallenge):
                if event.challenge is None:
                    connection.sasl_token(b"token", now_ms)
                else:
                    connection.sasl_complete(now_ms)
            else:
                events.append(event)
        if not fresh and not answer and not connection.outgoing_bytes:
            return events


def ready(broker: FakeBroker | None = None, **options: Any) -> tuple[Connection, FakeBroker]:
    broker = broker or FakeBroker()
    connection = make(**options)
    connection.start(0)
    events = exchange(connection, broker)
    assert [kind(event) for event in events] == [ConnectionReady]
    return connection, broker


def produce(connection: Connection, token: Any, body: bytes = b"body", **options: Any) -> int:
    arguments: dict[str, Any] = {"now_ms": 0, "timeout_ms": 1000} | options
    return connection.send_body(PRODUCE, 9, [body], len(body), on_done=token, **arguments)


def echo(request: Received) -> bytes:
    return b"re:" + request.body
