"""Apache Kafka's command line tools on the ports and files of an embedded cluster."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kafkaprod import Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from tests.kafka.runtime import read_metadata, run_java

TOPICS = "org.apache.kafka.tools.TopicCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
TIMEOUT_S = 120.0
FIRST_SEGMENT = "00000000000000000000.log"

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    data_dir = tmp_path_factory.mktemp("cluster")
    with EmbeddedCluster(brokers=3, racks=("a", "b", "c"), data_dir=data_dir, log_dirs=2) as running:
        running.create_topic("orders", assignment=[[1, 2, 3], [2, 3, 1]])
        with Producer(bootstrap_servers=running.bootstrap_servers, acks="all") as producer:
            for number in range(5):
                producer.send("orders", b"value %d" % number, key=b"key", partition=0)
        yield running


@pytest.fixture
def tool(kafka_tools: str, cluster: EmbeddedCluster) -> Tool:
    def run(main_class: str, *arguments: str) -> str:
        servers = ["--bootstrap-server", cluster.bootstrap_servers]
        return run_java(kafka_tools, main_class, [*servers, *arguments], timeout_s=TIMEOUT_S)

    return run


def test_topics_are_made_and_described(tool: Tool, cluster: EmbeddedCluster) -> None:
    tool(TOPICS, "--create", "--topic", "made", "--replica-assignment", "3:1:2,1:2:3")
    described = tool(TOPICS, "--describe", "--topic", "made")
    assert re.search(r"Partition: 0\s+Leader: 3\s+Replicas: 3,1,2\s+Isr: 3,1,2", described), described
    assert re.search(r"Partition: 1\s+Leader: 1\s+Replicas: 1,2,3\s+Isr: 1,2,3", described), described
    cluster.broker(3).kill()
    try:
        cluster.wait_for(lambda view: view.leader("made", 0) == 1)
        below = tool(TOPICS, "--describe", "--topic", "made", "--under-replicated-partitions")
        assert re.search(r"Partition: 0\s+Leader: 1\s+Replicas: 3,1,2\s+Isr: 1,2", below), below
    finally:
        cluster.broker(3).start()
        cluster.wait_until_in_sync()


def test_preferred_leaders_are_elected(tool: Tool, cluster: EmbeddedCluster) -> None:
    cluster.move_leader("orders", 0, to=2)
    done = tool(ELECTION, "--election-type", "preferred", "--topic", "orders", "--partition", "0")
    assert "Successfully completed leader election (PREFERRED) for partitions orders-0" in done
    cluster.wait_for(lambda view: view.leader("orders", 0) == 1)


def test_the_quorum_is_described(tool: Tool, cluster: EmbeddedCluster) -> None:
    status = dict(re.findall(r"^(\w+):\s+(.*)$", tool(QUORUM, "describe", "--status"), re.MULTILINE))
    assert status["LeaderEpoch"] == str(cluster.view().controller_epoch)
    assert int(status["HighWatermark"]) > 0
    replication = tool(QUORUM, "describe", "--replication").splitlines()
    assert sum("Observer" in line for line in replication) == 3, replication


def test_replicas_are_moved(tool: Tool, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    cluster.create_topic("moving", assignment=[[1, 2]])
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        producer.send("moving", b"stays").result(30)
    plan = {"version": 1, "partitions": [{"topic": "moving", "partition": 0, "replicas": [3, 2]}]}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    assert "Successfully started" in tool(REASSIGN, "--reassignment-json-file", str(file), "--execute")
    cluster.wait_for(lambda view: view.replicas("moving", 0) == [3, 2] and view.is_in_sync)
    verified = tool(REASSIGN, "--reassignment-json-file", str(file), "--verify")
    assert "Reassignment of partition moving-0 is completed." in verified
    assert set(cluster.replicas("moving", 0)) == {2, 3}


def test_a_broker_is_forgotten(kafka_tools: str, cluster: EmbeddedCluster) -> None:
    def unregister(broker_id: int) -> str:
        words = ["unregister", "--bootstrap-server", cluster.bootstrap_servers, "--id", str(broker_id)]
        return run_java(kafka_tools, CLUSTER, words, timeout_s=TIMEOUT_S)

    cluster.broker(3).stop()
    try:
        assert unregister(3).strip() == "Broker 3 is no longer registered."
        with pytest.raises(RuntimeError, match="Broker ID 9 is not currently registered"):
            unregister(9)
    finally:
        cluster.broker(3).start()
        cluster.wait_until_in_sync()


def test_the_files_are_kafkas(kafka_tools: str, cluster: EmbeddedCluster) -> None:
    data_dir = Path(cluster.data_dir)
    cluster.broker(3).fail_log_dir(2)
    cluster.wait_for(lambda view: not view.is_in_sync)
    cluster.broker(3).restart()
    cluster.wait_until_in_sync()

    def dump(file: Path, *flags: str) -> str:
        return run_java(kafka_tools, DUMP_LOG, ["--files", str(file), *flags], timeout_s=TIMEOUT_S)

    metadata = dump(data_dir / "controller" / "__cluster_metadata-0" / FIRST_SEGMENT, "--cluster-metadata-decoder")
    payloads = [json.loads(found) for found in re.findall(r"payload: (\{.*\})", metadata)]
    assert len(payloads) >= cluster.view().end_offset - 1
    topics = [payload["data"]["name"] for payload in payloads if payload["type"] == "TOPIC_RECORD"]
    assert "orders" in topics
    first = next(payload["data"] for payload in payloads if payload["type"] == "PARTITION_RECORD")
    assert sorted(first["replicas"]) == [1, 2, 3]
    directories = {each for payload in payloads for each in payload["data"].get("logDirs", ())}
    assert len(directories) == 6
    assert set(first["directories"]) < directories
    changes = [payload["data"] for payload in payloads if payload["type"] == "BROKER_REGISTRATION_CHANGE_RECORD"]
    assert any(len(change.get("logDirs", ())) == 1 for change in changes), "one has failed"
    assert "error" not in metadata.lower()
    for number in (1, 2, 3):
        (log,) = data_dir.glob(f"broker-{number}*/orders-0/{FIRST_SEGMENT}")
        text = dump(log, "--print-data-log")
        assert re.findall(r"payload: (value \d)", text) == [f"value {number}" for number in range(5)]
        assert "isvalid: true" in text


def test_the_metadata_shell_reads_the_log(kafka_tools: str, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    entry = AclBinding(
        ResourceType.TOPIC,
        "secret",
        ResourcePatternType.LITERAL,
        "User:ann",
        "*",
        AclOperation.READ,
        AclPermissionType.DENY,
    )
    admin.create_acls([entry])[entry].result(TIMEOUT_S)
    change = UserScramCredentialUpsertion(
        "bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret", b"salt"
    )
    admin.alter_user_scram_credentials([change])["bob"].result(TIMEOUT_S)
    # The controller holds the lock of its directory: the shell reads a copy.
    log = tmp_path / "__cluster_metadata-0" / FIRST_SEGMENT
    log.parent.mkdir()
    shutil.copy(Path(cluster.data_dir) / "controller" / "__cluster_metadata-0" / FIRST_SEGMENT, log)

    credential = r"bob:\s+ScramCredentialData\(salt=73616c74, .*iterations=4096\)"
    image = read_metadata(kafka_tools, log, ["tree", "image"], credential)
    assert "4.0-IV3" in image
    brokers = re.findall(r"BrokerRegistration\(id=(\d), epoch=(\d+), .*fenced=(\w+)", image)
    assert [(node, fenced) for node, _, fenced in brokers] == [("1", "false"), ("2", "false"), ("3", "false")]
    assert all(int(epoch) > 0 for _, epoch, _ in brokers)
    assert re.search(r"StandardAcl\[resourceType=TOPIC, resourceName=secret, .*principal=User:ann, .*DENY\]", image)
    leader = cluster.view().leader("orders", 0)
    partition = ["cat", "image/topics/byName/orders/0"]
    assert "replicas=[1, 2, 3]" in read_metadata(kafka_tools, log, partition, f"leader={leader}, ")
