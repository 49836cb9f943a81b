"""The controller and log directories: where new replicas go, and what changes when a directory fails or moves."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import pytest

from kafkaprod.broker.controller.events import BrokerGone
from kafkaprod.broker.controller.history import sentences
from kafkaprod.broker.controller.log_directories import DirectoryChoice
from kafkaprod.broker.controller.partitions import ElectionType
from kafkaprod.broker.metadata.image import ClusterImage, PartitionImage, PartitionKey
from kafkaprod.broker.metadata.image_records import image_of, records_of
from kafkaprod.broker.metadata.records import LOST, MIGRATING, UNASSIGNED
from kafkaprod.broker.replication.directory_assignments import DirectoryAssignments
from kafkaprod.protocol.error_codes import ErrorCode as E
from kafkaprod.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.support.cluster.controller import Rig


def directory(broker_id: int, number: int) -> uuid.UUID:
    return uuid.UUID(int=1000 * broker_id + number)


class Disks(Rig):
    """Three brokers with two log directories each, and a topic on all of them in their second ones."""

    def __init__(self) -> None:
        super().__init__()
        self.delete("t")
        for broker_id in (1, 2, 3):
            self.stop(broker_id)
            self.start(broker_id, 1, 2)
        assert self.create("t", (1, 2, 3), (1, 2, 3)).error_code == E.NONE

    @property
    def image(self) -> ClusterImage:
        return self.controller.context.image

    @property
    def partition(self) -> PartitionImage:
        """The one in the second directories."""
        (found,) = (each for each in self.image.partitions.values() if each.index == 1)
        return found

    def stop(self, broker_id: int) -> None:
        self.ask(BrokerGone, broker_id=broker_id, incarnation_id=self.image.brokers[broker_id].incarnation_id)

    def start(self, broker_id: int, *numbers: int, **fields: Any) -> None:
        incarnation = self.image.brokers[broker_id].incarnation_id.int % 100 + 1
        log_dirs = [directory(broker_id, number) for number in numbers]
        answer = self.register(broker_id, incarnation, log_dirs=log_dirs, **fields)
        assert answer.error_code == E.NONE
        self.epochs[broker_id] = answer.broker_epoch
        assert not self.beat(broker_id).is_fenced

    def lose(self, broker_id: int, *numbers: int) -> Any:
        return self.beat(broker_id, offline_log_dirs=[directory(broker_id, number) for number in numbers])

    def assign(self, broker_id: int, to: uuid.UUID, key: PartitionKey | None = None, epoch: int | None = None) -> Any:
        assignments = DirectoryAssignments(broker_id)
        assignments.want(key or self.partition.key, to)
        request = assignments.next_request(self.epochs.get(broker_id, 0) if epoch is None else epoch, self.now_ms)
        assert request is not None
        response = self.request(request)
        results = [each for place in response.directories for topic in place.topics for each in topic.partitions]
        return response.error_code or results[0].error_code


@pytest.fixture
def disks() -> Disks:
    return Disks()


def test_new_replicas_go_where_the_fewest_are(disks: Disks) -> None:
    disks.grow("t", 6)
    for broker_id in (1, 2, 3):
        found = Counter(partition.directory_of(broker_id) for partition in disks.image.partitions.values())
        assert found == {directory(broker_id, 1): 3, directory(broker_id, 2): 3}
    disks.create("other", (1,), (1,), (1,))
    disks.delete("t")
    sizes = disks.image.directory_sizes
    assert sorted(sizes[directory(1, number)] for number in (1, 2)) == [1, 2]
    disks.create("last", (1,))
    assert [sizes[directory(1, number)] for number in (1, 2)] == [2, 2]


def test_brokers_that_name_no_directories_get_none() -> None:
    rig = Rig()
    assert rig.partition.directories == ()
    assert DirectoryChoice(rig.controller.context.image).of((1, 2)) == []


def test_a_failed_directory_leaves_the_isr_and_another_leads(disks: Disks) -> None:
    assert disks.partition.leader == 1
    assert disks.lose(1, 2).error_code == E.NONE
    assert (disks.partition.isr, disks.partition.leader) == ((2, 3), 2)
    kept = next(each for each in disks.image.partitions.values() if each.index == 0)
    assert (kept.isr, kept.leader) == ((1, 2, 3), 1)
    end = disks.controller.log.end_offset
    disks.lose(1, 2)
    assert disks.controller.log.end_offset == end, "once"


def test_a_replica_without_its_directory_neither_joins_nor_leads(disks: Disks) -> None:
    disks.lose(1, 2)
    assert disks.propose(2, 3, 1, broker_id=2) == E.INELIGIBLE_REPLICA
    wanted = [TopicPartitions(topic="t", partitions=[disks.partition.index])]
    answer = disks.request(ElectLeadersRequest(election_type=ElectionType.PREFERRED, topic_partitions=wanted))
    (topic,) = answer.replica_election_results
    (result,) = topic.partition_result
    assert (topic.topic, result.partition_id, result.error_code) == ("t", 1, E.PREFERRED_LEADER_NOT_AVAILABLE)


def test_the_last_member_of_an_isr_stays_and_leads_again_with_its_directory(disks: Disks) -> None:
    for broker_id in (2, 3):
        disks.stop(broker_id)
    disks.lose(1, 2)
    assert (disks.partition.isr, disks.partition.leader) == ((1,), -1)
    for broker_id in (2, 3):
        disks.start(broker_id, 1, 2)
    disks.stop(1)
    disks.start(1, 1)
    assert (disks.partition.isr, disks.partition.leader) == ((1,), -1), "still without its disk"
    disks.stop(1)
    disks.start(1, 1, 2)
    assert (disks.partition.isr, disks.partition.leader) == ((1,), 1)


def test_a_clean_stop_does_not_keep_a_place_whose_directory_is_gone(disks: Disks) -> None:
    epoch = disks.epochs[3]
    while not disks.beat(3, want_shut_down=True).should_shut_down:
        for broker_id in (1, 2):
            disks.beat(broker_id)
    disks.stop(3)
    disks.start(3, 1, previous_broker_epoch=epoch)
    assert disks.partition.isr == (1, 2)


def test_assignments_are_kept_and_lost_ones_leave(disks: Disks) -> None:
    assert disks.assign(2, directory(2, 1)) == E.NONE
    assert disks.partition.directories == (directory(1, 2), directory(2, 1), directory(3, 2))
    assert disks.partition.isr == (1, 2, 3)
    end = disks.controller.log.end_offset
    disks.assign(2, directory(2, 1))
    assert disks.controller.log.end_offset == end, "nothing changes"
    disks.assign(2, LOST)
    assert (disks.partition.isr, disks.partition.directory_of(2)) == ((1, 3), LOST)
    disks.assign(1, directory(9, 9))
    assert (disks.partition.isr, disks.partition.leader) == ((3,), 3)


def test_a_lost_replica_leads_again_when_it_was_found(disks: Disks) -> None:
    for broker_id in (2, 3):
        disks.stop(broker_id)
    disks.assign(1, LOST)
    assert (disks.partition.isr, disks.partition.leader) == ((1,), -1)
    disks.assign(1, directory(1, 1))
    assert (disks.partition.isr, disks.partition.leader) == ((1,), 1)


def test_assignments_that_are_refused(disks: Disks) -> None:
    key = disks.partition.key
    assert disks.assign(1, LOST, epoch=1) == E.STALE_BROKER_EPOCH
    assert disks.assign(9, LOST) == E.BROKER_ID_NOT_REGISTERED
    assert disks.assign(1, LOST, (key[0], 5)) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert disks.assign(1, LOST, (uuid.UUID(int=5), 0)) == E.UNKNOWN_TOPIC_ID
    disks.create("other", (2,))
    other = (disks.image.topic_ids["other"], 0)
    assert disks.assign(1, LOST, other) == E.NOT_LEADER_OR_FOLLOWER


def test_a_reassignment_keeps_directories_and_chooses_new_ones(disks: Disks) -> None:
    disks.create("small", (1, 2))
    key = (disks.image.topic_ids["small"], 0)
    before = disks.image.partitions[key]
    disks.reassign("small", 0, (3, 2))
    moving = disks.image.partitions[key]
    assert moving.replicas == (3, 2, 1)
    assert moving.directory_of(2) == before.directory_of(2)
    assert moving.directory_of(3) in (directory(3, 1), directory(3, 2))
    disks.reassign("small", 0, None)
    after = disks.image.partitions[key]
    assert set(zip(after.replicas, after.directories, strict=True)) == set(
        zip(before.replicas, before.directories, strict=True)
    )
    assert sum(disks.image.directory_sizes.values()) == sum(
        len(partition.directories) for partition in disks.image.partitions.values()
    )


def test_a_snapshot_has_the_directories(disks: Disks) -> None:
    disks.lose(1, 2)
    again = image_of(records_of(disks.image), disks.image.end_offset)
    assert again.brokers == disks.image.brokers
    assert again.partitions == disks.image.partitions
    assert +again.directory_sizes == +disks.image.directory_sizes


def test_directories_of_logs_without_them_are_taken_for_usable() -> None:
    image = Disks().image
    partition = next(iter(image.partitions.values()))
    for known in (MIGRATING, UNASSIGNED):
        other = PartitionImage(partition.topic_id, 0, (1, 2), (1, 2), 1, 0, 0, directories=(known, LOST))
        assert (image.is_online(other, 1), image.is_online(other, 2)) == (True, False)


def test_history_names_directories(disks: Disks) -> None:
    before = disks.controller.log.end_offset
    old = image_of(records_of(disks.image), before)
    disks.lose(1, 2)
    disks.assign(2, directory(2, 1))
    batches = [batch for batch in disks.controller.log.batches() if batch.base_offset >= before]
    lines = [line for batch in batches for line in sentences(batch, old)]
    assert lines[0] == f"broker 1 has only these log directories: {directory(1, 1)}"
    assert lines[-1].endswith(f"log directories {directory(1, 2)}, {directory(2, 1)}, {directory(3, 2)}")
