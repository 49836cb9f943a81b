"""A broker's copy of the metadata log: what it takes, and what it refuses."""

import uuid

from kafkaprod.broker.metadata.follower import MetadataFollower, MetadataSlice
from kafkaprod.broker.metadata.log import MetadataBatch
from kafkaprod.broker.metadata.records import NoOpRecord, PartitionRecord, TopicRecord
from kafkaprod.protocol.error_codes import ErrorCode

TOPIC_ID = uuid.UUID(int=7)
FIRST = MetadataBatch(0, 1, (NoOpRecord(), TopicRecord(name="t", topic_id=TOPIC_ID)))
SECOND = MetadataBatch(2, 1, (PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1),))


def slice_of(
    *batches: MetadataBatch, after: tuple[int, int] = (0, -1), commit: int = 99, epoch: int = 1
) -> MetadataSlice:
    return MetadataSlice(epoch, 5, *after, commit, batches)


def test_slices_are_applied_once_and_in_order() -> None:
    follower = MetadataFollower()
    assert follower.receive(slice_of(FIRST), 5)[0].end_offset == 2
    answer, changed = follower.receive(slice_of(FIRST, SECOND), 5)
    assert (answer.error, answer.end_offset) == (ErrorCode.NONE, 3)
    assert changed == {(TOPIC_ID, 0)}


def test_what_is_not_committed_is_kept_and_not_applied() -> None:
    follower = MetadataFollower()
    follower.receive(slice_of(FIRST, SECOND, commit=2), 5)
    assert (follower.log.end_offset, follower.image.end_offset) == (3, 2)
    _, changed = follower.receive(slice_of(after=(3, 1), commit=3), 5)
    assert changed == {(TOPIC_ID, 0)}


def test_a_gap_is_refused_with_the_end_of_the_log() -> None:
    follower = MetadataFollower()
    answer, _ = follower.receive(slice_of(SECOND, after=(2, 1)), 5)
    assert (answer.error, answer.end_offset, answer.end_epoch) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0, -1)


def test_an_older_controller_and_another_registration_are_refused() -> None:
    follower = MetadataFollower()
    follower.receive(slice_of(FIRST, epoch=4), 5)
    assert follower.receive(slice_of(SECOND, after=(2, 1), epoch=3), 5)[0].error == ErrorCode.STALE_CONTROLLER_EPOCH
    assert follower.receive(slice_of(SECOND, after=(2, 1), epoch=4), 6)[0].error == ErrorCode.STALE_BROKER_EPOCH


def test_an_uncommitted_tail_of_an_older_controller_is_replaced() -> None:
    follower = MetadataFollower()
    follower.receive(slice_of(FIRST, SECOND, commit=2), 5)
    newer = MetadataBatch(2, 2, (NoOpRecord(),))
    answer, _ = follower.receive(slice_of(newer, after=(2, 1), epoch=2, commit=3), 5)
    assert (answer.error, answer.end_offset, answer.end_epoch) == (ErrorCode.NONE, 3, 2)
    assert follower.image.partitions == {}
