"""kafka-python's admin client against the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from kafkaprod.broker.embedding.embedded import EmbeddedBroker, EmbeddedBrokerError


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


def test_options_of_the_broker_given_at_the_start_and_altered() -> None:
    options = {"group.min.session.timeout.ms": 1000, "auto.create.topics.enable": False}
    with EmbeddedBroker(options=options) as broker:
        client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        resource = ConfigResource(ConfigResourceType.BROKER, "0")

        def values() -> dict[str, str]:
            found = client.describe_configs([resource], config_filter="all")
            return {name: entry["value"] for name, entry in found["broker"]["0"].items()}

        assert values()["group.min.session.timeout.ms"] == "1000"
        assert values()["auto.create.topics.enable"] == "false"
        client.alter_configs([ConfigResource(ConfigResourceType.BROKER, "0", {"message.max.bytes": "77"})])
        assert values()["message.max.bytes"] == "77"
        assert "0" in client.list_config_resources()["broker"]
        client.close()


def test_unknown_option_at_the_start_is_refused() -> None:
    broker = EmbeddedBroker(options={"no.such": 1})
    with pytest.raises(EmbeddedBrokerError, match=r"Unknown broker config name: no\.such"):
        broker.start()
    broker.close()
