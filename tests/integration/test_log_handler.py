"""A root logger whose lines go to Kafka: nothing waits, nothing recurses, what is dropped is counted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.errors import BufferFullError, InvalidRecordError
from kafkaprod.hooks.log_handler import KafkaHandler
from tests.kafka.ports import free_ports

BOUND_S = 30
LINES = 50


class Recorder:
    """Takes lines, or holds the thread that brings them."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.has_one, self.may_go_on = threading.Event(), threading.Event()
        self.error: Exception | None = None

    def send(self, topic: str, value: bytes) -> None:
        self.has_one.set()
        assert self.may_go_on.wait(BOUND_S)
        if self.error is not None:
            raise self.error
        self.lines.append(value)


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger()
    before = logger.level, logger.handlers.copy()
    yield logger
    logger.setLevel(before[0])
    logger.handlers[:] = before[1]


def test_lines_of_a_root_logger_arrive_though_the_first_server_refuses(root: logging.Logger) -> None:
    (refusing,) = free_ports(1)
    with (
        EmbeddedBroker(topics={"logs": 1}) as broker,
        Producer(bootstrap_servers=f"127.0.0.1:{refusing},{broker.bootstrap_servers}") as producer,
    ):
        handler = KafkaHandler(producer, "logs")
        root.addHandler(handler)
        root.setLevel(logging.DEBUG)
        for number in range(LINES):
            logging.getLogger("shop").warning("line %d", number)
        logging.getLogger("kafkaprod.engine").warning("a line of its own")
        root.removeHandler(handler)
        handler.close()
        producer.flush(BOUND_S)
        assert producer.metrics()["producer-topic-metrics.logs"]["record-send-total"] == LINES
        assert handler.dropped_count == 0


def test_full_queue_drops_and_counts_and_makes_nobody_wait(root: logging.Logger) -> None:
    recorder = Recorder()
    handler = KafkaHandler(recorder, "logs", capacity=2)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    root.addHandler(handler)
    root.warning("first")
    assert recorder.has_one.wait(BOUND_S)
    for number in range(5):
        root.warning("line %d", number)
    assert handler.dropped_count == 3
    recorder.may_go_on.set()
    handler.close()
    assert recorder.lines == [b"WARNING first", b"WARNING line 0", b"WARNING line 1"]
    root.warning("too late")
    assert len(recorder.lines) == 3


def test_lines_that_the_producer_refuses_are_counted(root: logging.Logger) -> None:
    recorder = Recorder()
    recorder.may_go_on.set()
    recorder.error = BufferFullError("full")
    handler = KafkaHandler(recorder, "logs")
    root.addHandler(handler)
    root.warning("lost")
    handler.close()
    assert (handler.dropped_count, recorder.lines) == (1, [])


@pytest.mark.parametrize("capacity", [0, -1, True, "5"])
def test_capacity_is_a_number_of_lines(capacity: int) -> None:
    with pytest.raises(InvalidRecordError, match="above 0"):
        KafkaHandler(Recorder(), "logs", capacity)
