"""Transactions of real clients on the embedded broker: what was committed is read, what was aborted is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer, OffsetAndMetadata
from kafka import TopicPartition as KafkaTopicPartition

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.broker.fixtures_broker import wait_until

TOPIC = "orders"
OUTPUT = "shipments"


@pytest.fixture(scope="module", params=[1, 2], ids=["TV1", "TV2"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={TOPIC: 3, OUTPUT: 2}, transaction_version=request.param) as broker:
        yield broker


def transactional_producer(broker: EmbeddedBroker, transactional_id: str, **options: int) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )
    producer.init_transactions(30)
    return producer


def end_offsets(broker: EmbeddedBroker, topic: str, isolation: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "-", "isolation.level": isolation})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    found = {index: consumer.get_watermark_offsets(TopicPartition(topic, index), 30)[1] for index in partitions}
    consumer.close()
    return found


def read_all(broker: EmbeddedBroker, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """All records up to the end that a reader of this isolation level sees, in order of partitions and offsets."""
    ends = end_offsets(broker, topic, isolation)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "-",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in ends])
    found: list[tuple[int, int, bytes]] = []
    positions = {index for index, end in ends.items() if end == 0}

    def read_one() -> bool:
        message: Any = consumer.poll(1)
        if message is None:
            return False
        if message.error() is not None:
            positions.add(message.partition())
        else:
            found.append((message.partition(), message.offset(), message.value()))
        return len(positions) == len(ends)

    wait_until(read_one, f"{topic} up to {ends}")
    consumer.close()
    return [value for _, _, value in sorted(found)]


def test_committed_records_are_read_and_aborted_ones_are_not(broker: EmbeddedBroker) -> None:
    producer = transactional_producer(broker, "commit-abort")
    before = set(read_all(broker, TOPIC))
    for number in range(6):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(TOPIC, f"{number}-{partition}".encode(), partition=partition)
        assert producer.flush(30) == 0
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    expected = {f"{number}-{partition}".encode() for number in (0, 2, 4) for partition in range(3)}
    assert set(read_all(broker, TOPIC)) - before == expected
    everything = {f"{number}-{partition}".encode() for number in range(6) for partition in range(3)}
    assert set(read_all(broker, TOPIC, "read_uncommitted")) >= everything


def test_open_transaction_holds_back_readers_of_committed_data(broker: EmbeddedBroker) -> None:
    producer = transactional_producer(broker, "open")
    committed = end_offsets(broker, OUTPUT, "read_committed")
    producer.begin_transaction()
    producer.produce(OUTPUT, b"open", partition=0)
    assert producer.flush(30) == 0
    assert end_offsets(broker, OUTPUT, "read_committed")[0] == committed[0]
    assert end_offsets(broker, OUTPUT, "read_uncommitted")[0] == committed[0] + 1
    producer.commit_transaction(30)
    wait_until(
        lambda: end_offsets(broker, OUTPUT, "read_committed")[0] == committed[0] + 2, "the marker in the partition"
    )


def test_second_producer_fences_the_first_and_aborts_its_transaction(broker: EmbeddedBroker) -> None:
    first = transactional_producer(broker, "fenced")
    first.begin_transaction()
    first.produce(OUTPUT, b"of the first", partition=1)
    assert first.flush(30) == 0
    second = transactional_producer(broker, "fenced")
    second.begin_transaction()
    second.produce(OUTPUT, b"of the second", partition=1)
    second.commit_transaction(30)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(30)
    assert raised.value.args[0].fatal()
    values = read_all(broker, OUTPUT)
    assert b"of the second" in values
    assert b"of the first" not in values


def test_transaction_that_takes_too_long_is_aborted(broker: EmbeddedBroker) -> None:
    producer = transactional_producer(broker, "slow", transaction_timeout_ms=1000)
    producer.begin_transaction()
    producer.produce(OUTPUT, b"too slow", partition=1)
    assert producer.flush(30) == 0
    wait_until(
        lambda: end_offsets(broker, OUTPUT, "read_committed") == end_offsets(broker, OUTPUT, "read_uncommitted"),
        "the abort of the transaction",
    )
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    assert b"too slow" not in read_all(broker, OUTPUT)


def copy_everything(broker: EmbeddedBroker, group: str, count: int) -> None:
    """Copy `count` records, five in a transaction; every second transaction is aborted and read again."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([f"input-{group}"])
    producer = transactional_producer(broker, f"copy-{group}")
    copied, attempt = 0, 0

    def copy_some() -> bool:
        nonlocal copied, attempt
        messages = consumer.consume(5, 1)
        if not messages:
            return False
        producer.begin_transaction()
        for message in messages:
            producer.produce(f"output-{group}", b"copy of " + (message.value() or b""), partition=0)
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 30)
        attempt += 1
        if attempt % 2:
            producer.abort_transaction(30)
            for offset in consumer.committed(positions, 30):
                offset.offset = max(offset.offset, 0)
                consumer.seek(offset)
        else:
            producer.commit_transaction(30)
            copied += len(messages)
        return copied >= count

    wait_until(copy_some, f"{count} copies")
    consumer.close()


def test_consume_transform_produce_copies_each_record_once(broker: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for made in admin.create_topics([NewTopic("input-copier", 2), NewTopic("output-copier", 1)]).values():
        made.result(30)
    producer = transactional_producer(broker, "input of the copier")
    producer.begin_transaction()
    for number in range(23):
        producer.produce("input-copier", str(number).encode(), partition=number % 2)
    producer.commit_transaction(30)
    copy_everything(broker, "copier", 23)
    assert sorted(read_all(broker, "output-copier")) == sorted(f"copy of {number}".encode() for number in range(23))


def test_kafka_python_commits_and_aborts_records_and_offsets(broker: EmbeddedBroker) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id="of kafka-python", acks="all", retries=5
    )
    position = KafkaTopicPartition(TOPIC, 0)
    producer.init_transactions()
    for number, is_commit in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.send(OUTPUT, f"kafka-python {number}".encode(), partition=0)
        offsets = {position: OffsetAndMetadata(10 + number, "note", -1)}
        producer.send_offsets_to_transaction(offsets, "group of kafka-python")
        if is_commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    values = read_all(broker, OUTPUT)
    assert [value for value in values if value.startswith(b"kafka-python")] == [b"kafka-python 0", b"kafka-python 2"]
    assert committed_offset(broker, "group of kafka-python") == 12


def test_aiokafka_commits_and_aborts_records_and_offsets(broker: EmbeddedBroker) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="of aiokafka")
        await producer.start()
        try:
            for number, is_commit in enumerate((True, False, True)):
                await producer.begin_transaction()
                await producer.send_and_wait(OUTPUT, f"aiokafka {number}".encode(), partition=0)
                await producer.send_offsets_to_transaction(
                    {AioTopicPartition(TOPIC, 0): 20 + number}, "group of aiokafka"
                )
                await (producer.commit_transaction() if is_commit else producer.abort_transaction())
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(run(), 60))
    values = read_all(broker, OUTPUT)
    assert [value for value in values if value.startswith(b"aiokafka")] == [b"aiokafka 0", b"aiokafka 2"]
    assert committed_offset(broker, "group of aiokafka") == 22


def committed_offset(broker: EmbeddedBroker, group: str) -> int:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "isolation.level": "read_committed"}
    )
    offset: int = consumer.committed([TopicPartition(TOPIC, 0)], 30)[0].offset
    consumer.close()
    return offset
