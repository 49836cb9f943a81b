"""The clusters that campaigns write to: the embedded broker, or Apache Kafka."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.kafka.cluster import KafkaCluster

PARTITIONS = 3
_LIKE_EMBEDDED: dict[str, str | int] = {"auto.create.topics.enable": "true", "num.partitions": PARTITIONS}


@contextlib.contextmanager
def target(*, is_kafka: bool) -> Iterator[str]:
    """Yield the bootstrap servers of a cluster of one broker that makes missing topics."""
    if is_kafka:
        with KafkaCluster(1, overrides=_LIKE_EMBEDDED) as cluster:
            yield cluster.bootstrap()
    else:
        with EmbeddedBroker(auto_create_topics=True, num_partitions=PARTITIONS) as broker:
            yield broker.bootstrap_servers
