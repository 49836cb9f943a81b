"""Quotas of a cluster: set at one broker, known to all, enforced by each of them alone, and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkaprod.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.broker.fixtures_broker import wait_until
from tests.support.broker.fixtures_log import make_batch
from tests.support.broker.quotas import quotas_at, set_quota
from tests.support.net.raw_client import RawClient

TOPIC = "orders"
OFTEN = {"metadata.log.max.record.bytes.between.snapshots": 1}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, options=OFTEN) as running:
        running.create_topic(TOPIC, assignment=[[1], [2], [3]])
        yield running


@pytest.fixture
def quota(cluster: EmbeddedCluster) -> Iterator[Callable[[str, float], None]]:
    """Sets a quota at broker 1; all brokers know it then. It is removed at the end."""
    keys = []

    def set_everywhere(key: str, value: float) -> None:
        keys.append(key)
        set_quota(cluster.broker(1).address, key, value)
        cluster.wait_until_applied()

    yield set_everywhere
    for key in keys:
        set_quota(cluster.broker(1).address, key, 0.0)
    cluster.wait_until_applied()


def produce(broker: ClusterBroker, size: int) -> int:
    """Write to the broker's own partition; return for how long the client must wait."""
    index = broker.id - 1
    data = PartitionProduceData(index=index, records=memoryview(bytearray(make_batch([b"x" * size]))))
    topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
    with RawClient(broker.address) as client:
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
        answer = client.call(request, ProduceResponse, 9)
    assert [part.error_code for part in answer.responses[0].partition_responses] == [0]
    return answer.throttle_time_ms


def fetch(broker: ClusterBroker) -> FetchResponse:
    wanted = FetchPartition(partition=broker.id - 1, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])])
    with RawClient(broker.address) as client:
        return client.call(request, FetchResponse, 11)


def create(broker: ClusterBroker, name: str) -> CreateTopicsResponse:
    wanted = CreatableTopic(name=name, num_partitions=30, replication_factor=1)
    with RawClient(broker.address) as client:
        return client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), CreateTopicsResponse, 7)


def test_each_broker_counts_what_it_gets(cluster: EmbeddedCluster, quota: Callable[[str, float], None]) -> None:
    quota("producer_byte_rate", 10_000.0)
    assert produce(cluster.broker(2), 110_000) > 0
    assert produce(cluster.broker(3), 50_000) == 0
    assert produce(cluster.broker(3), 60_000) > 0


def test_followers_are_not_slowed_down(cluster: EmbeddedCluster, quota: Callable[[str, float], None]) -> None:
    """The quota is everybody's; a record is acknowledged when the followers have fetched it."""
    cluster.create_topic("copied", assignment=[[2, 1, 3]])
    set_quota(cluster.broker(1).address, "consumer_byte_rate", 1.0, None)
    quota("request_percentage", 1_000.0)
    try:
        data = PartitionProduceData(index=0, records=memoryview(bytearray(make_batch([b"x" * 1_000]))))
        request = ProduceRequest(
            acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name="copied", partition_data=[data])]
        )
        with RawClient(cluster.broker(2).address) as client:
            for _ in range(5):
                answer = client.call(request, ProduceResponse, 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
    finally:
        set_quota(cluster.broker(1).address, "consumer_byte_rate", 0.0, None)


def test_reads_are_slowed_down_at_a_broker_that_did_not_take_the_quota(
    cluster: EmbeddedCluster, quota: Callable[[str, float], None]
) -> None:
    produce(cluster.broker(3), 30_000)
    quota("consumer_byte_rate", 1_000.0)
    first, second = fetch(cluster.broker(3)), fetch(cluster.broker(3))
    assert (first.throttle_time_ms > 0, len(first.responses)) == (True, 0), "nothing that is above the quota"
    assert second.throttle_time_ms > 0 or len(second.responses) == 1


def test_time_is_counted(cluster: EmbeddedCluster, quota: Callable[[str, float], None]) -> None:
    quota("request_percentage", 0.000_1)
    with RawClient(cluster.broker(2).address) as client:
        assert client.call(MetadataRequest(topics=[]), MetadataResponse, 9).throttle_time_ms > 0


def test_changes_of_topics_are_counted(cluster: EmbeddedCluster, quota: Callable[[str, float], None]) -> None:
    quota("controller_mutation_rate", 1.0)
    made, refused = create(cluster.broker(3), "first"), create(cluster.broker(3), "second")
    assert [topic.error_code for topic in made.topics] == [0]
    assert [topic.error_code for topic in refused.topics] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert refused.throttle_time_ms > 0


def grow_log(address: str) -> None:
    """Set and remove many quotas."""
    for is_removed in (False, True):
        change = OpData(key="producer_byte_rate", value=1.0, remove=is_removed)
        entries = [
            EntryData(entity=[EntityData(entity_type="user", entity_name=f"passing-{number}")], ops=[change])
            for number in range(400)
        ]
        with RawClient(address) as client:
            answer = client.call(AlterClientQuotasRequest(entries=entries), AlterClientQuotasResponse, 1)
        assert {entry.error_code for entry in answer.entries} == {0}


def test_they_are_the_same_everywhere_after_restarts_from_a_snapshot(
    cluster: EmbeddedCluster, quota: Callable[[str, float], None]
) -> None:
    quota("producer_byte_rate", 1_000.0)
    set_quota(cluster.broker(3).address, "connection_creation_rate", 100.0, "127.0.0.9", "ip")
    expected = {"raw client producer_byte_rate": 1_000.0, "127.0.0.9 connection_creation_rate": 100.0}
    grow_log(cluster.broker(2).address)
    log = Path(cluster.data_dir) / "controller" / "__cluster_metadata-0"
    wait_until(lambda: bool(list(log.glob("*.checkpoint"))), "a snapshot")
    cluster.controller.kill()
    cluster.broker(2).kill()
    cluster.controller.start()
    cluster.broker(2).start()
    cluster.wait_until_in_sync()
    cluster.wait_until_applied()
    assert [quotas_at(broker.address) for broker in cluster.brokers] == [expected] * 3
    assert produce(cluster.broker(2), 20_000) > 0
    set_quota(cluster.broker(3).address, "connection_creation_rate", 0.0, "127.0.0.9", "ip")
