"""kafka-python as a real client of the embedded broker: produce, a group that rebalances, commit and resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import TopicPartition

from kafkaprod.broker.embedded import EmbeddedBroker
from tests.fixtures_broker import wait_until

OpenConsumer = Callable[..., KafkaConsumer]


@pytest.fixture
def open_consumer(embedded_broker: EmbeddedBroker, topic_name: str) -> Iterator[OpenConsumer]:
    """Open members of one group; all are closed at the end."""
    consumers: list[KafkaConsumer] = []

    def open_one(**options: object) -> KafkaConsumer:
        consumer = KafkaConsumer(
            topic_name,
            bootstrap_servers=embedded_broker.bootstrap_servers,
            group_id=f"group-of-{topic_name}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
            **options,
        )
        consumers.append(consumer)
        return consumer

    yield open_one
    for consumer in consumers:
        consumer.close()


def produce(broker: EmbeddedBroker, topic: str, values: range) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all")
    results = [producer.send(topic, b"%d" % value, partition=value % 3) for value in values]
    producer.flush(timeout=60)
    producer.close()
    assert sorted(result.get(timeout=1).partition for result in results) == sorted(value % 3 for value in values)


def collect(consumers: list[KafkaConsumer], values: list[int]) -> None:
    """One poll of each consumer; what they got is added to `values`."""
    for consumer in consumers:
        for records in consumer.poll(timeout_ms=100).values():
            values.extend(int(record.value) for record in records)


def share_sizes(consumers: list[KafkaConsumer]) -> list[int]:
    return sorted(len(consumer.assignment()) for consumer in consumers)


def test_three_kafka_python_members_share_the_partitions_rebalance_and_resume(
    embedded_broker: EmbeddedBroker, topic_name: str, open_consumer: OpenConsumer
) -> None:
    produce(embedded_broker, topic_name, range(300))
    members = [open_consumer() for _ in range(3)]
    seen: list[int] = []

    def all_is_read_and_shared() -> bool:
        collect(members, seen)
        return share_sizes(members) == [1, 1, 1] and set(seen) == set(range(300))

    wait_until(all_is_read_and_shared, "three members with a partition each, and all records")
    for member in members:
        member.commit()

    members.pop().close()
    taken_over: list[int] = []

    def two_have_it_all() -> bool:
        collect(members, taken_over)
        return share_sizes(members) == [1, 2]

    wait_until(two_have_it_all, "two members take over the third's partition")
    for member in members:
        member.close()

    produce(embedded_broker, topic_name, range(300, 330))
    resumed = open_consumer()
    later: list[int] = []

    def new_ones_are_read() -> bool:
        collect([resumed], later)
        return len(later) >= 30

    wait_until(new_ones_are_read, "the records produced since the commit")
    assert sorted(later) == list(range(300, 330))
    assert {resumed.committed(TopicPartition(topic_name, index)) for index in range(3)} == {100}


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_kafka_python_reads_back_what_it_wrote_with_each_codec(
    embedded_broker: EmbeddedBroker, topic_name: str, codec: str | None
) -> None:
    producer = KafkaProducer(bootstrap_servers=embedded_broker.bootstrap_servers, compression_type=codec, linger_ms=50)
    for value in range(50):
        producer.send(topic_name, b"value %d" % value * 20, key=b"k", partition=0, headers=[("h", b"x")])
    producer.flush(timeout=60)
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=embedded_broker.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    consumer.assign([TopicPartition(topic_name, 0)])
    records = [next(consumer) for _ in range(50)]
    consumer.close()
    assert [record.value for record in records] == [b"value %d" % value * 20 for value in range(50)]
    assert {(record.key, tuple(record.headers)) for record in records} == {(b"k", (("h", b"x"),))}


def test_kafka_python_administers_topics_groups_and_records(embedded_broker: EmbeddedBroker, topic_name: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=embedded_broker.bootstrap_servers)
    try:
        admin.create_topics([NewTopic(topic_name, num_partitions=2, replication_factor=1)])
        produce_two = KafkaProducer(bootstrap_servers=embedded_broker.bootstrap_servers)
        for partition in (0, 1):
            produce_two.send(topic_name, b"x", partition=partition).get(timeout=30)
        produce_two.close()
        assert topic_name in admin.list_topics()
        admin.delete_topics([topic_name])
        assert topic_name not in admin.list_topics()
    finally:
        admin.close()
