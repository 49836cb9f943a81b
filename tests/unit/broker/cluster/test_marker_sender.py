"""Markers go to the leaders of now, again and again, until each partition has its marker or refuses it for good."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkaprod.broker.cluster.marker_sender import MarkerSender
from kafkaprod.broker.coordinator.markers import Marker
from kafkaprod.protocol.error_codes import ErrorCode as E
from kafkaprod.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafkaprod.structs import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
MARKER = Marker(7, 2, True, 3, 2)


class Rig:
    """A sender; leaders answer by hand, and a pause is over when `pass_time` is called."""

    def __init__(self) -> None:
        self.leaders = {FIRST: 1, SECOND: 2}
        self.asked: list[tuple[int, list[TopicPartition], Callable[[Any], None]]] = []
        self.paused: list[Callable[[], None]] = []
        self.done: list[dict[TopicPartition, int]] = []
        self.log = SimpleNamespace(is_current=True)
        broker = SimpleNamespace(
            post=lambda call: call(),
            run_control=lambda call: call(),
            topics=SimpleNamespace(partition=self._partition),
        )
        peers = SimpleNamespace(ask_broker=self._ask, when=lambda condition, ms, then: self.paused.append(then))
        self.sender = MarkerSender(cast(Any, broker), cast(Any, peers), cast(Any, self.log))
        self.sender.send(MARKER, [FIRST, SECOND], lambda errors: self.done.append(dict(errors)))

    def answer(self, leader: int, error: E | None) -> None:
        """Answer what a leader was asked last, with an error for each partition; None: there is no answer."""
        place = next(place for place, (asked, _, _) in enumerate(self.asked) if asked == leader)
        _, keys, answered = self.asked.pop(place)
        results = [
            WritableTxnMarkerPartitionResult(partition_index=key.partition, error_code=error or 0) for key in keys
        ]
        topics = [WritableTxnMarkerTopicResult(name="orders", partitions=results)]
        markers = [WritableTxnMarkerResult(producer_id=7, topics=topics)]
        answered(None if error is None else WriteTxnMarkersResponse(markers=markers))

    def pass_time(self) -> None:
        waiting, self.paused = self.paused, []
        for call in waiting:
            call()

    def _partition(self, topic: str, index: int) -> Any:
        leader = self.leaders.get(TopicPartition(topic, index))
        return None if leader is None else SimpleNamespace(image=SimpleNamespace(leader=leader))

    def _ask(self, leader: int, request: Any, version: int, answered: Any, timeout_ms: int) -> None:
        assert isinstance(request, WriteTxnMarkersRequest)
        keys = [TopicPartition(topic.name, i) for topic in request.markers[0].topics for i in topic.partition_indexes]
        self.asked.append((leader, keys, answered))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_each_leader_gets_its_partitions_and_all_outcomes_come_together(rig: Rig) -> None:
    assert [(leader, keys) for leader, keys, _ in rig.asked] == [(1, [FIRST]), (2, [SECOND])]
    rig.answer(1, E.NONE)
    assert rig.done == []
    rig.answer(2, E.NONE)
    assert rig.done == [{FIRST: E.NONE, SECOND: E.NONE}]


@pytest.mark.parametrize("error", [None, E.NOT_LEADER_OR_FOLLOWER, E.REQUEST_TIMED_OUT, E.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_marker_that_is_not_written_is_sent_again_to_the_leader_of_now(rig: Rig, error: E | None) -> None:
    """A leader whose metadata is behind does not know the topic yet: it will."""
    rig.answer(1, E.NONE)
    rig.answer(2, error)
    assert rig.done == []
    rig.leaders[SECOND] = 3
    rig.pass_time()
    assert [(leader, keys) for leader, keys, _ in rig.asked] == [(3, [SECOND])]
    rig.answer(3, E.NONE)
    assert rig.done == [{FIRST: E.NONE, SECOND: E.NONE}]


@pytest.mark.parametrize("error", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
def test_a_refusal_for_good_is_an_outcome(rig: Rig, error: E) -> None:
    rig.answer(1, E.NONE)
    rig.answer(2, error)
    assert rig.done == [{FIRST: E.NONE, SECOND: error}]


def test_a_partition_that_is_deleted_needs_no_marker(rig: Rig) -> None:
    rig.answer(1, E.NONE)
    rig.answer(2, E.NOT_LEADER_OR_FOLLOWER)
    del rig.leaders[SECOND]
    rig.pass_time()
    assert rig.done == [{FIRST: E.NONE, SECOND: E.UNKNOWN_TOPIC_OR_PARTITION}]


def test_a_partition_without_a_leader_is_waited_for(rig: Rig) -> None:
    rig.answer(1, E.NONE)
    rig.answer(2, None)
    rig.leaders[SECOND] = -1
    rig.pass_time()
    assert (rig.asked, rig.done) == ([], [])
    rig.leaders[SECOND] = 2
    rig.pass_time()
    rig.answer(2, E.NONE)
    assert rig.done == [{FIRST: E.NONE, SECOND: E.NONE}]


def test_a_coordinator_that_was_replaced_sends_no_more(rig: Rig) -> None:
    rig.answer(1, None)
    rig.answer(2, None)
    rig.log.is_current = False
    rig.pass_time()
    assert (rig.asked, rig.paused, rig.done) == ([], [], [])
