"""A write that happens once with each original's own call, and the errors are the original's."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import aiokafka.errors
import confluent_kafka
import kafka.errors
import pytest

from kafkaprod import errors as ours
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.compat.aiokafka import AIOKafkaProducer
from kafkaprod.compat.confluent_kafka import Producer, SerializingProducer
from kafkaprod.compat.confluent_kafka.error import ValueSerializationError
from kafkaprod.compat.kafka_python import KafkaProducer

ROWS = [b"%d" % row for row in range(50)]


def wait_for(broker: EmbeddedBroker, topic: str, rows: list[bytes]) -> None:
    broker.check_records(topic, *rows, timeout=30)


def test_of_confluent(embedded_broker: EmbeddedBroker, topic_name: str) -> None:
    producer = Producer(
        {"bootstrap.servers": embedded_broker.bootstrap_servers, "enable.idempotence": True, "partitioner": "murmur2"}
    )

    def write(rows: list[bytes]) -> Any:
        with producer.write(topic_name) as block:
            for row in rows:
                block.produce(topic_name, row, key=row.decode(), headers={"a": "b"}, timestamp=5)
        return block

    assert not write(ROWS).already_written
    assert write(ROWS).result.already_written
    with pytest.raises(confluent_kafka.KafkaException, match="these have other contents") as caught:
        write(ROWS[::-1])
    assert isinstance(caught.value.__cause__, ours.WriteConflictError)
    with pytest.raises(TypeError, match="no callbacks here"), producer.write("other") as block:
        block.produce(topic_name, b"x", on_delivery=print)
    wait_for(embedded_broker, topic_name, ROWS)
    (record, *_) = embedded_broker.records(topic_name)
    assert (record.key, record.headers, record.timestamp) == (record.value, [("a", b"b")], 5)
    producer.close()


def test_without_idempotence_it_is_refused(embedded_broker: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": embedded_broker.bootstrap_servers})
    with pytest.raises(confluent_kafka.KafkaException, match=r"idempotence"), producer.write("w") as block:
        block.produce("t", b"x")
    producer.close()


def test_of_confluent_with_serializers(embedded_broker: EmbeddedBroker, topic_name: str) -> None:
    producer = SerializingProducer(
        {
            "bootstrap.servers": embedded_broker.bootstrap_servers,
            "enable.idempotence": True,
            "key.serializer": lambda key, context: f"{context.field} {key}".encode(),
            "value.serializer": lambda value, context: None if value is None else b"%d" % value,
        }
    )
    with producer.write(topic_name) as block:
        block.produce(topic_name, "a", 7)
    with pytest.raises(ValueSerializationError), producer.write("other") as block:
        block.produce(topic_name, "a", "no number")
    wait_for(embedded_broker, topic_name, [b"7"])
    assert [record.key for record in embedded_broker.records(topic_name)] == [b"key a"]
    producer.close()


class Third:
    def __call__(self, key: bytes | None, everywhere: list[int], available: list[int]) -> int:
        return everywhere[2]


def test_a_partition_that_a_partitioner_has_chosen_is_not_compared(
    embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    embedded_broker.create_topic(topic_name, 4)
    turns = iter(range(1000))
    producer = KafkaProducer(
        bootstrap_servers=embedded_broker.bootstrap_servers, partitioner=lambda key, every, available: next(turns) % 4
    )

    def write(named: int) -> bool:
        with producer.write(topic_name) as block:
            for row in ROWS[:5]:
                block.send(topic_name, row)
            block.send(topic_name, ROWS[5], partition=named)
        return bool(block.result and block.result.already_written)

    assert [write(3), write(3)] == [False, True]
    assert Counter(record.partition for record in embedded_broker.records(topic_name)) == {0: 2, 1: 1, 2: 1, 3: 2}
    with pytest.raises(kafka.errors.KafkaError, match="these have other contents"):
        write(2)
    producer.close()


def test_of_kafka_python(embedded_broker: EmbeddedBroker, topic_name: str) -> None:
    embedded_broker.create_topic(topic_name, 3)
    producer = KafkaProducer(
        bootstrap_servers=embedded_broker.bootstrap_servers,
        value_serializer=lambda value: b"%d" % value,
        partitioner=Third(),
    )

    def write(rows: range) -> Any:
        with producer.write(topic_name, parts=20) as block:
            for row in rows:
                block.send(topic_name, row, partition=1 if row == 7 else None)
        return block.result

    assert (write(range(50)).parts, write(range(50)).already_written) == (3, True)
    with pytest.raises(kafka.errors.KafkaError, match="1 row") as caught:
        write(range(1))
    assert isinstance(caught.value.__cause__, ours.WriteConflictError)
    with pytest.raises(ValueError, match="Unrecognized partition 9"), producer.write("other") as block:
        block.send(topic_name, 1, partition=9)
    wait_for(embedded_broker, topic_name, ROWS)
    assert Counter(record.partition for record in embedded_broker.records(topic_name)) == {2: 49, 1: 1}
    producer.close()
    with pytest.raises(kafka.errors.IllegalStateError):
        producer.write("w")


def test_of_aiokafka(embedded_broker: EmbeddedBroker, topic_name: str) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=embedded_broker.bootstrap_servers, enable_idempotence=True, key_serializer=str.encode
        ) as producer:

            async def write(rows: list[bytes]) -> Any:
                async with producer.write(topic_name) as block:
                    for row in rows:
                        await block.send(topic_name, row, row.decode())
                return block

            assert not (await write(ROWS)).already_written
            assert (await write(ROWS)).result.already_written
            with pytest.raises(aiokafka.errors.KafkaError, match="49 rows") as caught:
                await write(ROWS[1:])
            assert isinstance(caught.value.__cause__, ours.WriteConflictError)
        with pytest.raises(aiokafka.errors.ProducerClosed):
            producer.write("w")

    asyncio.run(run())
    wait_for(embedded_broker, topic_name, ROWS)
