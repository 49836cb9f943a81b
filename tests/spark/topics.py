"""What a topic holds, read without Spark."""

from typing import NamedTuple, cast

from confluent_kafka import Consumer, KafkaException, TopicPartition

Headers = list[tuple[str, bytes | None]]


class Row(NamedTuple):
    """A record and its place."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


def read_topic(bootstrap_servers: str, topic: str) -> list[Row]:
    """All records of a topic, by partition and offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "none", "enable.auto.commit": False})
    try:
        rows = []
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        for partition in partitions:
            place = TopicPartition(topic, partition)
            start, end = consumer.get_watermark_offsets(place, timeout=30)
            if start == end:
                continue
            consumer.assign([TopicPartition(topic, partition, start)])
            while True:
                for message in consumer.consume(10_000, timeout=0.2):
                    assert message.error() is None, message.error()
                    headers = cast(list[tuple[str, bytes | None]], message.headers() or [])
                    rows.append(
                        Row(
                            *(partition, cast(int, message.offset()), message.key(), message.value()),
                            *(headers, message.timestamp()[1]),
                        )
                    )
                position = consumer.position([place])[0].offset
                if position >= end:
                    break
        return sorted(rows, key=lambda row: row[:2])
    finally:
        consumer.close()


def values_of(bootstrap_servers: str, topic: str) -> list[bytes | None]:
    """The values of all records, sorted; null first."""
    values = [row.value for row in read_topic(bootstrap_servers, topic)]
    return sorted(values, key=lambda value: (value is not None, value))


def count_of(bootstrap_servers: str, topic: str) -> int:
    """How many records there are; 0 also while no broker answers."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "none", "log_level": 0})
    try:
        partitions = consumer.list_topics(topic, timeout=5).topics[topic].partitions
        places = [TopicPartition(topic, partition) for partition in partitions]
        return sum(end - start for start, end in (consumer.get_watermark_offsets(place, timeout=5) for place in places))
    except KafkaException:
        return 0
    finally:
        consumer.close()


def seen_once(bootstrap_servers: str, topic: str) -> tuple[int, list[bytes | None]]:
    """How many records there are, and the values that a reader of the identity headers sees, sorted."""
    rows = read_topic(bootstrap_servers, topic)
    once = {tuple(value for name, value in row.headers if name.startswith("kp.")): row.value for row in rows}
    return len(rows), sorted(once.values(), key=repr)


def committed_values(bootstrap_servers: str, topic: str) -> list[bytes]:
    """The values that a reader of committed data gets up to the end of each partition, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    values: list[bytes] = []
    ends = 0
    while ends < len(partitions):
        message = consumer.poll(30)
        assert message is not None
        value = message.value()
        if message.error():
            ends += 1
        elif value is not None:
            values.append(value)
    consumer.close()
    return sorted(values)
