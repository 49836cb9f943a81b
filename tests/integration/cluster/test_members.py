"""A broker joins a running cluster, and another one leaves it for good; clients send and read on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kafkaprod import Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBrokerError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafkaprod.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tests.support.cluster.load import Load
from tests.support.cluster.reading import read_with_confluent
from tests.support.net.raw_client import RawClient

PARTITIONS = 2


def test_brokers_come_and_go_under_load() -> None:
    with EmbeddedCluster(brokers=2, topics={"orders": PARTITIONS}) as cluster:
        with Load(cluster.bootstrap_servers, "orders", PARTITIONS) as load:
            load.wait_for_more()
            added = cluster.add_broker("b")
            assert (added.id, added.rack, added.is_running) == (3, "b", True)
            cluster.create_topic("after", 3, replication_factor=3)
            cluster.remove_broker(1)
            load.wait_for_more()
            assert cluster.broker_ids == [2, 3]
            view = cluster.wait_until_in_sync()
            assert [sorted(view.replicas("orders", index)) for index in range(PARTITIONS)] == [[2, 3], [2, 3]]
            assert [sorted(view.replicas("after", index)) for index in range(3)] == [[2, 3]] * 3
            added.restart()
            cluster.wait_until_in_sync()
            load.wait_for_more()
        assert load.failed == []
        read = read_with_confluent(cluster.bootstrap_servers, "orders", PARTITIONS)
        # A batch that was written before its leader left is acknowledged by the next one, after a later batch.
        assert read == load.in_order
        cluster.remove_broker(3)
        assert cluster.add_broker().id == 4  # ids are not used again
        cluster.remove_broker(4)
        with pytest.raises(EmbeddedBrokerError, match="the only one"):
            cluster.remove_broker(2)
        with pytest.raises(ValueError, match="no broker 1"):
            cluster.remove_broker(1)


def unregister(cluster: EmbeddedCluster, broker_id: int) -> int:
    request = UnregisterBrokerRequest(broker_id=broker_id)
    with RawClient(cluster.broker(1).address) as client:
        return client.call(request, UnregisterBrokerResponse, 0).error_code


def test_a_client_has_a_broker_forgotten() -> None:
    with EmbeddedCluster(brokers=3, topics={"orders": 3}) as cluster:
        cluster.broker(3).stop()
        assert unregister(cluster, 3) == 0
        assert unregister(cluster, 3) == ErrorCode.BROKER_ID_NOT_REGISTERED
        with RawClient(cluster.broker(1).address) as client:
            topics = [MetadataRequestTopic(name="orders")]
            seen = client.call(MetadataRequest(topics=topics), MetadataResponse, 12)
        assert [node.node_id for node in seen.brokers] == [1, 2]
        assert [part.offline_replicas for part in seen.topics[0].partitions] == [[3]] * 3
        assert unregister(cluster, 2) == 0, "one that runs"
        cluster.wait_for(lambda view: sorted(view.active_brokers) == [1, 2])
        cluster.broker(3).start()
        cluster.wait_until_in_sync()
        assert all(sorted(cluster.isr("orders", index)) == [1, 2, 3] for index in range(3))


def test_another_cluster_continues_with_kept_data(tmp_path: Path) -> None:
    for life in range(3):
        began = time.monotonic()
        with EmbeddedCluster(brokers=2, topics={"orders": 2}, data_dir=tmp_path, session_timeout_ms=20_000) as cluster:
            assert time.monotonic() - began < 20, "the sessions of the last cluster's brokers are over"
            with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                producer.send("orders", b"%d" % life, partition=life % 2).result()
            assert sorted(record.value or b"" for record in cluster.records("orders")) == [
                b"%d" % each for each in range(life + 1)
            ]
            if life == 1:
                for broker in cluster.brokers:
                    broker.kill()
