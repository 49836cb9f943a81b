"""The producers that a Python worker keeps over its tasks."""

from collections.abc import Iterator

import pytest

from kafkaprod.errors import ProducerClosedError
from kafkaprod.spark import pool
from kafkaprod.spark.pool import MAX_PRODUCERS, borrowed_producer

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture(autouse=True)
def no_producers_left() -> Iterator[None]:
    yield
    while pool._producers:
        pool._producers.popitem()[1].close(0)


def test_producer_of_the_same_options_is_kept() -> None:
    with borrowed_producer(SERVERS | {"linger.ms": 3}) as first:
        pass
    with borrowed_producer({"linger.ms": 3} | SERVERS) as second:
        assert second is first


def test_options_that_cannot_be_hashed_are_taken() -> None:
    with borrowed_producer({"bootstrap.servers": ["127.0.0.1:1"]}) as first:
        pass
    with borrowed_producer({"bootstrap.servers": ["127.0.0.1:1"]}) as second:
        assert second is first


@pytest.mark.parametrize(
    ("options", "workers"), [({}, 0), ({"compression.workers": "3"}, 3), ({"compression_workers": 1}, 1)]
)
def test_sender_thread_compresses_unless_the_options_say_otherwise(options: dict[str, object], workers: int) -> None:
    with borrowed_producer(SERVERS | {"compression.type": "zstd"} | options) as producer:
        assert producer.config.compression_workers == workers


@pytest.mark.parametrize(
    ("options", "expected_ms"),
    [({}, 60_000), ({"bootstrap.timeout.ms": "3000"}, 3000), ({"max.block.ms": "90000"}, 90_000)],
)
def test_a_worker_waits_a_minute_for_brokers_that_the_driver_has_reached(
    options: dict[str, object], expected_ms: int
) -> None:
    with borrowed_producer(SERVERS | options) as producer:
        assert producer.config.bootstrap_timeout_ms == expected_ms


def test_producer_of_a_failed_task_is_closed_and_not_kept() -> None:
    with pytest.raises(ZeroDivisionError), borrowed_producer(SERVERS) as first:
        raise ZeroDivisionError
    with pytest.raises(ProducerClosedError):
        first.send("t", b"v")
    with borrowed_producer(SERVERS) as second:
        assert second is not first


def test_only_the_last_used_producers_are_kept() -> None:
    producers = []
    for linger_ms in range(MAX_PRODUCERS):
        with borrowed_producer(SERVERS | {"linger.ms": linger_ms}) as producer:
            producers.append(producer)
    with borrowed_producer(SERVERS | {"linger.ms": 0}) as again:
        assert again is producers[0]
    with borrowed_producer(SERVERS | {"linger.ms": 99}):
        assert len(pool._producers) == MAX_PRODUCERS
    with pytest.raises(ProducerClosedError):
        producers[1].send("t", b"v")
    with borrowed_producer(SERVERS | {"linger.ms": 0}) as again:
        assert again is producers[0]
