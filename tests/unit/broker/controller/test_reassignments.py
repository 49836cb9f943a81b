"""Partitions move to other brokers: replicas join, then the old ones leave."""

from __future__ import annotations

import pytest

from kafkaprod.broker.metadata.image import PartitionImage
from kafkaprod.protocol.error_codes import ErrorCode as E
from kafkaprod.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.support.cluster.controller import Rig


class MovingRig(Rig):
    """With a fourth broker, and the partition on 1, 2 and 3."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs[4] = self.register(4).broker_epoch
        assert not self.beat(4).is_fenced

    def move(self, *replicas: int) -> E:
        error: E = self.reassign("t", 0, replicas or None).error_code
        return error


@pytest.fixture
def rig() -> MovingRig:
    return MovingRig()


def state(partition: PartitionImage) -> tuple[tuple[int, ...], ...]:
    return partition.replicas, partition.isr, partition.adding, partition.removing


def test_a_replica_is_exchanged_once_the_new_one_is_in_sync(rig: MovingRig) -> None:
    assert rig.move(4, 2, 3) == E.NONE
    assert state(rig.partition) == ((4, 2, 3, 1), (1, 2, 3), (4,), (1,))
    assert (rig.partition.leader, rig.partition.leader_epoch) == (1, 0), "nobody has left"
    assert rig.propose(1, 2, 3, 4) == E.NEW_LEADER_ELECTED, "the rest comes with the metadata"
    assert state(rig.partition) == ((4, 2, 3), (2, 3, 4), (), ())
    assert (rig.partition.leader, rig.partition.leader_epoch) == (4, 1)


def test_the_leader_stays_if_it_may_but_in_a_new_epoch(rig: MovingRig) -> None:
    rig.move(1, 4)
    assert rig.propose(1, 2, 3, 4) == E.NEW_LEADER_ELECTED
    assert state(rig.partition) == ((1, 4), (1, 4), (), ())
    assert (rig.partition.leader, rig.partition.leader_epoch) == (1, 1), "fetches of 2 and 3 are refused now"


def test_proposals_that_complete_nothing_are_as_always(rig: MovingRig) -> None:
    rig.move(4, 2, 3)
    assert rig.propose(1, 2) == E.NONE
    assert rig.partition.adding == (4,)


@pytest.mark.parametrize(
    ("replicas", "after", "leader"),
    [((3, 1, 2), (3, 1, 2), 1), ((2, 3), (2, 3), 2), ((1,), (1,), 1), ((1, 2, 3), (1, 2, 3), 1)],
)
def test_what_needs_no_new_replica_is_complete_at_once(
    rig: MovingRig, replicas: tuple[int, ...], after: tuple[int, ...], leader: int
) -> None:
    assert rig.move(*replicas) == E.NONE
    assert (rig.partition.replicas, rig.partition.adding, rig.partition.removing) == (after, (), ())
    assert rig.partition.leader == leader
    assert set(rig.partition.isr) == set(after)


def test_a_reassignment_is_cancelled(rig: MovingRig) -> None:
    assert rig.move() == E.NO_REASSIGNMENT_IN_PROGRESS
    rig.move(4, 2)
    assert rig.move() == E.NONE
    assert state(rig.partition) == ((2, 1, 3), (1, 2, 3), (), ())
    assert (rig.partition.leader, rig.partition.leader_epoch) == (1, 1)


def test_another_one_takes_its_place(rig: MovingRig) -> None:
    rig.move(4, 2, 3)
    rig.move(1, 2, 4)
    assert state(rig.partition) == ((1, 2, 4, 3), (1, 2, 3), (4,), (3,))


@pytest.mark.parametrize("replicas", [(1, 1), (1, 9)])
def test_wrong_replicas_are_refused(rig: MovingRig, replicas: tuple[int, ...]) -> None:
    before = rig.partition
    assert rig.move(*replicas) == E.INVALID_REPLICA_ASSIGNMENT
    assert rig.partition == before


def test_a_partition_that_is_not_there(rig: MovingRig) -> None:
    for name, index in (("t", 7), ("other", 0)):
        assert rig.reassign(name, index, (1,)).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_of_one_request_are_answered_by_index(rig: MovingRig) -> None:
    rig.create("two", (1, 2), (1, 2), (1, 2))
    wanted = [
        ReassignablePartition(partition_index=index, replicas=replicas)
        for index, replicas in ((2, [3, 4]), (0, [9]), (1, None))
    ]
    topics = [ReassignableTopic(name=name, partitions=wanted) for name in ("two", "other")]
    answer = rig.request(AlterPartitionReassignmentsRequest(topics=topics))
    found = [
        (each.name, [(part.partition_index, part.error_code) for part in each.partitions]) for each in answer.responses
    ]
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert found == [
        ("two", [(2, E.NONE), (0, E.INVALID_REPLICA_ASSIGNMENT), (1, E.NO_REASSIGNMENT_IN_PROGRESS)]),
        ("other", [(2, unknown), (0, unknown), (1, unknown)]),
    ]
    image = rig.controller.context.image
    two = image.partitions_of_topic(image.topic_ids["two"])
    assert [partition.adding for partition in two] == [(), (), (3, 4)]


def test_no_replica_in_sync_may_be_lost(rig: MovingRig) -> None:
    rig.propose(1)
    assert rig.move(2, 3) == E.NONE
    assert rig.partition.removing == (1,), "it leaves once another is in sync"
    assert rig.propose(1, 2) == E.NEW_LEADER_ELECTED
    assert state(rig.partition) == ((2, 3), (2,), (), ())
    assert rig.partition.leader == 2


def test_a_new_controller_knows_of_it(rig: MovingRig) -> None:
    rig.move(4, 2, 3)
    rig.create("other", (1,))
    assert {partition.adding for partition in rig.controller.context.image.partitions.values()} == {(4,), ()}
