"""The leader of partitions is killed under load: what was acknowledged with acks=all stays, once and in order."""

from __future__ import annotations

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from tests.support.cluster.load import Load
from tests.support.cluster.reading import read_with_confluent, read_with_kafka_python

PARTITIONS = 2


def test_nothing_acknowledged_is_lost_when_the_leader_is_killed() -> None:
    with EmbeddedCluster(brokers=2, topics={"orders": PARTITIONS}) as cluster:
        with Load(cluster.bootstrap_servers, "orders", PARTITIONS) as load:
            load.wait_for_more()
            for _ in range(3):
                leader = cluster.leader("orders", 0)
                leader.kill()
                cluster.wait_for(lambda view: view.leader("orders", 0) not in (None, leader.id))  # noqa: B023
                load.wait_for_more()
                leader.start()
                cluster.wait_until_in_sync()
                load.wait_for_more()
        assert load.failed == []
        read = read_with_confluent(cluster.bootstrap_servers, "orders", PARTITIONS)
        assert read == load.in_order  # nothing lost, nothing twice, in order
        assert read_with_kafka_python(cluster.bootstrap_servers, "orders", PARTITIONS) == read
