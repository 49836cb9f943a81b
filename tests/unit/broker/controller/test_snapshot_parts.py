"""A broker that lacks what the controller's log has no more: a snapshot comes in parts, and the log behind it."""

from __future__ import annotations

import uuid

import pytest

from kafkaprod.broker.controller import channels
from kafkaprod.broker.controller.channels import BrokerChannel
from kafkaprod.broker.controller.wire import EncodedBatches, slice_of, slice_request
from kafkaprod.broker.metadata.follower import MetadataFollower, MetadataSlice, SliceAnswer
from kafkaprod.broker.metadata.image_records import records_of
from kafkaprod.broker.metadata.log import MetadataBatch, MetadataLog, MetadataSnapshot
from kafkaprod.broker.metadata.records import (
    NoOpRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.replicate_metadata import ReplicateMetadataRequest

KEPT, GONE = uuid.UUID(int=1), uuid.UUID(int=2)
EPOCH = 3
"""The epoch of the controller, and that of its records."""


def topic(name: str, topic_id: uuid.UUID) -> list[TopicRecord | PartitionRecord]:
    partition = PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1)
    return [TopicRecord(name=name, topic_id=topic_id), partition]


class Pair:
    """A controller's channel to a broker, and the broker; slices travel as requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(channels, "MAX_SLICE_RECORDS", 2)
        self.log = MetadataLog()
        self.controller = MetadataFollower()  # its image is the controller's
        self.broker = MetadataFollower()
        self.registered_at = -1
        self.channel = BrokerChannel(1, 0)
        self.encoded: EncodedBatches = {}
        self.changed: set[tuple[uuid.UUID, int]] = set()
        self.parts: list[tuple[int, int]] = []
        self.now_ms = 0

    def append(self, *records: object) -> None:
        batch = MetadataBatch(self.log.end_offset, EPOCH, tuple(records))  # type: ignore[arg-type]
        self.log.append(batch)
        for delta, record in enumerate(batch.records):
            self.controller.image.apply(batch.base_offset + delta, record)
        self.channel.wake(self.now_ms)

    def register(self) -> None:
        """Register the broker's process, in a channel of its own."""
        self.registered_at = self.log.end_offset
        self.append(RegisterBrokerRecord(broker_id=1, broker_epoch=self.registered_at, incarnation_id=KEPT))
        self.channel = BrokerChannel(1, self.registered_at)

    def take_snapshot(self) -> MetadataSnapshot:
        records = tuple(records_of(self.controller.image))
        return MetadataSnapshot(self.log.end_offset, self.log.last_epoch, records)

    def send(self) -> MetadataSlice | None:
        sent = self.channel.next_slice(self.log, EPOCH, self.log.end_offset, self.now_ms, self.take_snapshot)
        if sent is not None and sent.part is not None:
            self.parts.append((sent.part.first, len(sent.batches[0].records)))
        return sent

    def deliver(self, sent: MetadataSlice) -> SliceAnswer:
        request = ReplicateMetadataRequest.decode(bytes(slice_request(sent, self.encoded).encode(0)), 0)
        answer, changed = self.broker.receive(slice_of(request), self.registered_at)
        self.changed |= changed
        return answer

    def run(self) -> None:
        for _ in range(100):
            sent = self.send()
            if sent is None or (sent.part is None and not sent.batches):
                return
            self.channel.on_answer(sent, self.deliver(sent), self.now_ms)
        raise AssertionError("the broker does not catch up")

    def check(self) -> None:
        assert vars(self.broker.image) == vars(self.controller.image) | {
            "settings_offset": self.broker.image.settings_offset
        }
        assert (self.broker.log.end_offset, self.broker.log.last_epoch) == (self.log.end_offset, EPOCH)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    pair = Pair(monkeypatch)
    pair.append(NoOpRecord())
    pair.append(*topic("gone", GONE))
    pair.append(*topic("kept", KEPT))
    return pair


def test_new_broker_gets_a_snapshot_in_parts_and_what_came_meanwhile(pair: Pair) -> None:
    pair.log.forget()
    pair.register()
    pair.log.forget()
    first = pair.send()
    assert first is not None
    pair.append(NoOpRecord())
    pair.channel.on_answer(first, pair.deliver(first), 0)
    assert pair.broker.image.end_offset == 0, "a part of a snapshot is not shown"
    pair.run()
    assert pair.parts == [(0, 2), (2, 2), (4, 1)]
    assert pair.changed == {(GONE, 0), (KEPT, 0)}
    pair.check()
    pair.append(NoOpRecord())
    pair.run()
    pair.check()


def test_broker_that_lags_behind_the_start_of_the_log_loses_what_was_removed_meanwhile(pair: Pair) -> None:
    pair.register()
    pair.run()
    assert pair.parts == []
    read_before = pair.broker.image.partitions
    pair.append(RemoveTopicRecord(topic_id=GONE))
    pair.append(NoOpRecord())
    pair.log.forget()
    pair.changed.clear()
    pair.run()
    assert pair.changed == {(GONE, 0), (KEPT, 0)}
    assert (GONE, 0) in read_before
    pair.check()


def test_part_that_is_lost_or_comes_twice_changes_nothing(pair: Pair) -> None:
    pair.register()
    pair.log.forget()
    first = pair.send()
    assert first is not None
    pair.deliver(first)  # its answer is lost
    pair.channel.on_lost(0)
    pair.now_ms = channels.RETRY_MS
    again = pair.send()
    assert again == first
    pair.channel.on_answer(first, SliceAnswer(ErrorCode.NONE, 0, -1), pair.now_ms)  # an answer to an older slice
    assert pair.send() is None
    pair.channel.on_answer(again, pair.deliver(again), pair.now_ms)
    pair.run()
    pair.check()


def test_process_that_lost_the_first_parts_gets_them_again(pair: Pair) -> None:
    pair.register()
    pair.log.forget()
    first = pair.send()
    assert first is not None
    pair.channel.on_answer(first, pair.deliver(first), 0)
    pair.broker = MetadataFollower()
    second = pair.send()
    assert second is not None
    answer = pair.deliver(second)
    assert answer.error == ErrorCode.OFFSET_OUT_OF_RANGE
    pair.channel.on_answer(second, answer, 0)
    pair.run()
    pair.check()


def test_parts_of_two_snapshots_are_not_mixed(pair: Pair) -> None:
    pair.register()
    pair.log.forget()
    first = pair.send()
    assert first is not None
    pair.channel.on_answer(first, pair.deliver(first), 0)
    pair.append(NoOpRecord())
    pair.log.forget()
    pair.channel = BrokerChannel(1, pair.registered_at)  # of a controller that started again
    pair.run()
    pair.check()


def test_snapshot_of_less_than_the_broker_has_is_passed_over(pair: Pair) -> None:
    pair.register()
    pair.run()
    pair.log.forget()
    pair.channel = BrokerChannel(1, pair.registered_at)
    pair.changed.clear()
    pair.run()
    assert pair.parts
    assert pair.changed == set()
    pair.check()


def test_broker_with_a_snapshot_takes_the_log_from_its_start_again(pair: Pair) -> None:
    pair.register()
    whole = pair.log.batches()
    pair.log.forget()
    pair.run()
    repeated = MetadataSlice(EPOCH, pair.registered_at, 0, -1, pair.log.end_offset, whole)
    assert pair.deliver(repeated).error == ErrorCode.NONE
    pair.check()


def test_nothing_is_applied_before_the_registration(pair: Pair) -> None:
    pair.log.forget()
    pair.run()
    assert pair.broker.image.end_offset == 0
    pair.register()
    pair.run()
    pair.check()
