"""Log directories in an embedded cluster: one that fails, one that is missing at a start, replicas that move."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kafkaprod import Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from kafkaprod.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafkaprod.protocol.messages.produce import ProduceResponse
from tests.campaigns import cluster_faults, transaction_faults
from tests.support.broker.broker_requests import produce_request
from tests.support.broker.fixtures_broker import wait_until
from tests.support.broker.fixtures_log import make_batch
from tests.support.net.raw_client import RawClient

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
TOPIC = "orders"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(log_dirs=2, topics={TOPIC: 4}, session_timeout_ms=1_000, replica_lag_ms=500) as running:
        yield running


def place(broker: ClusterBroker, partition: int) -> str | None:
    """In which of its directories a broker has a partition; of one that moves the old one."""
    with RawClient(broker.address) as client:
        answer = client.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)
    for found in answer.results:
        for topic in found.topics:
            if topic.name == TOPIC and any(
                each.partition_index == partition and not each.is_future_key for each in topic.partitions
            ):
                return found.log_dir
    return None


def await_place(broker: ClusterBroker, partition: int, path: str) -> None:
    wait_until(lambda: place(broker, partition) == path, f"broker {broker.id} to have its replica in {path}")


def move(broker: ClusterBroker, path: str, *partitions: int, topic: str = TOPIC) -> list[int]:
    named = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))])
    with RawClient(broker.address) as client:
        answer = client.call(AlterReplicaLogDirsRequest(dirs=[named]), AlterReplicaLogDirsResponse, 2)
    return [each.error_code for each in answer.results[0].partitions]


def in_second(cluster: EmbeddedCluster) -> tuple[int, ClusterBroker]:
    """A partition that its leader has in the second directory."""
    for partition in range(4):
        leader = cluster.leader(TOPIC, partition)
        if place(leader, partition) == leader.log_dirs[1]:
            return partition, leader
    raise AssertionError("no leader has a partition in its second directory")


def offline_replicas(broker: ClusterBroker, partition: int) -> list[int]:
    """Those that a broker shows to clients."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    with RawClient(broker.address) as client:
        described = client.call(request, MetadataResponse, 9).topics[0].partitions
    return next(each.offline_replicas for each in described if each.partition_index == partition)


def send(cluster: EmbeddedCluster, values: list[bytes], partition: int) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, batch_size=2_000) as producer:
        for value in values:
            producer.send(TOPIC, value, partition=partition)
        producer.flush()


def read(cluster: EmbeddedCluster, partition: int) -> list[bytes | None]:
    return [record.value for record in cluster.records(TOPIC) if record.partition == partition]


def test_another_replica_leads_when_a_directory_fails(cluster: EmbeddedCluster) -> None:
    partition, leader = in_second(cluster)
    values = [b"%d" % number for number in range(300)]
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=1) as producer:
        for number, value in enumerate(values):
            producer.send(TOPIC, value, partition=partition)
            if number == 100:
                producer.flush()
                leader.fail_log_dir(2)
        producer.flush()
    view = cluster.wait_for(lambda view: leader.id not in view.isr(TOPIC, partition))
    assert view.leader(TOPIC, partition) not in (None, leader.id)
    assert list(view.active_brokers) == [1, 2, 3], "the broker lives"
    assert read(cluster, partition) == values
    with RawClient(leader.address) as client:
        answer = client.call(produce_request(make_batch((b"x",)), partition=partition, topic=TOPIC), ProduceResponse, 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    cluster.wait_until_applied()
    for broker in cluster.brokers:
        assert offline_replicas(broker, partition) == [leader.id]
    assert move(leader, leader.log_dirs[0], partition) == [ErrorCode.KAFKA_STORAGE_ERROR]
    leader.restart()
    cluster.wait_until_in_sync()
    cluster.move_leader(TOPIC, partition, leader.id)
    assert read(cluster, partition) == values


def test_last_in_sync_replica_waits_for_its_disk(cluster: EmbeddedCluster) -> None:
    """A broker that starts without the disk does not lead with an empty log, and has all with it."""
    partition, leader = in_second(cluster)
    others = [broker for broker in cluster.brokers if broker is not leader]
    for broker in others:
        broker.stop()
    values = [b"%d" % number for number in range(50)]
    send(cluster, values, partition)
    disk = Path(leader.log_dirs[1])
    leader.kill()
    disk.rename(disk.with_suffix(".away"))
    disk.write_text("no directory")
    for broker in cluster.brokers:
        broker.start()
    view = cluster.wait_for(lambda view: len(view.active_brokers) == 3 and view.leader(TOPIC, partition) is None)
    assert list(view.isr(TOPIC, partition)) == [leader.id]
    with_leader = [number for number in range(4) if view.leader(TOPIC, number) is not None]
    assert with_leader, "what is in the first directory is served"
    leader.stop()
    disk.unlink()
    disk.with_suffix(".away").rename(disk)
    leader.start()
    cluster.wait_until_in_sync()
    assert read(cluster, partition) == values


def test_a_move_that_was_given_up_leaves_no_empty_replica_where_it_went(cluster: EmbeddedCluster) -> None:
    """The metadata names where the replica should have gone: the broker did not hear of it before it died."""
    cluster.create_topic("alone", assignment=[[1]])
    broker = cluster.broker(1)
    values = [b"%d" % number for number in range(50)]
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send_many("alone", values).wait()
    paths = broker.log_dirs
    source = next(path for path in paths if (Path(path) / "alone-0").exists())
    if source == paths[0]:  # without the first one no broker starts
        source = paths[1]
        assert move(broker, source, 0, topic="alone") == [ErrorCode.NONE]
        wait_until(lambda: not (Path(paths[0]) / "alone-0").exists(), "the replica to be in the second directory")
    cluster.wait_until_applied()
    before = len(cluster.history())
    with cluster.cut("controller", 1, one_way=True):
        assert move(broker, paths[0], 0, topic="alone") == [ErrorCode.NONE]
        wait_until(lambda: "log directories" in "".join(cluster.history()[before:]), "the metadata to name it")
        assert move(broker, source, 0, topic="alone") == [ErrorCode.NONE]
        broker.kill()
    disk = Path(source)
    disk.rename(disk.with_suffix(".away"))
    disk.write_text("no directory")
    broker.start()
    view = cluster.wait_for(lambda view: len(view.active_brokers) == 3 and view.leader("alone", 0) is None)
    assert list(view.isr("alone", 0)) == [1]
    broker.stop()
    disk.unlink()
    disk.with_suffix(".away").rename(disk)
    broker.start()
    cluster.wait_until_in_sync()
    assert [record.value for record in cluster.records("alone")] == values


def test_new_topics_are_made_beside_a_failed_directory(cluster: EmbeddedCluster) -> None:
    for broker in cluster.brokers:
        broker.fail_log_dir(2)
    cluster.create_topic("later", 3)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for partition in range(3):
            producer.send("later", b"x", partition=partition)
        producer.flush()
    assert sorted(record.partition for record in cluster.records("later")) == [0, 1, 2]


def test_a_topic_is_made_again_while_a_disk_of_the_former_one_has_failed(cluster: EmbeddedCluster) -> None:
    """When the disk is back, the newer topic is the one that is kept."""
    send(cluster, [b"former"] * 50, 0)
    in_second(cluster)
    for broker in cluster.brokers:
        broker.fail_log_dir(2)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_topics([TOPIC])[TOPIC].result(30)
    cluster.create_topic(TOPIC, 4)
    cluster.wait_until_in_sync()
    for partition in range(4):
        send(cluster, [b"later"], partition)
    for broker in cluster.brokers:
        broker.restart()
    cluster.wait_until_in_sync()
    assert [(record.partition, record.value) for record in cluster.records(TOPIC)] == [
        (partition, b"later") for partition in range(4)
    ]


def test_replicas_move_while_leaders_change(cluster: EmbeddedCluster) -> None:
    values = [b"%06d" % number * 20 for number in range(3_000)]
    send(cluster, values[:1_000], 0)
    first = [place(broker, 0) for broker in cluster.brokers]
    with Producer(bootstrap_servers=cluster.bootstrap_servers, batch_size=2_000, linger_ms=1) as producer:
        for number, value in enumerate(values[1_000:]):
            producer.send(TOPIC, value, partition=0)
            if number == 200:
                for broker, path in zip(cluster.brokers, first, strict=True):
                    (other,) = {*broker.log_dirs} - {path}
                    assert move(broker, other, 0) == [ErrorCode.NONE]
            if number % 400 == 0:
                cluster.wait_until_in_sync()
                leader = cluster.leader(TOPIC, 0)
                leader.kill()
                leader.start()
        producer.flush()
    cluster.wait_until_in_sync()
    for broker, path in zip(cluster.brokers, first, strict=True):
        (other,) = {*broker.log_dirs} - {path}
        await_place(broker, 0, other)
        cluster.move_leader(TOPIC, 0, broker.id)
        assert read(cluster, 0) == values


def test_nothing_is_lost_when_disks_fail_while_records_come_and_replicas_move() -> None:
    piece = cluster_faults.run(Counter(disk=5), 5, 120, ["sent"], None)
    assert piece.wrong == []
    assert piece.faults == {"disk": 5}


def test_transactions_are_exactly_once_when_disks_fail() -> None:
    tally = transaction_faults.run_disks(3, 2)
    assert tally.committed > 0
    assert tally.records > 0


def test_a_wish_for_a_replica_to_come_is_remembered(cluster: EmbeddedCluster) -> None:
    cluster.add_broker()
    added = cluster.brokers[-1]
    assert len(added.log_dirs) == 2
    for partition in range(4):
        wanted = added.log_dirs[partition % 2]
        assert move(added, wanted, partition) == [ErrorCode.REPLICA_NOT_AVAILABLE]
        cluster.reassign(TOPIC, partition, [added.id, 1])
        await_place(added, partition, wanted)
    cluster.wait_until_in_sync()


def test_a_directory_that_fails_is_one_of_several(cluster: EmbeddedCluster) -> None:
    with pytest.raises(ConfigError, match=r"number=1 is not in 2\.\.2"):
        cluster.brokers[0].fail_log_dir(1)
    with EmbeddedCluster(brokers=1) as small, pytest.raises(ConfigError, match="the broker has one log directory"):
        small.brokers[0].fail_log_dir(2)
    with pytest.raises(ConfigError, match=r"log_dirs=17 is not in 1\.\.16"):
        EmbeddedCluster(log_dirs=17)


def test_directories_are_kept_and_made_fewer(tmp_path: Path) -> None:
    """As Kafka's, a broker that is started without one of its directories has its partitions made again."""
    for count in (3, 3, 1):
        with EmbeddedCluster(brokers=3, log_dirs=count, topics={TOPIC: 4}, data_dir=tmp_path / "c") as cluster:
            for partition in range(4):
                send(cluster, [b"%d" % count], partition)
            expected = [b"3", b"3"] if count == 3 else [b"1"]
            assert all(read(cluster, partition)[-1] == expected[-1] for partition in range(4))
            cluster.wait_until_in_sync()
        for path in (tmp_path / "c").glob("broker-*-dir-*") if count == 1 else ():
            shutil.rmtree(path)
