"""What a producer knows of its cluster, by the names that kafka-python and aiokafka have for it. Never waits."""

from __future__ import annotations

from typing import NamedTuple

from kafkaprod import AsyncProducer, Producer


class Broker(NamedTuple):
    """A broker, with the other clients' names."""

    nodeId: int
    host: str
    port: int
    rack: str | None


class KnownCluster:
    """Brokers, and the topics that a producer has sent to, as they are now.

    Args:
        producer: Whose metadata it is.
    """

    def __init__(self, producer: Producer | AsyncProducer) -> None:
        self._producer = producer

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id; None: it is not known yet."""
        return self._producer._known_cluster.cluster_id

    @property
    def controller(self) -> Broker | None:
        """The controller, or a broker that speaks for it; None: it is not known yet."""
        controller_id = self._producer._known_cluster.controller_id
        return next((broker for broker in self.brokers() if broker.nodeId == controller_id), None)

    def brokers(self) -> set[Broker]:
        """Return all of them."""
        nodes = self._producer._known_cluster.nodes
        return {Broker(node_id, node.host, node.port, node.rack) for node_id, node in nodes.items()}

    def broker_metadata(self, node_id: int) -> Broker | None:
        """Return one of them; None: it is not known."""
        return next((broker for broker in self.brokers() if broker.nodeId == node_id), None)

    def leader_for_partition(self, partition: tuple[str, int]) -> int | None:
        """Return the node id of the leader of a topic's partition, -1 if it has none; None: it is not known."""
        topic, number = partition
        known = self._producer._known_cluster.topics.get(topic)
        return known.leaders[number] if known is not None and 0 <= number < known.partition_count else None

    def request_update(self) -> None:
        """Have all of it read again soon; theirs return a future, which none of the programs that were read uses."""
        self._producer._request_metadata()

    def topics(self) -> set[str]:
        """Return the names."""
        return set(self._producer._known_cluster.topics)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions; None: the topic is not known."""
        known = self._producer._known_cluster.topics.get(topic)
        return None if known is None else set(range(known.partition_count))

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return those with a leader; None: the topic is not known."""
        known = self._producer._known_cluster.topics.get(topic)
        return None if known is None else {number for number, leader in enumerate(known.leaders) if leader >= 0}
