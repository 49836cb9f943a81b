"""What other clients read from an embedded cluster."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PyTopicPartition

from tests.kafka.runtime import run_java, tools_class_path

READ_S = 30.0
_CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def read_with_confluent(bootstrap_servers: str, topic: str, partitions: int) -> dict[int, list[bytes]]:
    """Return the values of each partition, in order, up to the high watermarks."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
        }
    )
    try:
        ends = {
            index: consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=READ_S)[1]
            for index in range(partitions)
        }
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        found: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
        deadline = time.monotonic() + READ_S
        while any(len(found[index]) < ends[index] for index in found):
            assert time.monotonic() < deadline, f"{ {i: len(v) for i, v in found.items()} } of {ends}"
            for message in consumer.consume(1000, 0.1):
                assert message.error() is None, message.error()
                found[message.partition() or 0].append(message.value() or b"")
        return found
    finally:
        consumer.close()


def read_with_kafka_python(bootstrap_servers: str, topic: str, partitions: int) -> dict[int, list[bytes]]:
    """Return the same, read by kafka-python."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers.split(","), enable_auto_commit=False)
    try:
        every = [PyTopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(every)
        ends = consumer.end_offsets(every)
        consumer.seek_to_beginning(*every)
        found: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
        deadline = time.monotonic() + READ_S
        while any(len(found[each.partition]) < ends[each] for each in every):
            assert time.monotonic() < deadline, f"{ {i: len(v) for i, v in found.items()} } of {ends}"
            for each, records in consumer.poll(100).items():
                found[each.partition] += [record.value for record in records]
        return found
    finally:
        consumer.close()


def read_with_java(bootstrap_servers: str, topic: str, partitions: int, count: int) -> dict[int, list[bytes]]:
    """Return the same, read by Apache Kafka's consumer: `count` records, or all if they are fewer."""
    options = ["--bootstrap-server", bootstrap_servers, "--topic", topic, "--from-beginning", "--timeout-ms", "15000"]
    form = ["--max-messages", str(count), "--formatter-property", "print.partition=true"]
    found: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
    for line in run_java(tools_class_path(), _CONSOLE_CONSUMER, [*options, *form], timeout_s=120).splitlines():
        name, _, value = line.partition("\t")
        found[int(name.removeprefix("Partition:"))].append(value.encode())
    return found
