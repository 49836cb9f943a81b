"""The rig itself: nodes start, fail and come back, every listener lets clients in, both readers agree."""

import socket
import struct
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from tests.kafka.broker_properties import SASL_USERS
from tests.kafka.cluster import KafkaCluster, wait_until
from tests.kafka.reading import ReadRecord, end_offsets, read_all, read_with_java
from tests.kafka.runtime import OLD_BROKER_VERSION, OLDEST_BROKER_VERSION

pytestmark = pytest.mark.external

SASL = {"sasl.username": "alice", "sasl.password": SASL_USERS["alice"]}


def produce(config: dict[str, object], topic: str, values: list[bytes], **fields: Any) -> None:
    producer = Producer({"log_level": 0, "linger.ms": 0, **config})
    failures: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None, **fields)
    assert producer.flush(20) == 0
    assert failures == []


def test_both_readers_return_what_was_produced(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, 2)
    headers = [("origin", b"here"), ("empty", None)]
    produce(
        {"bootstrap.servers": kafka.bootstrap()},
        topic_name,
        [b"one", b"two"],
        key="k",
        partition=1,
        headers=headers,
        timestamp=1_700_000_000_000,
    )
    expected = [
        ReadRecord(offset, b"k", value, headers, 1_700_000_000_000, 1) for offset, value in enumerate([b"one", b"two"])
    ]
    assert read_all(kafka.bootstrap(), topic_name) == {0: [], 1: expected}
    assert read_with_java(kafka.bootstrap(), topic_name, 2) == {1: expected}
    assert end_offsets(kafka.bootstrap(), topic_name) == {0: 0, 1: 2}


def test_reading_can_start_in_the_middle(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    produce({"bootstrap.servers": kafka.bootstrap()}, topic_name, [b"%d" % index for index in range(10)])
    assert [record.offset for record in read_all(kafka.bootstrap(), topic_name, start_offsets={0: 7})[0]] == [7, 8, 9]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_sasl_listeners_accept_known_users(kafka: KafkaCluster, topic_name: str, listener: str, mechanism: str) -> None:
    kafka.create_topic(topic_name)
    assert kafka.certificates is not None
    config = {"security.protocol": listener, "sasl.mechanism": mechanism, **SASL}
    if listener == "SASL_SSL":
        config["ssl.ca.location"] = str(kafka.certificates.ca)
    produce({"bootstrap.servers": kafka.bootstrap(listener), **config}, topic_name, [b"value"])
    assert end_offsets(kafka.bootstrap(), topic_name) == {0: 1}


def test_tls_listener_is_refused_under_another_authority(kafka: KafkaCluster) -> None:
    assert kafka.certificates is not None
    config = {"bootstrap.servers": kafka.bootstrap("SSL"), "security.protocol": "SSL", "log_level": 0}
    trusting = Producer({**config, "ssl.ca.location": str(kafka.certificates.ca)})
    assert list(trusting.list_topics(timeout=10).brokers) == [1]
    doubting = Producer({**config, "ssl.ca.location": str(kafka.certificates.other_ca)})
    with pytest.raises(KafkaException):
        doubting.list_topics(timeout=1)


def test_killed_leader_is_replaced_and_returns(kafka3: KafkaCluster, topic_name: str) -> None:
    kafka3.create_topic(topic_name)
    leader = kafka3.leader(topic_name)
    kafka3.kill9(leader)
    wait_until(lambda: kafka3.leader(topic_name) not in (-1, leader), 30, "other leader")
    produce({"bootstrap.servers": kafka3.bootstrap()}, topic_name, [b"after"])
    kafka3.restart(leader)
    assert kafka3.running_nodes() == [1, 2, 3]
    assert [record.value for record in read_all(kafka3.bootstrap(), topic_name)[0]] == [b"after"]


def test_frozen_node_answers_again_after_thawing(kafka3: KafkaCluster, topic_name: str) -> None:
    kafka3.create_topic(topic_name)
    leader = kafka3.leader(topic_name)
    kafka3.sigstop(leader)
    try:
        wait_until(lambda: kafka3.leader(topic_name) not in (-1, leader), 30, "other leader")
    finally:
        kafka3.sigcont(leader)
    kafka3.wait_until_ready()


@pytest.mark.parametrize("version", [OLD_BROKER_VERSION, OLDEST_BROKER_VERSION])
def test_older_release_lets_clients_in(topic_name: str, version: str) -> None:
    with KafkaCluster(1, version=version, listeners=("PLAINTEXT", "SASL_PLAINTEXT")) as cluster:
        cluster.create_topic(topic_name)
        scram = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", **SASL}
        produce({"bootstrap.servers": cluster.bootstrap("SASL_PLAINTEXT"), **scram}, topic_name, [b"value"])
        assert end_offsets(cluster.bootstrap(), topic_name) == {0: 1}


def test_feature_level_can_be_lowered() -> None:
    with KafkaCluster(1, features={"transaction.version": 1}) as cluster:
        assert finalized_level(api_versions_reply(cluster, 3), b"transaction.version") == 1


def test_default_feature_level_is_the_newest(kafka: KafkaCluster) -> None:
    assert finalized_level(api_versions_reply(kafka, 3), b"transaction.version") == 2


def api_versions_reply(cluster: KafkaCluster, version: int) -> bytes:
    request = struct.pack(">hhih", 18, version, 1, -1) + b"\0\x02x\x02x\0"
    with socket.create_connection(cluster.address(1)) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
        return connection.recv(size, socket.MSG_WAITALL)


def finalized_level(reply: bytes, feature: bytes) -> int:
    """The level behind the last mention of a feature: finalized ones come after supported ones."""
    (level,) = struct.unpack_from(">h", reply, reply.rindex(feature) + len(feature))
    return level
