"""A user's own root handler that sends by the producer whose lines it gets: nothing waits, nothing recurses."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.errors import KafkaError
from tests.kafka.ports import free_ports

BOUND_S = 30
LINES = 20


class SendingHandler(logging.Handler):
    """What people write: `emit` sends, under the lock that `logging` takes for it."""

    def __init__(self, producer: Producer) -> None:
        super().__init__()
        self.producer = producer
        self.seen: list[str] = []
        self.depth = self.deepest = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)
        try:
            self.seen.append(record.getMessage())
            self.producer.send("logs", record.getMessage().encode())
        except KafkaError:
            pass
        finally:
            self.depth -= 1


@pytest.fixture
def add_handler() -> Iterator[Callable[[logging.Handler], None]]:
    root = logging.getLogger()
    before = root.level, root.handlers.copy()

    def add(handler: logging.Handler) -> None:
        root.addHandler(handler)
        root.setLevel(logging.DEBUG)

    yield add
    root.setLevel(before[0])
    root.handlers[:] = before[1]


def test_the_first_line_does_not_wait_for_the_sender_s_own(add_handler: Callable[[logging.Handler], None]) -> None:
    (refusing,) = free_ports(1)
    with (
        EmbeddedBroker(topics={"logs": 1}) as broker,
        Producer(bootstrap_servers=f"127.0.0.1:{refusing},{broker.bootstrap_servers}") as producer,
    ):
        handler = SendingHandler(producer)
        add_handler(handler)
        for number in range(LINES):
            logging.getLogger("shop").warning("line %d", number)
        producer.flush(BOUND_S)
        assert [line for line in handler.seen if line.startswith("line")] == [f"line {n}" for n in range(LINES)]
        assert producer.metrics()["producer-metrics"]["record-error-total"] == 0


def test_a_line_about_a_line_ends_there(add_handler: Callable[[logging.Handler], None]) -> None:
    class Failing:
        def on_send(self, record: object) -> object:
            raise ZeroDivisionError

    with (
        EmbeddedBroker(topics={"logs": 1}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, interceptors=[Failing()]) as producer,
    ):
        handler = SendingHandler(producer)
        add_handler(handler)
        logging.getLogger("shop").warning("a line")
        producer.flush(BOUND_S)
    assert any("on_send failed" in line for line in handler.seen)
    assert handler.deepest == 2  # the line about a line was handled, and made no third


def test_the_sender_goes_on_while_a_handler_stands_still(add_handler: Callable[[logging.Handler], None]) -> None:
    may_go_on, stands = threading.Event(), threading.Event()

    class Standing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name.startswith("kafkaprod"):
                stands.set()
                assert may_go_on.wait(BOUND_S)

    with EmbeddedBroker(topics={"t": 1}) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        add_handler(Standing())
        first = producer.send("t", b"x")
        first.add_done_callback(lambda _: 1 / 0)  # the sender thread logs it
        assert stands.wait(BOUND_S)
        assert producer.send("t", b"y").result(BOUND_S).offset == 1
        may_go_on.set()
