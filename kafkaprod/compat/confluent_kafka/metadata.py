"""What list_topics() returns: confluent-kafka's ClusterMetadata and its parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kafkaprod.admin.cluster import ClusterInfo
from kafkaprod.compat.confluent_kafka.error import KafkaError, kafka_error

METADATA_S: Final = 60.0  # a request for metadata without a timeout


@dataclass(slots=True)
class BrokerMetadata:
    """A broker: id, host and port."""

    id: int = -1
    host: str | None = None
    port: int = -1

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


@dataclass(slots=True)
class PartitionMetadata:
    """A partition: leader, replicas and in-sync replicas, as broker ids."""

    id: int = -1
    leader: int = -1
    replicas: list[int] = field(default_factory=list)
    isrs: list[int] = field(default_factory=list)
    error: KafkaError | None = None

    def __str__(self) -> str:
        return str(self.id)


@dataclass(slots=True)
class TopicMetadata:
    """A topic: partitions by number, and why it could not be described."""

    topic: str | None = None
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)
    error: KafkaError | None = None

    def __str__(self) -> str:
        return str(self.topic) if self.error is None else f"{self.topic} ({self.error})"


@dataclass(slots=True)
class ClusterMetadata:
    """A cluster: brokers by id, topics by name."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, BrokerMetadata] = field(default_factory=dict)
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    orig_broker_id: int = -1
    orig_broker_name: str | None = None

    def __str__(self) -> str:
        return str(self.cluster_id)


def cluster_metadata(cluster: ClusterInfo) -> ClusterMetadata:
    """Return kafkaprod's ClusterInfo in confluent-kafka's form."""
    topics = {name: TopicMetadata(name, error=kafka_error(error)) for name, error in cluster.errors.items()}
    for name, topic in cluster.topics.items():
        topics[name] = TopicMetadata(
            name,
            {p.number: PartitionMetadata(p.number, p.leader, [*p.replicas], [*p.in_sync]) for p in topic.partitions},
        )
    brokers = {number: BrokerMetadata(number, node.host, node.port) for number, node in cluster.brokers.items()}
    return ClusterMetadata(cluster.cluster_id, cluster.controller_id, brokers, topics)
