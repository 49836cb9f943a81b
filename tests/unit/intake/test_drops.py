"""buffer_full_policy="drop": what finds no memory fails at once and is counted; nothing waits or raises."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kafkaprod import AsyncProducer, Producer
from kafkaprod.errors import BufferFullError, DeliveryFailedError, PurgedError
from kafkaprod.structs import RecordMetadata

OPTIONS: dict[str, Any] = {
    "bootstrap_servers": "127.0.0.1:1",
    "buffer_memory": 64 << 10,
    "batch_size": 16384,
    "buffer_full_policy": "drop",
    "max_block_ms": 60_000,
}
VALUE = b"x" * 10_000


def dropped_count(producer: Producer | AsyncProducer) -> float:
    return float(producer.metrics()["producer-metrics"]["buffer-exhausted-total"])


class Seen:
    """An interceptor that keeps the outcomes."""

    def __init__(self) -> None:
        self.errors: list[BaseException | None] = []

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        self.errors.append(error)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def producer(seen: Seen) -> Iterator[Producer]:
    """One with a topic that has no leader, so that records stay queued."""
    producer = Producer(**OPTIONS, interceptors=[seen])
    producer.accumulator.set_topic("t", [-1, -1])
    yield producer
    producer.close(0)


def test_a_record_that_finds_no_memory_has_failed_when_send_returns(producer: Producer, seen: Seen) -> None:
    futures = [producer.send("t", VALUE, partition=1) for _ in range(20)]
    queued = sum(not future.done() for future in futures)
    assert 0 < queued < 20
    last = futures[-1]
    called: list[Any] = []
    last.add_done_callback(called.append)
    last.add_errback(called.append)
    assert repr(called) == repr([last, last.exception(0)])
    assert (last.topic, last.partition, last.failed()) == ("t", 1, True)
    assert "failed: BufferFullError" in repr(last)
    with pytest.raises(BufferFullError, match=r"no memory for a record of topic 't' .*buffer_memory=65536"):
        last.result()
    assert dropped_count(producer) == 20 - queued
    assert [type(error) for error in seen.errors] == [BufferFullError] * (20 - queued)


def test_rows_that_find_no_memory_fail_and_the_others_stay(producer: Producer) -> None:
    result = producer.send_many("t", [VALUE] * 20, partition=0)
    queued = int((result.error_codes == -3).sum())
    assert 0 < queued < 20
    assert list(result.errors) == list(range(queued, 20))
    assert dropped_count(producer) == 20 - queued
    table = producer.send_table("t", {"value": [VALUE] * 3})
    assert table.failed_count == 3
    assert dropped_count(producer) == 23 - queued


def test_the_log_says_so_at_most_once_a_second(producer: Producer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kafkaprod.intake"):
        for _ in range(20):
            producer.send("t", VALUE, partition=0)
    lines = [line for line in caplog.messages if "dropped: no memory for a record of topic 't'" in line]
    assert 1 <= len(lines) < dropped_count(producer)
    assert lines[0].startswith("1 record dropped")


def test_flush_raises_for_what_was_queued_and_not_for_what_was_dropped(producer: Producer) -> None:
    futures = [producer.send("t", VALUE) for _ in range(20)]
    queued = sum(not future.done() for future in futures)
    producer.purge()
    with pytest.raises(DeliveryFailedError, match=f"^{queued} records not delivered, the first because: .* purged"):
        producer.flush(10)
    producer.flush(10)


async def test_a_coroutine_does_not_wait_either() -> None:
    producer = AsyncProducer(**OPTIONS)
    producer._engine.accumulator.set_topic("t", [-1])
    futures = [await producer.send("t", VALUE) for _ in range(20)]
    with pytest.raises(BufferFullError):
        await futures[-1]
    with pytest.raises(BufferFullError):
        await producer.send_and_wait("t", VALUE)
    assert dropped_count(producer) == sum(future.failed() for future in futures) + 1
    await producer.close(0)


def test_a_record_for_a_topic_that_is_not_known_neither_waits_nor_raises(producer: Producer) -> None:
    futures = [producer.send("unknown", VALUE) for _ in range(20)]
    failed = [future for future in futures if future.done()]
    assert 0 < len(failed) < len(futures), "what is kept for its topic takes no more than buffer_memory"
    assert all(isinstance(future.exception(), BufferFullError) for future in failed)
    assert dropped_count(producer) == len(failed)
    assert len(producer.engine.sender.parking) == len(futures) - len(failed)


def test_a_record_does_not_pass_one_that_waits_for_memory_after_its_topic_came(producer: Producer) -> None:
    for _ in range(3):
        producer.send("t", VALUE, partition=0)  # one a batch, so that 16 KiB are left
    first = producer.send("late", VALUE * 2, partition=0)
    producer.accumulator.set_topic("late", [-1])
    small = producer.send("late", b"small", partition=0)  # would fit
    rows = producer.send_many("late", [b"row"], partition=0)
    parking = producer.engine.sender.parking
    assert (len(parking), first.done(), small.done()) == (2, False, False)
    assert rows.failed_count == 1, "a list can't wait here: it is dropped"
    producer.purge()
    assert [type(future.exception(10)) for future in (first, small)] == [PurgedError] * 2
    assert not parking.holds("late")
