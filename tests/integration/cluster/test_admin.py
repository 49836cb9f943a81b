"""Requests for the controller, sent to any broker by confluent-kafka's admin client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from kafkaprod import Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster

TIMEOUT_S = 15.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, racks=("a", "b", "c")) as running:
        yield running


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def test_clients_see_all_brokers(cluster: EmbeddedCluster, admin: AdminClient) -> None:
    described = admin.describe_cluster().result(TIMEOUT_S)
    assert {(node.id, node.port, node.rack) for node in described.nodes} == {
        (broker.id, broker.port, broker.rack) for broker in cluster.brokers
    }


def test_topics_are_made_grown_configured_and_deleted(cluster: EmbeddedCluster, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("made", 2, 3, config={"retention.ms": "1000"})])["made"].result(TIMEOUT_S)
    assert cluster.view().topics["made"] == 2
    assert all(sorted(cluster.isr("made", index)) == [1, 2, 3] for index in range(2))
    with pytest.raises(KafkaException, match="already exists"):
        admin.create_topics([NewTopic("made", 2, 3)])["made"].result(TIMEOUT_S)
    with pytest.raises(KafkaException, match="Replication factor 4"):
        admin.create_topics([NewTopic("wide", 1, 4)])["wide"].result(TIMEOUT_S)
    admin.create_partitions([NewPartitions("made", 4)])["made"].result(TIMEOUT_S)
    assert cluster.view().topics["made"] == 4
    change = ConfigEntry("min.insync.replicas", "2", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "made", incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    cluster.wait_until_applied()
    for broker in cluster.brokers:
        other = AdminClient({"bootstrap.servers": broker.address})
        asked = ConfigResource(ResourceType.TOPIC, "made")
        options = other.describe_configs([asked])[asked].result(TIMEOUT_S)
        assert (options["min.insync.replicas"].value, options["retention.ms"].value) == ("2", "1000")
    admin.delete_topics(["made"])["made"].result(TIMEOUT_S)
    assert "made" not in cluster.view().topics
    with pytest.raises(KafkaException, match="Unknown topic"):
        admin.delete_topics(["made"])["made"].result(TIMEOUT_S)


def test_partitions_are_added_where_a_client_says(cluster: EmbeddedCluster, admin: AdminClient) -> None:
    cluster.create_topic("placed", assignment=[[1, 2]])
    admin.create_partitions([NewPartitions("placed", 3, [[3, 1], [2, 3]])])["placed"].result(TIMEOUT_S)
    metadata = admin.list_topics("placed", TIMEOUT_S).topics["placed"]
    assert {index: (each.leader, each.replicas) for index, each in metadata.partitions.items()} == {
        0: (1, [1, 2]),
        1: (3, [3, 1]),
        2: (2, [2, 3]),
    }
    for refused in (
        NewPartitions("placed", 4, [[1, 2, 3]]),
        NewPartitions("placed", 5, [[1, 2]]),
        NewPartitions("placed", 4, [[1, 9]]),
    ):
        with pytest.raises(KafkaException) as error:
            admin.create_partitions([refused])["placed"].result(TIMEOUT_S)
        assert error.value.args[0].code() == KafkaError.INVALID_REPLICA_ASSIGNMENT
    for count, code in ((2, KafkaError.INVALID_PARTITIONS), (100_000, KafkaError.POLICY_VIOLATION)):
        with pytest.raises(KafkaException) as error:
            admin.create_partitions([NewPartitions("placed", count)])["placed"].result(TIMEOUT_S)
        assert error.value.args[0].code() == code
    growing = [NewPartitions("placed", 4, [[1, 2]])]
    admin.create_partitions(growing, validate_only=True)["placed"].result(TIMEOUT_S)
    with pytest.raises(KafkaException, match="Replication factor 4"):
        admin.create_topics([NewTopic("checked", 1, 4)], validate_only=True)["checked"].result(TIMEOUT_S)
    assert cluster.view().topics["placed"] == 3
    with pytest.raises(KafkaException, match="does not exist"):
        admin.create_partitions([NewPartitions("nowhere", 4)])["nowhere"].result(TIMEOUT_S)


def test_a_topic_made_again_is_empty(cluster: EmbeddedCluster, admin: AdminClient) -> None:
    cluster.create_topic("again", 1)
    follower = cluster.followers("again", 0)[0]
    follower.kill()
    admin.delete_topics(["again"])["again"].result(TIMEOUT_S)
    cluster.create_topic("again", 1, assignment=[[b.id for b in cluster.brokers if b is not follower]])
    follower.start()
    cluster.wait_until_in_sync()
    assert set(cluster.replicas("again", 0).values()) == {(0, 0, 0)}
    directory = Path(cluster.data_dir, f"broker-{follower.id}")
    assert [path.name.endswith("-stray") for path in directory.glob("again-*")] == [True], "the old topic's"


def test_leaders_are_elected_on_request(cluster: EmbeddedCluster, admin: AdminClient) -> None:
    cluster.create_topic("moved", assignment=[[3, 1, 2]])
    cluster.move_leader("moved", 0, 1)
    cluster.wait_until_applied()
    wanted = [TopicPartition("moved", 0)]
    outcome = admin.elect_leaders(ElectionType.PREFERRED, wanted).result(TIMEOUT_S)
    assert list(outcome.values()) == [None]
    assert cluster.leader("moved", 0).id == 3
    outcome = admin.elect_leaders(ElectionType.PREFERRED, wanted).result(TIMEOUT_S)
    assert "election" in str(next(iter(outcome.values()))).lower()


def test_a_topic_that_is_named_is_made(cluster: EmbeddedCluster) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        producer.send("named", b"value").result(TIMEOUT_S)
    assert len(cluster.isr("named", 0)) == 3
