"""Retention happens while a test waits: the options that say how often it is looked for have effect."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from kafkaprod import Producer
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import create_topic
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.config import ProducerConfig
from tests.support.broker.fixtures_broker import wait_until


def test_old_segments_go_as_often_as_the_option_says() -> None:
    with EmbeddedBroker(options={"log.retention.check.interval.ms": 50}) as broker:
        config = ProducerConfig.from_options(bootstrap_servers=broker.bootstrap_servers)
        with ClusterClient(config) as client:
            create_topic(client, "short", 1, 1, {"retention.ms": "1", "segment.bytes": str(1 << 20)})
        with Producer(config) as producer:
            producer.send_many("short", [bytes(1_000)] * 3_000).result(30)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "-"})
        partition = TopicPartition("short", 0)
        wait_until(lambda: consumer.get_watermark_offsets(partition, 30) == (3_000, 3_000), "all segments to go")
        consumer.close()
