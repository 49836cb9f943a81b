"""The replicas of a broker: what it does when the metadata changes."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from kafkaprod.broker.metadata.image import BrokerImage, ClusterImage, PartitionImage, PartitionKey, TopicImage
from kafkaprod.broker.replication.fetcher import FetchRequest
from kafkaprod.broker.replication.metadata_queue import MetadataQueue, Presence
from kafkaprod.broker.replication.partition import ReplicaSettings
from kafkaprod.broker.replication.replica_manager import LOG_UNITS, TURN_UNITS, ReplicaManager
from kafkaprod.broker.storage.errors import LogError
from kafkaprod.protocol.error_codes import ErrorCode as E
from tests.simulation.logs import SimulatedLog
from tests.support.clock import ManualClock
from tests.unit.broker.kafka_bugs.cases import KEY, Node, fetch, follow_all


def test_a_broker_that_fetched_before_it_was_unfenced_joins_with_that_metadata() -> None:
    node = Node()
    fenced = node.image.brokers[2] = replace(node.image.brokers[2], is_fenced=True)
    node.hear(leader=1, isr=(1, 3))
    node.manager.serve(FetchRequest({KEY: fetch(0)}, follower=2), 0)
    follow_all(node.manager, [], 1)
    assert node.manager.next_isr_request(1) is None
    node.image.brokers[2] = replace(fenced, is_fenced=False)
    follow_all(node.manager, [], 2)
    request = node.manager.next_isr_request(2)
    assert request is not None
    assert [member.broker_id for member in request.topics[0].partitions[0].new_isr_with_epochs] == [1, 3, 2]


class Host:
    """A manager on broker 1, and the logs that it makes and deletes, in order."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        for broker_id in (1, 2):
            self.image.brokers[broker_id] = BrokerImage(broker_id, 10, uuid.UUID(int=broker_id), None, False, False)
        self.acts: list[tuple[str, PartitionKey]] = []
        self.manager = ReplicaManager(
            1, self.image, lambda: 10, self._open, self._drop, lambda _: 1, ReplicaSettings(lag_ms=100)
        )

    def _open(self, key: PartitionKey) -> SimulatedLog:
        self.acts.append(("open", key))
        return SimulatedLog(ManualClock())

    def _drop(self, key: PartitionKey) -> None:
        self.acts.append(("drop", key))

    def create(self, number: int, count: int, leader: int = 1, epoch: int = 0) -> list[PartitionKey]:
        """Have the image say that a topic has so many partitions on both brokers."""
        topic_id = uuid.UUID(int=number)
        self.image.topics[topic_id] = TopicImage(f"t{number}", topic_id)
        keys = [(topic_id, index) for index in range(count)]
        for key in keys:
            self.image.partitions[key] = PartitionImage(*key, (1, 2), (1, 2), leader, epoch, epoch)
        return keys

    def delete(self, keys: list[PartitionKey]) -> None:
        """Have the image say that the topic is gone."""
        self.image.topics.pop(keys[0][0], None)
        for key in keys:
            del self.image.partitions[key]


def test_no_turn_makes_or_deletes_more_logs_for_a_larger_topic() -> None:
    most_logs = TURN_UNITS // LOG_UNITS
    for count in (10, 100, 1000):
        host = Host()
        host.manager.note_metadata(host.create(1, count))
        assert host.acts == [], "nothing is done before the first turn"
        turns = []
        while host.manager.is_behind:
            before = len(host.acts)
            done = host.manager.work(0)
            turns.append(len(host.acts) - before)
            assert len(done) == turns[-1]
        assert max(turns) == min(most_logs, count)
        assert sum(turns) == count == len(host.manager.replicas)
        host.delete(list(host.manager.replicas))
        host.manager.note_metadata(list(host.manager.replicas))
        while host.manager.is_behind:
            before = len(host.acts)
            host.manager.work(0)
            assert len(host.acts) - before <= most_logs
        assert host.manager.replicas == {}


def test_no_turn_moves_more_leaders_for_a_larger_topic() -> None:
    host = Host()
    keys = host.create(1, 1000)
    follow_all(host.manager, keys, 0)
    host.create(1, 1000, leader=2, epoch=1)
    host.manager.note_metadata(keys)
    turns = []
    while host.manager.is_behind:
        turns.append(len(host.manager.work(0)))
    assert (max(turns), sum(turns)) == (TURN_UNITS, 1000)
    assert not any(replica.is_leader for replica in host.manager.replicas.values())
    assert [len(fetcher) for fetcher in host.manager.fetchers.values()] == [1000]


def test_a_change_of_a_broker_is_looked_at_in_steps() -> None:
    host = Host()
    follow_all(host.manager, host.create(1, 1000), 0)
    host.image.brokers[2] = replace(host.image.brokers[2], is_fenced=True)
    host.manager.note_metadata([])
    assert host.manager.is_behind
    assert len(host.manager.work(0)) == TURN_UNITS


def test_what_is_here_does_not_wait_for_logs_that_are_made() -> None:
    host = Host()
    (old,) = host.create(2, 1)
    follow_all(host.manager, [old], 0)
    host.manager.note_metadata(host.create(1, 100))
    host.create(2, 1, leader=2, epoch=1)
    host.manager.note_metadata([old])
    assert old in host.manager.work(0, 1)
    assert not host.manager.replicas[old].is_leader


@pytest.mark.parametrize(("old", "new"), [(1, 2), (2, 1)])
def test_a_topic_goes_before_its_successor_of_the_same_name_comes(old: int, new: int) -> None:
    """Directories have the names of topics: the other order would delete the successor's logs."""
    host = Host()
    gone = host.create(old, 3)
    follow_all(host.manager, gone, 0)
    host.acts.clear()
    host.delete(gone)
    host.manager.note_metadata([*host.create(new, 3), *gone])
    follow_all(host.manager, [], 0)
    assert [act for act, _ in host.acts] == ["drop"] * 3 + ["open"] * 3


def test_a_topic_that_is_deleted_before_its_logs_are_made_makes_none() -> None:
    host = Host()
    keys = host.create(1, 100)
    host.manager.note_metadata(keys)
    host.manager.work(0)
    opened = len(host.acts)
    host.delete(keys)
    follow_all(host.manager, keys, 0)
    assert [act for act, _ in host.acts] == ["open"] * opened + ["drop"] * opened
    assert not host.manager.is_behind_in(keys[0][0])


def test_a_partition_waits_once_and_in_its_last_place() -> None:
    queue = MetadataQueue()
    a, b, c = ((uuid.UUID(int=number), 0) for number in (1, 2, 3))
    for key, presence in (
        (a, Presence.COMES),
        (b, Presence.STAYS),
        (c, Presence.GOES),
        (a, Presence.GOES),
        (b, Presence.STAYS),
    ):
        queue.put(key, presence)
    assert (len(queue), queue.has_topic(a[0])) == (3, True)
    assert [queue.take() for _ in range(4)] == [c, a, b, None]
    assert (len(queue), queue.has_topic(a[0])) == (0, False)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), LogError(E.KAFKA_STORAGE_ERROR, "full")])
def test_a_log_that_the_disk_refuses_holds_no_other_up_and_is_tried_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host()
    keys = host.create(1, 3)
    refused = [keys[0], keys[0]]

    def open_log(key: PartitionKey) -> SimulatedLog:
        if key in refused:
            refused.remove(key)
            raise error
        return host._open(key)

    host.manager._open_log = open_log
    follow_all(host.manager, keys, 0)
    assert set(host.manager.replicas) == {keys[1], keys[2]}
    assert "will be tried again" in caplog.text
    for expected in (2, 3):
        host.manager.tick(0)
        follow_all(host.manager, [], 0)
        assert len(host.manager.replicas) == expected
    host.manager.tick(0)
    assert not host.manager.is_behind
