"""kafka-python's admin client against the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from kafkaprod.broker.embedding.embedded import EmbeddedBroker


@pytest.fixture
def topic(topic_name: str, admin: Any) -> str:
    """A topic with 2 partitions."""
    admin.create_topics({topic_name: {"num_partitions": 2, "replication_factor": 1}})
    return topic_name


@pytest.fixture
def admin(embedded_broker: EmbeddedBroker) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=embedded_broker.bootstrap_servers)
    yield client
    client.close()


def test_elections_and_reassignments(admin: Any, topic: str) -> None:
    elected = admin.elect_leaders(0, {topic: [0, 1]}, raise_errors=False)
    outcomes = elected.replica_election_results[0].partition_result
    assert [outcome.error_code for outcome in outcomes] == [84, 84]
    place = TopicPartition(topic, 0)
    assert admin.alter_partition_reassignments({place: [0]}) == {place: None}
    assert admin.alter_partition_reassignments({place: [7]})[place] is not None
    assert admin.list_partition_reassignments() == {}


def test_log_directories(admin: Any, topic: str, embedded_broker: EmbeddedBroker) -> None:
    (described,) = admin.describe_log_dirs({topic: [0, 1]})
    assert described["log_dirs"][0]["log_dir"] == embedded_broker.data_dir
    sizes = [item["partition_size"] for item in described["log_dirs"][0]["topics"][0]["partitions"]]
    assert sizes == [0, 0]


def test_topics_quorum_and_special_offsets(admin: Any, topic: str) -> None:
    described = admin.describe_topic_partitions([topic])["topics"][0]
    assert [item["leader_id"] for item in described["partitions"]] == [0, 0]
    quorum = admin.describe_metadata_quorum()["topics"][0]
    assert (quorum["topic_name"], quorum["partitions"][0]["leader_id"]) == ("__cluster_metadata", 0)
    place = TopicPartition(topic, 0)
    assert admin.list_partition_offsets({place: -4})[place].offset == 0
