"""Interceptors and blocks: what they see of them, add to them, and are told of their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kafkaprod import AsyncProducer, Producer
from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.embedding.faults import delay, reply_with
from kafkaprod.errors import BufferFullError, DeliveryFailedError, InvalidRecordError, KafkaError
from kafkaprod.hooks.interceptors import RecordBlock
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from tests.kafka.reading import read_all

LIMIT_S = 20.0


class Watcher:
    """Adds a header to every block, and keeps how each ended."""

    def __init__(self, name: Any = "trace", value: Any = b"1") -> None:
        self.header = (name, value)
        self.begun: list[RecordBlock] = []
        self.ended: list[tuple[RecordBlock, int, BaseException | None]] = []

    def on_block(self, block: RecordBlock) -> None:
        self.begun.append(block)
        block.add_header(*self.header)

    def on_block_acknowledgement(self, block: RecordBlock, failed_count: int, error: BaseException | None) -> None:
        self.ended.append((block, failed_count, error))


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 2, "v": 1}) as broker:
        yield broker


def _lists(producer: Producer) -> None:
    producer.send_many("v", [b"a", b"b"], headers=[("own", b"0")]).result(LIMIT_S)


def _rows(producer: Producer) -> None:
    producer.send_many("v", [b"a", b"b"], headers=[[("own", b"0")], [("own", b"0")]]).result(LIMIT_S)


def _columns(producer: Producer) -> None:
    column = (np.array([0, 1, 2], np.int32), b"ab")
    producer.send_columns("v", column, headers=[("own", b"0")]).result(LIMIT_S)


def _table(producer: Producer) -> None:
    producer.send_table("v", {"value": ["a", "b"]}, headers=[("own", b"0")]).result(LIMIT_S)


@pytest.mark.parametrize("send", [_lists, _rows, _columns, _table])
def test_block_is_seen_once_and_its_headers_reach_every_record(
    broker: EmbeddedBroker, send: Callable[[Producer], None]
) -> None:
    watcher = Watcher()
    with Producer(bootstrap_servers=broker.bootstrap_servers, interceptors=[watcher]) as producer:
        send(producer)
    assert [(block.topic, block.record_count) for block in watcher.begun] == [("v", 2)]
    assert watcher.ended == [(watcher.begun[0], 0, None)]
    records = read_all(broker.bootstrap_servers, "v")[0]
    assert [(record.value, list(record.headers)) for record in records] == [
        (value, [("own", b"0"), ("trace", b"1")]) for value in (b"a", b"b")
    ]


def test_blocks_of_an_asyncio_producer_are_seen(broker: EmbeddedBroker) -> None:
    watcher = Watcher()

    async def send() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, interceptors=[watcher]) as producer:
            await (await producer.send_many("v", [b"a"]))

    asyncio.run(send())
    assert [(block.record_count, failed) for block, failed, _ in watcher.ended] == [(1, 0)]


def test_failed_block_is_told_and_flush_still_raises(broker: EmbeddedBroker) -> None:
    watcher = Watcher()
    with Producer(bootstrap_servers=broker.bootstrap_servers, interceptors=[watcher]) as producer:
        broker.faults.on(ApiKey.PRODUCE, reply_with(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=1)
        producer.send_many("v", [b"a", b"b", b"c"])
        with pytest.raises(DeliveryFailedError) as raised:
            producer.flush()
    assert raised.value.failed_count == 3
    [(_, failed, error)] = watcher.ended
    assert failed == 3
    assert isinstance(error, KafkaError)


def test_refused_block_ends_with_its_error(broker: EmbeddedBroker) -> None:
    watcher = Watcher()
    with Producer(bootstrap_servers=broker.bootstrap_servers, interceptors=[watcher]) as producer:
        with pytest.raises(InvalidRecordError):
            producer.send_many("v", [b"a", b"b"], partitions=[0, 99])
        with pytest.raises(InvalidRecordError):
            producer.send_many("bad topic!", [b"a"])
    assert [(failed, type(error)) for _, failed, error in watcher.ended] == [
        (2, InvalidRecordError),
        (1, InvalidRecordError),
    ]


def test_block_that_finds_no_memory_ends_when_its_queued_rows_end(broker: EmbeddedBroker) -> None:
    watcher = Watcher()
    options: dict[str, Any] = {"buffer_memory": 2 << 20, "max_block_ms": 2000, "linger_ms": 0}
    with Producer(bootstrap_servers=broker.bootstrap_servers, interceptors=[watcher], **options) as producer:
        producer.send_many("v", [b"first"]).result(LIMIT_S)
        broker.faults.on(ApiKey.PRODUCE, delay(5000), times=1)
        with pytest.raises(BufferFullError) as raised:
            producer.send_many("v", [bytes(100_000)] * 100)
        result: Any = raised.value.result
        assert result.wait(LIMIT_S)
        queued = 100 - result.failed_count
        producer.flush()
    assert 0 < queued < 100
    assert [(failed, type(error)) for _, failed, error in watcher.ended] == [
        (0, type(None)),
        (100 - queued, BufferFullError),
    ]


@pytest.mark.parametrize("header", [(3, b"1"), ("h", "text"), ("h", 3), (None, None)])
def test_interceptor_that_adds_what_is_no_header_is_passed_over(broker: EmbeddedBroker, header: Any) -> None:
    last = Watcher("last")
    with Producer(bootstrap_servers=broker.bootstrap_servers, interceptors=[Watcher(*header), last]) as producer:
        producer.send_many("v", [b"a"]).result(LIMIT_S)
    assert [list(record.headers) for record in read_all(broker.bootstrap_servers, "v")[0]] == [[("last", b"1")]]


def test_interceptor_that_raises_takes_back_what_it_added() -> None:
    class Half(Watcher):
        def on_block(self, block: RecordBlock) -> None:
            super().on_block(block)
            raise RuntimeError("broken")

        def on_block_acknowledgement(self, *_: Any) -> None:
            raise RuntimeError("broken")

    last = Watcher("last")
    with EmbeddedBroker(topics={"v": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers, interceptors=[Half(), last]) as producer:
            producer.send_many("v", [b"a"]).result(LIMIT_S)
        assert [list(record.headers) for record in read_all(broker.bootstrap_servers, "v")[0]] == [[("last", b"1")]]
    assert len(last.ended) == 1


@pytest.mark.parametrize("own", [None, [("a", b"1")], [[("a", b"1")], None, [("b", None), ("c", b"")]]])
def test_headers_with_every_keeps_each_rows_own(broker: EmbeddedBroker, own: Any) -> None:
    headers = Headers.from_python(own).with_every(Headers.from_python([("x", b"y"), ("z", None)]))
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_columns("v", Column.from_list([b"0", b"1", b"2"]), headers=headers).result(LIMIT_S)
    per_row = own if own and isinstance(own[0], list) else [own] * 3
    expected = [[*(row or []), ("x", b"y"), ("z", None)] for row in per_row]
    assert [list(record.headers) for record in read_all(broker.bootstrap_servers, "v")[0]] == expected


def test_headers_of_rows_cannot_be_added_to_every_row() -> None:
    with pytest.raises(InvalidRecordError, match="same for every row"):
        Headers.from_python(None).with_every(Headers.from_python([[("a", b"1")]]))
