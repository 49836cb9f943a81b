"""The log of a coordinator: who may append, and which answers wait for the replicas."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkaprod.broker.calls.purgatory import Purgatory
from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.cluster.coordinator_log import COMMIT_TIMEOUT_MS, ReplicatedCoordinatorLog
from kafkaprod.broker.storage.log.log_appends import AppendResult
from kafkaprod.protocol.error_codes import ErrorCode as E
from kafkaprod.protocol.messages.heartbeat import HeartbeatResponse
from kafkaprod.structs import TopicPartition

PARTITION = TopicPartition("__consumer_offsets", 0)
END_OFFSET = 5


class Rig:
    """A coordinator's log that ends at offset 5, which the replicas have; calls of the loop are made at once."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.error = E.NONE
        self.appended: list[int] = []
        self.replica = SimpleNamespace(
            is_leader=True, leader_epoch=3, append_error=lambda acks: self.error, advance_high_watermark=lambda: None
        )
        self.stored = SimpleNamespace(
            log_end_offset=END_OFFSET, high_watermark=END_OFFSET, append_internal=self._append
        )
        self.purgatory = Purgatory(lambda: None)
        broker = SimpleNamespace(
            clock=SimpleNamespace(now_ms=lambda: self.now_ms),
            purgatory=self.purgatory,
            post=lambda call: call(),
            run_control=lambda call: call(),
        )
        self.log = ReplicatedCoordinatorLog(
            cast(Any, broker), PARTITION, cast(Any, self.stored), cast(Any, self.replica)
        )

    def append(self) -> None:
        self.log.append_internal(bytearray(), 0)

    def moved(self) -> None:
        """Let what waits look again."""
        self.purgatory.notify(PARTITION)
        self.purgatory.run(self.now_ms)

    def _append(self, records: Any, epoch: int, token: object) -> AppendResult:
        self.appended.append(epoch)
        self.stored.log_end_offset += 1
        return AppendResult(self.stored.log_end_offset - 1, self.stored.log_end_offset - 1, -1, 0, False)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_it_appends_in_the_epoch_in_which_it_was_loaded(rig: Rig) -> None:
    rig.append()
    assert (rig.appended, rig.log.appended_offset) == ([3], END_OFFSET + 1)


def test_it_refuses_to_append_with_too_few_replicas(rig: Rig) -> None:
    rig.error = E.NOT_ENOUGH_REPLICAS
    with pytest.raises(RequestRefusedError) as refused:
        rig.append()
    assert (refused.value.code, rig.appended) == (E.COORDINATOR_NOT_AVAILABLE, [])


@pytest.mark.parametrize("change", [{"is_leader": False}, {"leader_epoch": 4}])
def test_it_refuses_to_append_once_another_one_coordinates(rig: Rig, change: dict[str, Any]) -> None:
    vars(rig.replica).update(change)
    with pytest.raises(RequestRefusedError) as refused:
        rig.append()
    assert (refused.value.code, rig.appended) == (E.NOT_COORDINATOR, [])


def test_an_outcome_is_known_when_the_replicas_have_the_last_record(rig: Rig) -> None:
    assert rig.log.outcome(END_OFFSET) is E.NONE
    assert rig.log.outcome(END_OFFSET + 1) is None


@pytest.mark.parametrize("change", [{"is_leader": False}, {"leader_epoch": 4}])
def test_what_the_replicas_have_is_no_outcome_once_another_one_coordinates(rig: Rig, change: dict[str, Any]) -> None:
    vars(rig.replica).update(change)
    assert rig.log.outcome(END_OFFSET) is E.NOT_COORDINATOR


def _hold(rig: Rig) -> list[Any]:
    answers: list[Any] = []
    rig.log.hold(HeartbeatResponse(), lambda error: HeartbeatResponse(error_code=error), answers.append)
    return answers


def test_an_answer_goes_out_when_the_replicas_have_what_it_shows(rig: Rig) -> None:
    assert len(_hold(rig)) == 1, "nothing was written"
    rig.append()
    answers = _hold(rig)
    rig.moved()
    assert answers == []
    rig.stored.high_watermark += 1
    rig.moved()
    assert [answer.error_code for answer in answers] == [E.NONE]


def test_an_answer_becomes_a_refusal_when_another_one_coordinates_or_the_time_is_over(rig: Rig) -> None:
    rig.append()
    answers = _hold(rig)
    rig.now_ms = COMMIT_TIMEOUT_MS
    rig.purgatory.run(rig.now_ms)
    assert [answer.error_code for answer in answers] == [E.COORDINATOR_NOT_AVAILABLE]
    answers = _hold(rig)
    rig.replica.is_leader = False
    rig.moved()
    assert [answer.error_code for answer in answers] == [E.NOT_COORDINATOR]


def test_a_call_waits_for_the_replicas_and_is_not_made_by_one_that_was_replaced(rig: Rig) -> None:
    calls: list[str] = []
    rig.append()
    rig.log.when_replicated(lambda: calls.append("replicated"))
    rig.moved()
    assert calls == []
    rig.stored.high_watermark += 1
    rig.moved()
    assert calls == ["replicated"]
    rig.append()
    rig.log.when_replicated(lambda: calls.append("of the one before"))
    rig.replica.leader_epoch += 1
    rig.stored.high_watermark += 1
    rig.moved()
    assert calls == ["replicated"]
