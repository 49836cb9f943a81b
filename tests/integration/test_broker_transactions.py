"""Transactions of real clients on the embedded broker: what was committed is read, what was aborted is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

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
        message = consumer.poll(1)
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
