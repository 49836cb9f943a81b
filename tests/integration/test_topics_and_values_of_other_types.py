"""Topics that are kinds of text, and values that are kinds of memory: as people hold them, in every call."""

from __future__ import annotations

import array
import asyncio
import ctypes
import enum
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kafkaprod import AsyncProducer, Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.compat.aiokafka import AIOKafkaProducer
from kafkaprod.compat.confluent_kafka import Producer as ConfluentProducer
from kafkaprod.compat.kafka_python import KafkaProducer
from kafkaprod.errors import ArgumentTypeError, MetadataTimeoutError
from kafkaprod.structs import TopicPartition

BOUND_S = 30


class Topics(enum.StrEnum):
    ORDERS = "orders"


class OldTopics(str, enum.Enum):  # noqa: UP042 - what programs have
    ORDERS = "orders"


class Name(str):
    pass


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 2}) as broker:
        yield broker


@pytest.fixture
def producer(server: EmbeddedBroker) -> Iterator[Producer]:
    with Producer(bootstrap_servers=server.bootstrap_servers, max_block_ms=5000) as producer:
        yield producer


KINDS = [Topics.ORDERS, OldTopics.ORDERS, Name("orders"), np.array(["orders"])[0]]
CALLS: dict[str, Callable[[Producer, str], Any]] = {
    "send": lambda producer, topic: producer.send(topic, b"1").result(BOUND_S).topic,
    "send_many": lambda producer, topic: producer.send_many(topic, [b"1"]).result(BOUND_S).failed_count,
    "send_columns": lambda producer, topic: producer.send_columns(
        topic, (np.array([0, 1], dtype=np.int32), b"1")
    ).result(BOUND_S),
    "send_table": lambda producer, topic: producer.send_table(topic, {"value": [b"1"]}).result(BOUND_S).topics,
    "partitions_for": lambda producer, topic: producer.partitions_for(topic),
    "list_topics": lambda producer, topic: [producer.list_topics(topic), producer.list_topics([topic])],
}


@pytest.mark.parametrize("topic", KINDS, ids=lambda topic: type(topic).__name__)
@pytest.mark.parametrize("call", CALLS)
def test_a_topic_may_be_any_kind_of_text_in_every_call_and_the_plain_name_works_after_it(
    producer: Producer, topic: str, call: str
) -> None:
    CALLS[call](producer, topic)
    assert type(producer.send(topic, b"1").result(BOUND_S).topic) is str
    producer.send("orders", b"1").result(BOUND_S)
    assert all(type(name) is str for name in producer.accumulator.topics)


@pytest.mark.parametrize("topic", KINDS, ids=lambda topic: type(topic).__name__)
def test_hooks_see_a_plain_topic(server: EmbeddedBroker, topic: str) -> None:
    seen: list[type] = []

    def serialize(data: bytes, context: Any) -> bytes:
        seen.append(type(context.topic))
        return data

    class Renaming:
        def on_send(self, record: Any) -> Any:
            return record._replace(topic=topic)

    with Producer(
        bootstrap_servers=server.bootstrap_servers, value_serializer=serialize, interceptors=[Renaming()]
    ) as producer:
        for _ in range(2):
            producer.send("other", b"1").result(BOUND_S)
        producer.send_many(topic, [b"1"]).result(BOUND_S)
    assert set(seen) == {str}


@pytest.mark.parametrize("topic", KINDS, ids=lambda topic: type(topic).__name__)
def test_options_and_offsets_take_any_kind_of_text(server: EmbeddedBroker, topic: str) -> None:
    options: dict[str, Any] = {
        "bootstrap_servers": server.bootstrap_servers,
        "topic_options": {topic: {"compression_type": "gzip"}},
        "transactional_id": f"kinds-{type(topic).__name__}",
    }
    with Producer(options) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("orders", b"1")
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, Name("readers"))


@pytest.mark.parametrize("topic", KINDS, ids=lambda topic: type(topic).__name__)
def test_an_async_producer_takes_any_kind_of_text(server: EmbeddedBroker, topic: str) -> None:
    async def run() -> None:
        async with AsyncProducer(bootstrap_servers=server.bootstrap_servers) as producer:
            await producer.partitions_for(topic)
            await producer.send_and_wait(topic, b"1")
            await (await producer.send_many(topic, [b"1"]))
            await producer.list_topics(topic)

    asyncio.run(run())


@pytest.mark.parametrize("topic", KINDS, ids=lambda topic: type(topic).__name__)
def test_other_clients_faces_take_any_kind_of_text(server: EmbeddedBroker, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=server.bootstrap_servers) as theirs:
        assert theirs.send(topic, b"1").get(BOUND_S).topic == "orders"
        assert theirs.partitions_for(topic) == {0, 1}
    reports: list[Any] = []
    confluent = ConfluentProducer({"bootstrap.servers": server.bootstrap_servers})
    confluent.produce(topic, b"1", on_delivery=lambda error, message: reports.append((error, message.topic())))
    confluent.produce_batch(topic, [{"value": b"1"}])
    confluent.list_topics(topic)
    assert confluent.flush(BOUND_S) == 0
    confluent.close()
    assert reports == [(None, "orders")]

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=server.bootstrap_servers) as producer:
            assert (await producer.send_and_wait(topic, b"1")).topic == "orders"
            assert await producer.partitions_for(topic) == {0, 1}
            batch = producer.create_batch()
            batch.append(key=None, value=b"1", timestamp=None)
            await (await producer.send_batch(batch, topic, partition=0))

    asyncio.run(run())


@pytest.mark.parametrize("topic", [None, b"orders", 7, object()], ids=lambda topic: type(topic).__name__)
@pytest.mark.parametrize("call", [call for call in CALLS if call not in ("list_topics", "send_table")])
def test_a_topic_that_is_no_text_is_refused_by_every_call(producer: Producer, topic: Any, call: str) -> None:
    with pytest.raises(ArgumentTypeError, match="topic must be str"):
        CALLS[call](producer, topic)


NO_BYTES = [
    np.array(["ann"])[0],
    np.int64(5),
    np.int8(5),
    np.uint8(5),
    np.bool_(True),
    np.float32(1),
    np.datetime64("2026-01-01"),
    np.array([1, 2]),
    np.array(1, dtype=np.uint8),
    np.array([True]),
    np.array([b"ab"]),
    array.array("i", [1]),
    ctypes.c_ubyte(1),
    memoryview(array.array("d", [1.5])),
]
BYTES = [
    np.bytes_(b"ab"),
    np.array([97, 98], dtype=np.uint8),
    bytearray(b"ab"),
    memoryview(b"ab"),
    array.array("b", b"ab"),
    (ctypes.c_char * 2)(b"a", b"b"),
]


@pytest.mark.parametrize("data", NO_BYTES, ids=lambda data: type(data).__name__)
def test_memory_whose_items_are_no_bytes_is_refused_wherever_bytes_are_taken(producer: Producer, data: Any) -> None:
    for arguments in ({"value": data}, {"key": data}, {"headers": [("h", data)]}):
        with pytest.raises(ArgumentTypeError, match="must be bytes-like or None, not"):
            producer.send("orders", **arguments)
    for arguments in (
        {"values": [data]},
        {"values": [b"x"], "keys": [data]},
        {"values": [b"x"], "headers": [("h", data)]},
    ):
        with pytest.raises(ArgumentTypeError, match="must be bytes-like or None, not"):
            producer.send_many("orders", **arguments)


@pytest.mark.parametrize("data", BYTES, ids=lambda data: type(data).__name__)
def test_memory_of_bytes_is_sent(server: EmbeddedBroker, producer: Producer, data: Any) -> None:
    metadata = producer.send("orders", data, key=data, headers=[("h", data)]).result(BOUND_S)
    assert (metadata.serialized_value_size, metadata.serialized_key_size) == (2, 2)
    producer.send_many("orders", [data], keys=[data]).result(BOUND_S)


def test_a_topic_whose_metadata_cannot_be_applied_says_why_and_harms_no_other(server: EmbeddedBroker) -> None:
    class Refusing:
        def __init__(self, accumulator: Any) -> None:
            self.accumulator = accumulator

        def __getattr__(self, name: str) -> Any:
            return getattr(self.accumulator, name)

        def set_topic(self, name: str, *arguments: Any) -> Any:
            if name == "odd":
                raise TypeError("an answer that nobody expected")
            return self.accumulator.set_topic(name, *arguments)

    with Producer(bootstrap_servers=server.bootstrap_servers, max_block_ms=1000) as producer:
        upkeep: Any = producer._engine.sender._upkeep
        accumulator, apply = upkeep._accumulator, upkeep.apply_metadata

        def apply_where_one_is_refused(now_ms: int) -> None:
            upkeep._accumulator = Refusing(accumulator)
            try:
                apply(now_ms)
            finally:
                upkeep._accumulator = accumulator

        upkeep.apply_metadata = apply_where_one_is_refused
        with pytest.raises(MetadataTimeoutError, match="an answer that nobody expected"):
            producer.send("odd", b"1")
        producer.send("orders", b"1").result(BOUND_S)
        upkeep.apply_metadata = apply
        producer.send("odd", b"1").result(BOUND_S)
