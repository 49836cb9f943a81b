"""Requests that reach a broker which does not lead a partition, or holds no replica of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafkaprod import Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kafkaprod.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.support.net.raw_client import RawClient

TIMEOUT_S = 15.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        topics = [NewTopic("copied", 1, 3), NewTopic("single", 1, 1)]
        for future in admin.create_topics(topics).values():
            future.result(TIMEOUT_S)
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for topic in ("copied", "single"):
                producer.send_many(topic, [b"x"] * 10).result(TIMEOUT_S)
        running.wait_until_applied()
        yield running


def test_a_broker_describes_the_replicas_that_it_holds(cluster: EmbeddedCluster) -> None:
    holders = {"copied": 0, "single": 0}
    for broker in cluster.brokers:
        client = RawClient(broker.address)
        (found,) = client.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4).results
        client.close()
        assert found.error_code == ErrorCode.NONE
        for topic in found.topics:
            if topic.name in holders and topic.partitions:
                holders[topic.name] += 1
    assert holders == {"copied": 3, "single": 1}


def test_only_a_leader_deletes_records(cluster: EmbeddedCluster) -> None:
    leader = cluster.leader("copied", 0).id
    topics = [DeleteRecordsTopic(name="copied", partitions=[DeleteRecordsPartition(partition_index=0, offset=4)])]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=1000)
    for broker in cluster.brokers:
        if broker.id != leader:
            client = RawClient(broker.address)
            outcome = client.call(request, DeleteRecordsResponse, 2).topics[0].partitions[0]
            client.close()
            assert outcome.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (deleted,) = admin.delete_records([TopicPartition("copied", 0, 4)]).values()
    assert deleted.result(TIMEOUT_S).low_watermark == 4
