"""The controller inside a broker alone: its registration at each start, and what it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod.broker.cluster.own_controller import OwnController
from kafkaprod.broker.controller.controller import LEADER_CHECK_MS
from kafkaprod.broker.listeners import Endpoint
from kafkaprod.broker.storage.log.log_dir import KnownTopics, LogDir, open_log_dir
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.support.broker.fixtures_log import NOW_MS, FaultyDisk, failing, make_environment
from tests.support.clock import ManualClock


class SlowClock(ManualClock):
    """Of a process that waits for its processor: it is later each of the first times that it looks."""

    def __init__(self, step_ms: int) -> None:
        super().__init__(wall_ms=NOW_MS)
        self._steps_ms = [step_ms] * 4

    def now_ms(self) -> int:
        self.advance(self._steps_ms.pop() if self._steps_ms else 0)
        return super().now_ms()


class Rig:
    """Starts of a broker's controller in one directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk = FaultyDisk()
        self.log_dir: LogDir | None = None

    def start(self, port: int = 9092, step_ms: int = 0) -> OwnController:
        self.stop()
        environment = make_environment(self.disk, clock=SlowClock(step_ms))
        made: list[OwnController] = []

        def find_topics(log_dir: LogDir) -> KnownTopics:
            made.append(
                OwnController(
                    log_dir, environment.clock, {"PLAINTEXT": Endpoint("h", port)}, {"PLAINTEXT": "PLAINTEXT"}
                )
            )
            return KnownTopics({}, {})

        self.log_dir = open_log_dir(str(self.path), environment, node_id=4, find_topics=find_topics)
        return made[0]

    def stop(self) -> None:
        if self.log_dir is not None:
            self.log_dir.close()
        self.log_dir = None


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "data")
    yield rig
    rig.stop()


def create(controller: OwnController, name: str) -> int:
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=3, replication_factor=1)])
    answer = controller.ask(request)
    assert isinstance(answer, CreateTopicsResponse)
    return answer.topics[0].error_code


@pytest.mark.parametrize("step_ms", [0, LEADER_CHECK_MS, 60_000])
def test_a_start_adds_the_registration_and_no_election(rig: Rig, step_ms: int) -> None:
    first = rig.start(9001)
    create(first, "orders")
    before = first.image.partitions.copy()
    again = rig.start(9002, step_ms)
    assert again.image.partitions == before
    assert {(partition.leader, partition.isr) for partition in before.values()} == {(4, (4,))}
    assert again.image.end_offset == first.image.end_offset + 3, "epoch, registration, unfenced"
    assert again.epoch == first.epoch + 1
    (broker,) = again.image.brokers.values()
    assert (broker.broker_id, broker.is_active, broker.endpoints) == (4, True, (("PLAINTEXT", "h", 9002, 0),))


def test_changes_are_not_kept_beside_what_they_add_up_to(rig: Rig) -> None:
    controller = rig.start()
    for _ in range(50):
        create(controller, "orders")
        controller.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]))
    inner = controller._controller
    assert (len(inner.log.batches()), len(inner.queue._timers)) == (0, 2)
    assert not controller.image.topics


def test_what_the_disk_refuses_has_not_happened(rig: Rig) -> None:
    controller = rig.start()
    seen: list[int] = []
    controller.on_change = lambda image: seen.append(image.end_offset)
    before = controller.image.end_offset
    rig.disk.fail = failing("pwrite")
    assert (create(controller, "orders"), controller.image.end_offset) == (56, before)
    rig.disk.fail = None
    assert create(controller, "orders") == 0
    assert seen == [controller.image.end_offset]
    assert [topic.name for topic in rig.start().image.topics.values()] == ["orders"]


def test_producer_ids_begin_where_they_are_asked_to(rig: Rig) -> None:
    controller = rig.start()
    assert [controller.producer_ids(), controller.producer_ids(5000), controller.producer_ids()] == [
        (0, 1000),
        (5000, 1000),
        (6000, 1000),
    ]
    assert rig.start().producer_ids() == (7000, 1000)
