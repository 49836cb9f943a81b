"""Who becomes leader: the rules one by one."""

import uuid
from collections.abc import Callable

import pytest

from kafkaprod.broker.controller.elections import elect, elect_preferred, move_leader
from kafkaprod.broker.metadata.image import PartitionImage, RecoveryState
from kafkaprod.broker.metadata.records import LEADER_UNCHANGED, PartitionChangeRecord


def partition(isr: tuple[int, ...], leader: int, replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionImage:
    return PartitionImage(uuid.UUID(int=1), 0, replicas, isr, leader, 4, 9)


def active(*brokers: int) -> Callable[[int], bool]:
    return lambda broker_id: broker_id in brokers


def shown(record: PartitionChangeRecord | None) -> tuple[list[int] | None, int] | None:
    return None if record is None else (record.isr, record.leader)


@pytest.mark.parametrize(
    ("isr", "leader", "leaving", "up", "expected"),
    [
        ((1, 2, 3), 1, 1, (2, 3), ([2, 3], 2)),  # the next replica in sync leads
        ((1, 3), 1, 1, (2, 3), ([3], 3)),  # a replica out of sync is passed over
        ((1, 2, 3), 1, 3, (1, 2), ([1, 2], LEADER_UNCHANGED)),  # a shrink leaves leader and epoch
        ((1,), 1, 1, (2, 3), (None, -1)),  # the last member stays in the ISR, without a leader
        ((1, 2), 1, 1, (3,), ([2], -1)),  # the only successor is down
        ((1,), -1, None, (1, 2, 3), (None, 1)),  # it came back
        ((1, 2), 1, None, (1, 2), None),  # nothing to do
    ],
)
def test_clean_elections(
    isr: tuple[int, ...], leader: int, leaving: int | None, up: tuple[int, ...], expected: tuple[object, int] | None
) -> None:
    assert shown(elect(partition(isr, leader), active(*up), leaving=leaving)) == expected


def test_a_leader_out_of_the_isr_does_not_stay() -> None:
    assert shown(elect(partition((2, 3), 1), active(1, 2, 3))) == (None, 2)


def test_an_unclean_election_leads_alone_and_recovers() -> None:
    record = elect(partition((1,), 1), active(2, 3), leaving=1, may_be_unclean=True)
    assert record is not None
    assert (record.isr, record.leader, record.leader_recovery_state) == ([2], 2, RecoveryState.RECOVERING)


def test_a_clean_leader_comes_before_an_unclean_one() -> None:
    record = elect(partition((1, 3), 1), active(2, 3), leaving=1, may_be_unclean=True)
    assert shown(record) == ([3], 3)


def test_preferred_and_chosen_leaders_must_be_in_sync_and_active() -> None:
    assert shown(elect_preferred(partition((1, 2), 2), active(1, 2))) == (None, 1)
    assert elect_preferred(partition((2, 3), 2), active(1, 2, 3)) is None
    assert move_leader(partition((1, 2), 1), 2, active(1)) is None
