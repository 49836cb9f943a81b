"""A channel to a broker: which slice of the metadata log it sends, and when."""

from __future__ import annotations

from kafkaprod.broker.controller.channels import KEEP_ALIVE_MS, MAX_SLICE_RECORDS, RETRY_MS, BrokerChannel
from kafkaprod.broker.metadata.follower import MetadataSlice, SliceAnswer
from kafkaprod.broker.metadata.log import MetadataBatch, MetadataLog, MetadataSnapshot
from kafkaprod.broker.metadata.records import NoOpRecord
from kafkaprod.protocol.error_codes import ErrorCode


class Rig:
    """A channel, and the log that it sends."""

    def __init__(self) -> None:
        self.log = MetadataLog()
        self.channel = BrokerChannel(1, 7)

    def grow(self, count: int = 1, now_ms: int = 0) -> None:
        self.log.append(MetadataBatch(self.log.end_offset, 0, tuple(NoOpRecord() for _ in range(count))))
        self.channel.wake(now_ms)

    def next(self, now_ms: int) -> MetadataSlice | None:
        return self.channel.next_slice(self.log, 0, self.log.end_offset, now_ms, self._no_snapshot)

    def _no_snapshot(self) -> MetadataSnapshot:
        raise AssertionError("the log has all")

    def send(self, now_ms: int) -> MetadataSlice:
        sent = self.next(now_ms)
        assert sent is not None
        return sent

    def answer(self, sent: MetadataSlice, now_ms: int) -> None:
        end_offset = sent.batches[-1].end_offset if sent.batches else sent.previous_offset
        self.channel.on_answer(sent, SliceAnswer(ErrorCode.NONE, end_offset, 0), now_ms)


def test_what_the_log_gets_while_a_slice_is_in_flight_follows_its_answer() -> None:
    rig = Rig()
    rig.grow()
    first = rig.send(0)
    rig.grow(now_ms=1)
    assert rig.next(1) is None
    rig.answer(first, 2)
    assert rig.channel.next_deadline_ms() <= 2
    assert [batch.base_offset for batch in rig.send(2).batches] == [1]


def test_a_log_that_does_not_grow_is_kept_alive() -> None:
    rig = Rig()
    rig.grow()
    rig.answer(rig.send(0), 1)
    assert rig.next(KEEP_ALIVE_MS - 1) is None
    assert rig.channel.next_deadline_ms() == KEEP_ALIVE_MS
    assert rig.send(KEEP_ALIVE_MS).batches == ()


def test_slices_of_a_long_log_follow_each_other() -> None:
    rig = Rig()
    for _ in range(2):
        rig.grow(MAX_SLICE_RECORDS)
    rig.answer(rig.send(0), 1)
    assert [batch.base_offset for batch in rig.send(1).batches] == [MAX_SLICE_RECORDS]


def test_a_lost_slice_is_sent_again_after_a_rest() -> None:
    rig = Rig()
    rig.grow()
    lost = rig.send(0)
    rig.channel.on_lost(5)
    assert rig.next(5 + RETRY_MS - 1) is None
    assert rig.send(5 + RETRY_MS).batches == lost.batches


def _refuse(rig: Rig, sent: MetadataSlice, error: ErrorCode, now_ms: int) -> None:
    rig.channel.on_answer(sent, SliceAnswer(error, 0, 0), now_ms)


def test_a_broker_that_was_not_told_its_new_epoch_yet_is_asked_again() -> None:
    rig = Rig()
    rig.grow()
    early = rig.send(0)
    _refuse(rig, early, ErrorCode.STALE_BROKER_EPOCH, 3)
    assert rig.next(3 + RETRY_MS - 1) is None
    assert rig.channel.next_deadline_ms() == 3 + RETRY_MS
    assert rig.send(3 + RETRY_MS).batches == early.batches


def test_a_broker_that_follows_a_newer_controller_gets_nothing_more() -> None:
    rig = Rig()
    rig.grow()
    _refuse(rig, rig.send(0), ErrorCode.STALE_CONTROLLER_EPOCH, 3)
    rig.grow(now_ms=4)
    assert rig.next(10_000) is None
