"""One embedded broker for the tests of other clients' interfaces, and its records read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkaprod.broker.embedding.embedded import EmbeddedBroker


@pytest.fixture(scope="package")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker that creates topics of three partitions."""
    with EmbeddedBroker(num_partitions=3) as broker:
        yield broker


@pytest.fixture
def servers(broker: EmbeddedBroker) -> str:
    """Its address."""
    return str(broker.bootstrap_servers)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    return "".join(c if c.isalnum() else "-" for c in f"{request.module.__name__}-{request.node.name}")[-200:]


@pytest.fixture
def read(servers: str) -> Callable[[str, int], list[Any]]:
    """Reads the first records of a topic with confluent-kafka: an independent reader."""

    def read(topic: str, count: int) -> list[Any]:
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest"})
        try:
            partitions = consumer.list_topics(topic, 10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            found: list[Any] = []
            while len(found) < count:
                more = consumer.consume(count - len(found), 10)
                assert more, f"only {len(found)} of {count} records within 10 s"
                found += more
            return found
        finally:
            consumer.close()

    return read
