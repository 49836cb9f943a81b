"""A broker's copy of the metadata log: what it takes, and what it refuses."""

import uuid

from kafkaprod.broker.metadata.follower import MetadataFollower, MetadataSlice
from kafkaprod.broker.metadata.log import MetadataBatch
from kafkaprod.broker.metadata.records import NoOpRecord, PartitionRecord, TopicRecord
from kafkaprod.protocol.error_codes import ErrorCode

TOPIC_ID = uuid.UUID(int=7)
REGISTERED_AT = 0  # a broker's epoch is the offset of its registration
FIRST = MetadataBatch(0, 1, (NoOpRecord(), TopicRecord(name="t", topic_id=TOPIC_ID)))
SECOND = MetadataBatch(2, 1, (PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1),))


def slice_of(
    *batches: MetadataBatch, after: tuple[int, int] = (0, -1), commit: int = 99, epoch: int = 1
) -> MetadataSlice:
    return MetadataSlice(epoch, REGISTERED_AT, *after, commit, batches)


def test_slices_are_applied_once_and_in_order() -> None:
    follower = MetadataFollower()
    assert follower.receive(slice_of(FIRST), REGISTERED_AT)[0].end_offset == 2
    answer, changed = follower.receive(slice_of(FIRST, SECOND), REGISTERED_AT)
    assert (answer.error, answer.end_offset) == (ErrorCode.NONE, 3)
    assert changed == {(TOPIC_ID, 0)}


def test_what_is_not_committed_is_kept_and_not_applied() -> None:
    follower = MetadataFollower()
    follower.receive(slice_of(FIRST, SECOND, commit=2), REGISTERED_AT)
    assert (follower.log.end_offset, follower.image.end_offset) == (3, 2)
    _, changed = follower.receive(slice_of(after=(3, 1), commit=3), REGISTERED_AT)
    assert changed == {(TOPIC_ID, 0)}


def test_a_gap_is_refused_with_the_end_of_the_log() -> None:
    follower = MetadataFollower()
    answer, _ = follower.receive(slice_of(SECOND, after=(2, 1)), REGISTERED_AT)
    assert (answer.error, answer.end_offset, answer.end_epoch) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0, -1)


def test_an_older_controller_and_another_registration_are_refused() -> None:
    follower = MetadataFollower()
    follower.receive(slice_of(FIRST, epoch=4), REGISTERED_AT)
    assert (
        follower.receive(slice_of(SECOND, after=(2, 1), epoch=3), REGISTERED_AT)[0].error
        == ErrorCode.STALE_CONTROLLER_EPOCH
    )
    assert follower.receive(slice_of(SECOND, after=(2, 1), epoch=4), 6)[0].error == ErrorCode.STALE_BROKER_EPOCH


def test_an_uncommitted_tail_of_an_older_controller_is_replaced() -> None:
    follower = MetadataFollower()
    follower.receive(slice_of(FIRST, SECOND, commit=2), REGISTERED_AT)
    newer = MetadataBatch(2, 2, (NoOpRecord(),))
    answer, _ = follower.receive(slice_of(newer, after=(2, 1), epoch=2, commit=3), REGISTERED_AT)
    assert (answer.error, answer.end_offset, answer.end_epoch) == (ErrorCode.NONE, 3, 2)
    assert follower.image.partitions == {}


def test_nothing_is_applied_before_the_registration_itself() -> None:
    """What was decided before it is of a former process, which may have led with records that this one lost."""
    follower = MetadataFollower()
    _, changed = follower.receive(slice_of(FIRST, SECOND)._replace(broker_epoch=3), 3)
    assert (follower.log.end_offset, follower.image.end_offset, changed) == (3, 0, frozenset())
    registration = MetadataBatch(3, 1, (NoOpRecord(),))
    _, changed = follower.receive(slice_of(registration, after=(3, 1))._replace(broker_epoch=3), 3)
    assert (follower.image.end_offset, changed) == (4, {(TOPIC_ID, 0)})


def test_an_uncommitted_registration_is_waited_for() -> None:
    follower = MetadataFollower()
    follower.receive(slice_of(FIRST, SECOND, commit=2)._replace(broker_epoch=2), 2)
    assert follower.image.end_offset == 0
    follower.receive(slice_of(after=(3, 1), commit=3)._replace(broker_epoch=2), 2)
    assert follower.image.end_offset == 3


def test_slices_that_came_before_the_answer_to_the_registration_are_applied_with_it() -> None:
    follower = MetadataFollower()
    answer, changed = follower.receive(slice_of(FIRST, SECOND), -1)
    assert (answer.error, answer.end_offset, changed) == (ErrorCode.NONE, 3, frozenset())
    assert follower.catch_up(2) == {(TOPIC_ID, 0)}
    assert follower.image.end_offset == 3
    assert follower.catch_up(2) == frozenset()
