"""Snapshots of the metadata: what a broker alone and a cluster know after their logs were cut."""

from __future__ import annotations

from pathlib import Path

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.broker.fixtures_broker import wait_until
from tests.support.net.raw_client import RawClient

OFTEN = {"metadata.log.max.record.bytes.between.snapshots": 1}  # and when the log has grown four times the last one


def churn(address: str, rounds: int) -> None:
    """Make topics and delete them."""
    names = [f"passing-{number}" for number in range(20)]
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    with RawClient(address) as client:
        for _ in range(rounds):
            made = client.call(CreateTopicsRequest(topics=wanted), CreateTopicsResponse, 5)
            assert {topic.error_code for topic in made.topics} == {0}
            request = DeleteTopicsRequest(topic_names=names, timeout_ms=10_000)
            gone = client.call(request, DeleteTopicsResponse, 5)
            assert {topic.error_code for topic in gone.responses} == {0}


def topics_of(address: str) -> dict[str, int]:
    """The topics that a broker knows, with their numbers of partitions."""
    with RawClient(address) as client:
        answer = client.call(MetadataRequest(topics=None), MetadataResponse, 9)
    return {topic.name or "": len(topic.partitions) for topic in answer.topics}


def cut_at(directory: Path) -> int:
    """Where the log of a directory begins."""
    return min(int(path.stem) for path in (directory / "__cluster_metadata-0").glob("*.log"))


def send(servers: str, topic: str, value: bytes) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(topic, value).result()


def test_broker_alone_starts_from_a_snapshot(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path / "a", topics={"kept": 3}, options=OFTEN) as broker:
        send(broker.bootstrap_servers, "kept", b"before")
        churn(broker.bootstrap_servers, 6)
        wait_until(lambda: cut_at(tmp_path / "a") > 0, "the log to be cut")
        broker.kill()
        broker.start()
        assert topics_of(broker.bootstrap_servers) == {"kept": 3}
        send(broker.bootstrap_servers, "kept", b"after")
        broker.check_records("kept", b"before", b"after")
        newest, _ = sorted((tmp_path / "a" / "__cluster_metadata-0").glob("*.checkpoint"), reverse=True)
        broker.stop()
        newest.write_bytes(newest.read_bytes()[:-1])
        broker.start()
        assert topics_of(broker.bootstrap_servers) == {"kept": 3}
        broker.check_records("kept", b"before", b"after")


def test_cluster_starts_from_a_snapshot_and_sends_it_to_its_brokers(tmp_path: Path) -> None:
    with EmbeddedCluster(data_dir=tmp_path, brokers=2, options=OFTEN) as cluster:
        cluster.create_topic("kept", 3, replication_factor=2)
        first, second = cluster.brokers
        send(cluster.bootstrap_servers, "kept", b"before")
        churn(first.address, 4)
        second.kill()
        churn(first.address, 3)
        wait_until(lambda: cut_at(tmp_path / "controller") > 0, "the log to be cut")
        second.start()
        cluster.wait_for(lambda view: len(view.active_brokers) == 2 and view.is_in_sync)
        cluster.controller.kill()
        first.kill()
        cluster.controller.start()
        first.start()
        cluster.wait_for(lambda view: len(view.active_brokers) == 2 and view.is_in_sync)
        cluster.wait_until_applied()
        assert [topics_of(broker.address) for broker in (first, second)] == [{"kept": 3}] * 2
        churn(second.address, 1)
        send(cluster.bootstrap_servers, "kept", b"after")
        cluster.check_records("kept", b"before", b"after")
