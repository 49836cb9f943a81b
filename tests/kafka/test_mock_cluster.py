"""The mock cluster answers clients and injects what it is told to."""

import pytest
from confluent_kafka import KafkaError, Producer

from tests.kafka.proxy import PRODUCE
from tests.kafka.reading import read_all
from tests.support.kafka.fixtures_mock_cluster import MockCluster


def produce(cluster: MockCluster, topic: str, **config: object) -> list[KafkaError | None]:
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0, **config})
    producer.produce(topic, b"value", partition=0, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(20) == 0
    return outcomes


def test_record_can_be_read_back(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("topic", 2)
    assert produce(mock_cluster, "topic") == [None]
    records = read_all(mock_cluster.bootstrap, "topic")
    assert {index: [record.value for record in found] for index, found in records.items()} == {0: [b"value"], 1: []}


def test_pushed_error_reaches_the_client(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("topic")
    mock_cluster.push_errors(PRODUCE, [KafkaError.MSG_SIZE_TOO_LARGE])
    (error,) = produce(mock_cluster, "topic")
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert produce(mock_cluster, "topic") == [None]


def test_cleared_errors_are_not_seen(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("topic")
    mock_cluster.push_errors(PRODUCE, [KafkaError.MSG_SIZE_TOO_LARGE])
    mock_cluster.clear_errors(PRODUCE)
    assert produce(mock_cluster, "topic") == [None]


def test_moved_leader_and_brokers_down_and_up(mock_cluster: MockCluster) -> None:
    mock_cluster.create_topic("topic", 1, 3)
    producer = Producer({"bootstrap.servers": mock_cluster.bootstrap, "log_level": 0})
    for broker_id in (1, 2, 3):
        mock_cluster.set_leader("topic", 0, broker_id)
        assert producer.list_topics("topic", timeout=10).topics["topic"].partitions[0].leader == broker_id
    mock_cluster.set_round_trip_ms(-1, 1)
    mock_cluster.set_down(1)
    mock_cluster.set_up(1)
    assert produce(mock_cluster, "topic") == [None]


def test_refused_call_raises(mock_cluster: MockCluster) -> None:
    with pytest.raises(RuntimeError, match="broker_set_down"):
        mock_cluster.set_down(99)
