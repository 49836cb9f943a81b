"""A connection that finds no memory loses no request: each ends once, as soon as there is memory again."""

from __future__ import annotations

from contextlib import suppress

import pytest

from kafkaprod.errors import ConnectionLostError
from kafkaprod.protocol.client_events import ConnectionFailed
from tests.support.failing_memory import failing
from tests.support.net.connections import echo, produce, ready, take
from tests.support.net.fake_broker import FakeBroker

POSITIONS = range(60)


@pytest.mark.parametrize("count", [1, 3, 10])
def test_end_of_a_connection_loses_no_request(count: int) -> None:
    raised = 0
    for position in POSITIONS:
        connection, _ = ready()
        tokens = [object() for _ in range(5)]
        for token in tokens:
            produce(connection, token)
        error = ConnectionLostError("cut")
        try:
            with failing(position, count):
                connection.connection_lost(error)
        except MemoryError:
            raised += 1
        connection.connection_lost(error)
        assert [request.on_done for request in connection.finished] == tokens
        assert all(request.error is not None for request in connection.finished)
        assert [type(event) for event in connection.events()] == [ConnectionFailed]
    assert raised > 0


# Python 3.12 needs memory to end the generator that a failed call leaves, and reports that it had none.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <generator object FrameSplitter.feed")
@pytest.mark.parametrize("count", [1, 3, 10])
def test_answers_without_memory_lose_no_request(count: int) -> None:
    raised = 0
    for position in POSITIONS:
        connection, broker = ready(FakeBroker(handlers={0: echo}))
        tokens = [object() for _ in range(5)]
        for token in tokens:
            produce(connection, token)
        answers = broker.receive(take(connection))
        try:
            with failing(position, count):
                connection.receive_data(answers, 1)
        except MemoryError:
            raised += 1
        connection.connection_lost(ConnectionLostError("no memory for an answer"))
        assert [request.on_done for request in connection.finished] == tokens
    assert raised > 0


@pytest.mark.parametrize("count", [1, 3, 10])
def test_requests_without_an_answer_are_not_lost_when_they_are_sent(count: int) -> None:
    raised = 0
    for position in POSITIONS:
        connection, _ = ready()
        tokens = [object() for _ in range(5)]
        for token in tokens:
            produce(connection, token, expects_response=False)
        with suppress(MemoryError), failing(position, count):
            raised += 1
            take(connection)
            raised -= 1
        connection.connection_lost(ConnectionLostError("no memory"))
        assert [request.on_done for request in connection.finished] == tokens
    assert raised > 0
