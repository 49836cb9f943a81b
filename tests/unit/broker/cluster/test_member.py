"""A broker's part in a cluster: real servers and a real controller, each a thread of this process."""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.cluster.clustered import Clustered
from kafkaprod.broker.cluster.member import ClusterMember
from kafkaprod.broker.cluster.replicated_topics import ReplicatedTopics
from kafkaprod.broker.cluster_config import ClusterConfig
from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.controller import wire
from kafkaprod.broker.controller.process import ControllerConfig, ControllerProcess
from kafkaprod.broker.embedding.children import in_loop
from kafkaprod.broker.metadata.follower import MetadataSlice
from kafkaprod.broker.metadata.image import ClusterImage
from kafkaprod.broker.metadata.log import MetadataBatch
from kafkaprod.broker.metadata.records import NoOpRecord, TopicRecord
from kafkaprod.broker.replication.lifecycle import BrokerState
from kafkaprod.broker.server.server import BrokerServer
from kafkaprod.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kafkaprod.protocol.messages.broker_registration import BrokerRegistrationResponse
from kafkaprod.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kafkaprod.storage.disk import UnsyncedDisk
from tests.support.broker.fixtures_log import make_batch

CLUSTER_ID = "kafkaprodKafkaprodKafA"
BOUND_S = 20.0


class Rig:
    """A controller and brokers that a test starts and stops."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._threads: dict[Any, threading.Thread] = {}
        self.controller: ControllerProcess | None = None

    def start_controller(self) -> ControllerProcess:
        disk = UnsyncedDisk()
        config = ControllerConfig(self._directory, f"{self._directory}/controller", CLUSTER_ID, disk=disk)
        self.controller = ControllerProcess(config)
        self._start(self.controller, self.controller.run)
        return self.controller

    def start_broker(self, node_id: int) -> BrokerServer:
        server = self.make_broker(node_id)
        self.run_broker(server)
        return server

    def make_broker(self, node_id: int) -> BrokerServer:
        cluster = ClusterConfig(self._directory, CLUSTER_ID, uuid.uuid4(), heartbeat_ms=50)
        config = BrokerConfig(
            f"{self._directory}/broker-{node_id}",
            port=0,
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            cluster=cluster,
            disk=UnsyncedDisk(),
        )
        return BrokerServer(config)

    def run_broker(self, server: BrokerServer) -> None:
        self._start(server, server.run)

    def stop(self, process: Any) -> None:
        process.stop()
        self._threads.pop(process).join(BOUND_S)

    def is_running(self, process: Any) -> bool:
        return self._threads[process].is_alive()

    def close(self) -> None:
        for process in list(self._threads):
            self.stop(process)

    def _start(self, process: Any, run: Callable[[], object]) -> None:
        self._threads[process] = threading.Thread(target=run, name="rig", daemon=True)
        self._threads[process].start()


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def member_of(server: BrokerServer) -> ClusterMember:
    assert isinstance(server.broker.standing, Clustered)
    return server.broker.standing.member


def image_of(server: BrokerServer) -> ClusterImage:
    assert isinstance(server.broker.topics, ReplicatedTopics)
    return server.broker.topics.image


def serves(server: BrokerServer) -> bool:
    return member_of(server).lifecycle.state is BrokerState.RUNNING


def create_topic(controller: ControllerProcess, *replicas: int) -> None:
    answers: list[Any] = []
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", assignments=[assignment])])
    in_loop(controller.post, lambda: controller.take(request, answers.append))
    eventually(lambda: bool(answers))
    assert answers[0].topics[0].error_code == 0


@pytest.fixture
def rig() -> Iterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="k") as directory:  # short: the path of a socket has 107 bytes at most
        Path(directory).chmod(0o700)
        made = Rig(directory)
        yield made
        made.close()


def test_a_broker_serves_once_a_controller_knows_it(rig: Rig) -> None:
    server = rig.start_broker(1)
    member = member_of(server)
    answers: list[Any] = []
    server.post(lambda: member.ask_controller(AllocateProducerIdsRequest(), 0, answers.append, 100))
    eventually(lambda: answers == [None])
    assert member.lifecycle.state is BrokerState.REGISTERING
    controller = rig.start_controller()
    eventually(lambda: serves(server))
    assert controller.controller.context.image.is_active(1)


def test_a_file_of_settings_is_named_and_not_used(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """A broker alone, or an older version, kept its ACLs there."""
    rig.start_controller()
    server = rig.start_broker(1)
    eventually(lambda: serves(server))
    rig.stop(server)
    file = Path(server.broker.log_dirs.first.path) / "settings.json"
    assert not file.exists()
    file.write_text('{"sections": {"group options": {"g": {"a": "1"}}}}')
    assert str(file) not in caplog.text
    again = rig.start_broker(1)
    assert again.broker.settings.get("group options") == {}
    assert f"{str(file)!r} is not used" in caplog.text


def test_metadata_from_before_the_answer_to_the_registration_is_applied_with_it(rig: Rig) -> None:
    server = rig.make_broker(1)
    member = member_of(server)
    asked: list[Any] = []
    member.ask_controller = lambda *request: asked.append(request)  # type: ignore[method-assign]
    rig.run_broker(server)
    eventually(lambda: bool(asked))
    registered_at = 1
    batch = MetadataBatch(0, 1, (NoOpRecord(), NoOpRecord(), TopicRecord(name="t", topic_id=uuid.UUID(int=7))))
    sent = MetadataSlice(1, registered_at, 0, -1, batch.end_offset, (batch,))
    answer = in_loop(server.post, lambda: member.receive_slice(wire.slice_request(sent, {})))
    assert (answer.error_code, answer.end_offset) == (0, batch.end_offset)
    assert image_of(server).end_offset == 0
    (_, _, on_answer, _) = asked[0]
    in_loop(server.post, lambda: on_answer(BrokerRegistrationResponse(error_code=0, broker_epoch=registered_at)))
    assert image_of(server).end_offset == batch.end_offset


def test_a_follower_copies_what_the_leader_has(rig: Rig) -> None:
    controller = rig.start_controller()
    leader, follower = rig.start_broker(1), rig.start_broker(2)
    eventually(lambda: serves(leader) and serves(follower))
    create_topic(controller, 1, 2)

    def log_of(server: BrokerServer) -> Any:
        partition = server.broker.topics.partition("t", 0)
        return partition.log if partition is not None and partition.has_log else None

    eventually(lambda: log_of(leader) is not None and log_of(follower) is not None)
    log_of(leader).append(bytearray(make_batch((b"a", b"b"))), 0)
    eventually(lambda: log_of(follower).log_end_offset == 2)
    eventually(lambda: log_of(leader).high_watermark == 2)
    described = in_loop(follower.post, member_of(follower).describe_replicas)
    assert described["t-0"][::2] == [0, 2]


def test_a_controlled_shutdown_ends_the_server(rig: Rig) -> None:
    controller = rig.start_controller()
    first, second = rig.start_broker(1), rig.start_broker(2)
    eventually(lambda: serves(first) and serves(second))
    create_topic(controller, 1, 2)
    first.shut_down()
    first.shut_down()  # again, as a second signal does
    eventually(lambda: not rig.is_running(first))
    assert member_of(first).lifecycle.state is BrokerState.STOPPED
    (partition,) = controller.controller.context.image.partitions.values()
    assert (partition.leader, partition.isr) == (2, (2,))


def test_a_broker_survives_its_controller(rig: Rig) -> None:
    controller = rig.start_controller()
    server = rig.start_broker(1)
    eventually(lambda: serves(server))
    rig.stop(controller)
    create_topic(rig.start_controller(), 1)
    eventually(lambda: server.broker.topics.get("t") is not None)
    assert serves(server)


def test_waiting_for_metadata_ends_with_its_time(rig: Rig) -> None:
    server = rig.start_broker(1)
    member = member_of(server)
    called: list[str] = []
    server.post(lambda: member.when(lambda: True, 60_000, lambda: called.append("true")))
    server.post(lambda: member.when(lambda: False, 20, lambda: called.append("late")))
    eventually(lambda: called == ["true", "late"])
