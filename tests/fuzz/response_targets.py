"""What a broker could send, damaged in every way: it is understood or refused with CorruptDataError, nothing else.

No input may take more than a second of CPU time; the fuzzer bounds the memory. An exception that escapes is a finding.

| target            | input                                                                                       |
|-------------------|---------------------------------------------------------------------------------------------|
| `read_response`   | api key, version, body: any response that is declared                                       |
| `settle_response` | version, layout of the request, body: the compiled path of Produce against its declaration  |
| `receive_bytes`   | kind, then bytes of a connection: raw and cut in pieces, or bodies behind valid frame headers |
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kafkaprod._core.requests.produce_response import settle_all
from kafkaprod.errors import AuthenticationError, ConnectionLostError, CorruptDataError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.client import Connection
from kafkaprod.protocol.client_events import (
    ConnectionFailed,
    Event,
    SaslChallenge,
)
from kafkaprod.protocol.handshake import ConnectionState
from kafkaprod.protocol.messages import RESPONSES
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkaprod.protocol.messages.metadata import MetadataRequest
from kafkaprod.protocol.messages.produce import ProduceResponse
from kafkaprod.security.scram import ScramMechanism
from tests.support.net.fake_broker import FakeBroker, frame
from tests.support.net.outcomes import outcome_token
from tests.support.producer.sender_rig import Rig, Sent

MOST_CPU_S = 1.0
API_KEYS = sorted(RESPONSES)
LAYOUTS: tuple[dict[str, int], ...] = ({"a": 1}, {"a": 3}, {"a": 2, "topic-b": 2}, {"a": 40})
PRODUCE_VERSIONS = range(3, 14)
IS_LOGIN, IS_READY, IS_FRAMED = 1, 2, 4  # bits of the kind; the rest is the size of the pieces


@contextmanager
def in_time() -> Iterator[None]:
    started_s = time.thread_time()
    yield
    assert time.thread_time() - started_s < MOST_CPU_S, "too slow"


def read_response(data: bytes) -> None:
    """Decode; what can be decoded is written and read again as the same."""
    if len(data) < 2:
        return
    response_type = RESPONSES[API_KEYS[data[0] % len(API_KEYS)]]
    lowest, highest = response_type.versions
    version = lowest + data[1] % (highest - lowest + 1)
    with in_time():
        try:
            response = response_type.decode(data[2:], version)
        except CorruptDataError:
            return
        assert response_type.decode(response.encode(version), version) == response


class _Request:
    """A Produce request in flight; made anew once it was settled."""

    def __init__(self, version: int, layout: dict[str, int]) -> None:
        self.rig = Rig(topics={name: (1,) * count for name, count in layout.items()})
        self.rig.pool.version = version
        self.futures = [self.rig.send(b"v", i, name) for name, count in layout.items() for i in range(count)]
        self.rig.turn()
        self.sent: Sent
        (self.sent,) = self.rig.produce_requests


_requests: dict[tuple[int, int], _Request] = {}


def settle_response(data: bytes) -> None:
    """The compiled path takes nothing that the declaration refuses, and settles all or nothing."""
    if len(data) < 2:
        return
    version = PRODUCE_VERSIONS[data[0] % len(PRODUCE_VERSIONS)]
    layout = data[1] % len(LAYOUTS)
    request = _requests.get((version, layout)) or _Request(version, LAYOUTS[layout])
    _requests[version, layout] = request
    with in_time():
        throttle_ms = settle_all(request.sent.produce, data[2:], version)
    if throttle_ms is None:
        assert not any(future.done() for future in request.futures)
        return
    del _requests[version, layout]
    assert all(future.succeeded() for future in request.futures)
    said = ProduceResponse.decode(data[2:], version)
    partitions = [partition for topic in said.responses for partition in topic.partition_responses]
    assert len(partitions) == len(request.futures)
    assert not any(partition.error_code for partition in partitions)
    assert said.throttle_time_ms == throttle_ms
    request.sent.produce.finish()


def receive_bytes(data: bytes) -> None:
    """A connection takes the bytes; each of its requests ends once, and nothing is kept of what was not sent."""
    if not data:
        return
    kind = data[0]
    connection, mechanism = _connection(kind)
    tokens = _send_requests(connection) if connection.is_ready else []
    events: list[Event] = []
    with in_time():
        for piece in _framed(data[1:], connection) if kind & IS_FRAMED else _pieces(data[1:], kind >> 3):
            connection.receive_data(piece, 0)
            events += _take_events(connection, mechanism)
            assert connection._splitter.incomplete_bytes <= len(data) + 64
        connection.connection_lost(ConnectionLostError("the end"))
    events += _take_events(connection, mechanism)
    assert connection.state is ConnectionState.CLOSED
    assert [type(event) for event in events].count(ConnectionFailed) == 1
    ended = [request.on_done for request in connection.finished]
    assert ended == tokens, "each once, in the order they were sent"


def _connection(kind: int) -> tuple[Connection, ScramMechanism]:
    """At the start of its life, or, if the kind says so, past the handshake."""
    mechanism = ScramMechanism("SCRAM-SHA-256", "u", "p", max_iterations=4096, nonce=lambda: "nonce")
    login = mechanism.name if kind & IS_LOGIN and not kind & IS_READY else None
    connection = Connection(client_id="c", software_name="n", software_version="1", sasl_mechanism=login)
    connection.start(0)
    first = _take(connection)
    if kind & IS_READY:
        connection.receive_data(FakeBroker().receive(first), 0)
        connection.events()
    return connection, mechanism


def _send_requests(connection: Connection) -> list[str]:
    connection.send_body(ApiKey.PRODUCE, 9, [b"body"], 4, on_done=outcome_token("produce"), now_ms=0, timeout_ms=1000)
    connection.send(MetadataRequest(topics=[]), 12, on_done=outcome_token("metadata"), now_ms=0, timeout_ms=1000)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    connection.send(request, 5, on_done=outcome_token("producer id"), now_ms=0, timeout_ms=1000)
    _take(connection)
    return ["produce", "metadata", "producer id"]


def _take(connection: Connection) -> bytes:
    data = b"".join(connection.data_to_send(1024))
    connection.data_sent(len(data), 0)
    return data


def _take_events(connection: Connection, mechanism: ScramMechanism) -> list[Event]:
    """The events; challenges are answered as a node does."""
    events = connection.events()
    for event in events:
        if isinstance(event, SaslChallenge) and connection.state is not ConnectionState.CLOSED:
            try:
                token = mechanism.first() if event.challenge is None else mechanism.step(event.challenge)
            except AuthenticationError as error:
                connection.connection_lost(error)
                continue
            assert token is not None, "nobody who does not know the password gets in"
            connection.sasl_token(token, 0)
    _take(connection)
    return events


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    """As the network may cut them."""
    step = size or max(len(data), 1)
    for start in range(0, len(data), step):
        yield data[start : start + step]


def _framed(data: bytes, connection: Connection) -> Iterator[bytes]:
    """Bodies, each with its size in a byte before it, behind the header that the connection waits for."""
    while data:
        size = data[0]
        waiting = next(iter(connection._in_flight), None)
        if waiting is None:
            return
        yield frame(waiting.correlation_id.to_bytes(4, "big") + data[1 : 1 + size])
        data = data[1 + size :]
