"""Any split of the bytes, in either direction, gives the same events."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.client import Connection
from kafkaprod.protocol.client_events import ConnectionFailed, SaslChallenge
from kafkaprod.protocol.handshake import ConnectionState
from kafkaprod.protocol.in_flight import InFlightRequest
from tests.support.net.fake_broker import FakeBroker
from tests.support.net.happenings import happened, kind

PRODUCE = 0


def make(**options: Any) -> Connection:
    return Connection(client_id="c", software_name="kafkaprod", software_version="1", **options)


def ignored(_: InFlightRequest, now_ms: int) -> None:
    """Take an outcome that the test reads elsewhere."""


def plain(events: list[Any]) -> list[Any]:
    """Events in a form that compares: bodies are views."""
    return [
        (event.correlation_id, bytes(event.body or b"")) if isinstance(event, InFlightRequest) else event
        for event in events
    ]


def conversation(broker: FakeBroker, bodies: list[bytes], out_sizes: list[int], in_sizes: list[int]) -> list[Any]:
    """Log in, negotiate, send `bodies`; move bytes in chunks of the given sizes, over and over."""
    broker.handlers[PRODUCE] = lambda request: request.body[::-1]
    connection = make(sasl_mechanism="PLAIN")
    connection.start(0)
    events: list[Any] = []
    outs, ins = 0, 0
    is_sent = False
    to_client = b""
    while connection.outgoing_bytes or to_client or not is_sent:
        if connection.is_ready and not is_sent:
            is_sent = True
            for body in bodies:
                connection.send_body(PRODUCE, 9, [body], len(body), on_done=ignored, now_ms=0, timeout_ms=100)
        size = out_sizes[outs % len(out_sizes)]
        outs += 1
        data = b"".join(connection.data_to_send(3))[:size]
        connection.data_sent(len(data), 0)
        to_client += broker.receive(data)
        size = in_sizes[ins % len(in_sizes)]
        ins += 1
        connection.receive_data(to_client[:size], 0)
        to_client = to_client[size:]
        for event in happened(connection):
            if isinstance(event, SaslChallenge) and event.challenge is None:
                connection.sasl_token(b"token", 0)
            elif isinstance(event, SaslChallenge):
                connection.sasl_complete(0)
            else:
                events.append(event)
    return plain(events)


sizes = st.lists(st.integers(1, 60), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(bodies=st.lists(st.binary(min_size=1, max_size=90), max_size=6), out_sizes=sizes, in_sizes=sizes)
def test_events_do_not_depend_on_how_the_bytes_are_cut(
    bodies: list[bytes], out_sizes: list[int], in_sizes: list[int]
) -> None:
    def broker() -> FakeBroker:
        return FakeBroker(sasl=lambda token: (0, b"done"))

    whole = conversation(broker(), bodies, [1 << 20], [1 << 20])
    assert len(whole) == 1 + len(bodies)
    assert conversation(broker(), bodies, out_sizes, in_sizes) == whole


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=300), cuts=sizes)
def test_garbage_in_any_split_ends_the_connection_or_waits_and_loses_no_request(data: bytes, cuts: list[int]) -> None:
    outcomes = []
    for sizes_ in ([1 << 20], cuts):
        connection = make()
        connection.start(0)
        broker = FakeBroker()
        answer = broker.receive(b"".join(connection.data_to_send(9)))
        connection.data_sent(connection.outgoing_bytes, 0)
        connection.receive_data(answer, 0)
        happened(connection)
        for _ in range(3):
            connection.send_body(PRODUCE, 9, [b"x"], 1, on_done=ignored, now_ms=0, timeout_ms=100)
        connection.data_sent(connection.outgoing_bytes, 0)
        position = index = 0
        while position < len(data):
            size = sizes_[index % len(sizes_)]
            connection.receive_data(data[position : position + size], 0)
            position, index = position + size, index + 1
        events = happened(connection)
        assert connection.state in (ConnectionState.READY, ConnectionState.CLOSED)
        connection.on_time(100)
        events += happened(connection)
        ended = [event.correlation_id for event in events if isinstance(event, InFlightRequest)]
        assert len(ended) == 3
        assert ended == sorted(ended)
        assert isinstance(events[-1], ConnectionFailed)
        outcomes.append([kind(event) for event in events])
    assert outcomes[0] == outcomes[1]


@settings(max_examples=200, deadline=None)
@given(size=st.one_of(st.integers(-(2**31), -1), st.integers((1 << 20) + 1, 2**31 - 1)), rest=st.binary(max_size=20))
def test_an_impossible_first_frame_size_ends_the_connection_at_once(size: int, rest: bytes) -> None:
    connection = make()
    connection.start(0)
    connection.data_sent(connection.outgoing_bytes, 0)
    connection.receive_data(struct.pack(">i", size) + rest, 0)
    (failed,) = connection.events()
    assert isinstance(failed, ConnectionFailed)
    assert isinstance(failed.error, CorruptDataError)
