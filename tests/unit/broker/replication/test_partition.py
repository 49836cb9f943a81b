"""A leader and a follower's fetch: errors in order, where logs part, the high watermark and the ISR."""

import uuid
from typing import Any

import pytest

from kafkaprod.broker.metadata.image import PartitionImage
from kafkaprod.broker.replication.fetcher import FetchAnswer, Fetcher, FetchRequest
from kafkaprod.broker.replication.partition import (
    Eligibility,
    FetchOutcome,
    FollowerFetch,
    PartitionReplica,
    ReplicaSettings,
)
from kafkaprod.protocol.error_codes import ErrorCode as E
from kafkaprod.protocol.messages.alter_partition import BrokerState, PartitionOutcome, PartitionProposal
from tests.simulation.logs import SimulatedLog
from tests.support.clock import ManualClock

TOPIC_ID = uuid.UUID(int=1)


def image(leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (1, 2), partition_epoch: int = 0) -> PartitionImage:
    return PartitionImage(TOPIC_ID, 0, (1, 2, 3), isr, leader, epoch, partition_epoch)


def replica(log: SimulatedLog, first: PartitionImage, min_isr: int = 1) -> PartitionReplica:
    eligibility = Eligibility(lambda _: True, lambda _: 10)
    made = PartitionReplica(1, log, ReplicaSettings(lag_ms=100), eligibility, lambda: min_isr, first)
    made.apply(first, 0)
    return made


def fetch(offset: int, *, follower: int = 2, epoch: int = 0, last: int = -1, broker_epoch: int = 10) -> FollowerFetch:
    return FollowerFetch(follower, broker_epoch, epoch, offset, last)


def empty_log() -> SimulatedLog:
    return SimulatedLog(ManualClock())


def filled(log: SimulatedLog, count: int, epoch: int = 0) -> SimulatedLog:
    for value in range(count):
        log.append_as_leader(epoch, 0, -1, value)
    return log


def log_with_epochs() -> SimulatedLog:
    """Epochs 0 from 0, 3 from 2, 4 from 8, 7 from 13, 9 from 14; the log ends at 17."""
    log = empty_log()
    for epoch, count in ((0, 2), (3, 6), (4, 5), (7, 1), (9, 3)):
        filled(log, count, epoch)
    return log


@pytest.mark.parametrize(
    ("last", "offset", "expected"),
    [
        (2, 5, (0, 2)),
        (0, 4, (0, 2)),
        (6, 6, (4, 13)),
        (5, 9, (4, 13)),
        (10, 18, (10, 17)),
        (0, 2, None),
        (7, 14, None),
        (9, 17, None),
        (10, 17, None),
    ],
)
def test_where_logs_part(last: int, offset: int, expected: tuple[int, int] | None) -> None:
    leader = replica(log_with_epochs(), image(epoch=10))
    outcome = leader.fetch(fetch(offset, epoch=10, last=last), 0)
    assert (outcome.error, outcome.diverging) == (E.NONE, expected)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (fetch(0, epoch=-1), E.FENCED_LEADER_EPOCH),
        (fetch(0, epoch=1), E.UNKNOWN_LEADER_EPOCH),
        (fetch(0, follower=9), E.UNKNOWN_LEADER_EPOCH),
        (fetch(0, broker_epoch=9), E.NOT_LEADER_OR_FOLLOWER),
        (fetch(9), E.OFFSET_OUT_OF_RANGE),
        (fetch(2, last=11), E.OFFSET_OUT_OF_RANGE),
    ],
)
def test_fetch_errors_change_nothing(request_: FollowerFetch, error: E) -> None:
    leader = replica(filled(empty_log(), 3), image())
    assert leader.fetch(request_, 50).error == error
    assert {state.end_offset for state in leader.followers.values()} == {-1}


def test_a_fetch_below_the_log_is_out_of_range_before_divergence() -> None:
    log = filled(empty_log(), 5)
    log.raise_log_start(3)
    assert replica(log, image()).fetch(fetch(1, last=0), 0).error == E.OFFSET_OUT_OF_RANGE


def test_the_watermark_waits_for_the_isr_and_for_who_joins() -> None:
    log = empty_log()
    leader = replica(log, image())
    filled(log, 3)
    leader.fetch(fetch(2), 0)
    assert log.high_watermark == 2
    leader.fetch(fetch(2, follower=3), 0)
    assert leader.proposal is not None
    leader.fetch(fetch(3), 0)
    assert log.high_watermark == 2, "broker 3 may be in the ISR already"
    answer = PartitionOutcome(error_code=E.INELIGIBLE_REPLICA)
    leader.on_isr_outcome(leader.proposal, answer)
    leader.advance_high_watermark()
    assert log.high_watermark == 3


def test_a_proposal_names_the_epochs_that_the_leader_knows() -> None:
    leader = replica(empty_log(), image(epoch=3, partition_epoch=5))
    leader.fetch(fetch(0, follower=3, epoch=3), 0)
    assert leader.proposal == PartitionProposal(
        leader_epoch=3,
        partition_epoch=5,
        new_isr_with_epochs=[
            BrokerState(broker_id=1),
            BrokerState(broker_id=2),
            BrokerState(broker_id=3, broker_epoch=10),
        ],
    )


def test_a_follower_below_the_epochs_start_does_not_join() -> None:
    log = filled(empty_log(), 5)
    leader = replica(log, image(epoch=3))
    leader.fetch(fetch(4, follower=3, epoch=3), 0)
    assert leader.proposal is None
    leader.fetch(fetch(5, follower=3, epoch=3), 0)
    assert leader.proposal is not None


@pytest.mark.parametrize(
    ("fetched_as", "registered_as", "joins"), [(10, 10, True), (11, 10, False), (-1, 10, False), (-1, -1, True)]
)
def test_a_follower_of_another_registration_does_not_join(fetched_as: int, registered_as: int, joins: bool) -> None:
    """The controller refuses it, too; but until then its fetches would hold the high watermark."""
    leader = replica(filled(empty_log(), 5), image())
    leader.eligibility = Eligibility(lambda _: True, lambda _: registered_as)
    leader.fetch(fetch(5, follower=3, broker_epoch=fetched_as), 0)
    assert (leader.proposal is not None) is joins


def test_a_follower_that_registers_again_joins_with_what_it_fetches_then() -> None:
    active, epochs = {2}, {3: 10}
    leader = replica(filled(empty_log(), 5), image())
    leader.eligibility = Eligibility(active.__contains__, lambda broker_id: epochs.get(broker_id, 10))
    leader.fetch(fetch(5, follower=3), 0)
    active.add(3)
    epochs[3] = 11  # its process has started again, and may have lost what it had
    leader.propose_joins(0)
    assert leader.proposal is None
    leader.note_standing(3, 0)
    assert leader.proposal is None
    leader.fetch(fetch(5, follower=3, broker_epoch=11), 0)
    assert leader.proposal is not None
    assert [member.broker_epoch for member in leader.proposal.new_isr_with_epochs] == [-1, -1, 11]


@pytest.mark.parametrize(
    ("offset", "later_ms", "joins"),
    [(5, 0, True), (5, 100, True), (5, 101, False), (4, 0, False)],
)
def test_a_follower_that_is_made_active_joins_without_another_fetch(offset: int, later_ms: int, joins: bool) -> None:
    active = {2}
    leader = replica(filled(empty_log(), 5), image(epoch=3))
    leader.eligibility = Eligibility(active.__contains__, lambda _: 10)
    leader.fetch(fetch(offset, follower=3, epoch=3), 1000)
    assert leader.proposal is None
    active.add(3)
    leader.propose_joins(1000 + later_ms)
    assert (leader.proposal is not None) is joins


def test_slow_followers_leave_and_idle_ones_stay() -> None:
    log = filled(empty_log(), 1)
    leader = replica(log, image())
    leader.fetch(fetch(1), 10)
    leader.propose_shrink(1000)
    assert leader.proposal is None, "it has everything"
    filled(log, 1)
    leader.propose_shrink(1000)
    assert leader.proposal is not None
    assert [member.broker_id for member in leader.proposal.new_isr_with_epochs] == [1]
    assert leader.maximal_isr == {1, 2}


def test_an_answer_keeps_the_proposal_that_follows_it() -> None:
    leader = replica(filled(empty_log(), 1), image())
    leader.fetch(fetch(1, follower=3), 0)
    proposal = leader.proposal
    assert proposal is not None
    leader.on_isr_outcome(proposal, PartitionOutcome(leader_id=1, isr=[1, 2, 3], partition_epoch=1))
    filled(leader.log, 1)  # type: ignore[arg-type]
    leader.fetch(fetch(2), 500)
    leader.propose_shrink(500)
    later = leader.proposal
    assert later is not None
    leader.apply(image(isr=(1, 2, 3), partition_epoch=1), 500)  # the metadata comes behind the answer
    assert leader.proposal is later


def test_acks_all_needs_the_minimum_before_and_after() -> None:
    leader = replica(empty_log(), image(isr=(1,)), min_isr=2)
    assert leader.append_error(-1) == E.NOT_ENOUGH_REPLICAS
    assert leader.append_error(1) == E.NONE
    assert replica(empty_log(), image(leader=2)).append_error(1) == E.NOT_LEADER_OR_FOLLOWER


def answered(fetcher: Fetcher, now_ms: int, **outcome: Any) -> FetchRequest:
    request = fetcher.next_request(now_ms)
    assert request is not None
    (key,) = request.questions
    fetcher.on_answer(request, FetchAnswer({key: FetchOutcome(**({"error": E.NONE} | outcome))}), now_ms)
    return request


def follower_of(log: SimulatedLog, epoch: int) -> Fetcher:
    fetcher = Fetcher(2, 1, lambda: 10, retry_ms=50, idle_ms=10)
    fetcher.add((TOPIC_ID, 0), log, epoch)
    return fetcher


@pytest.mark.parametrize(("diverging", "end"), [((4, 11), 11), ((4, 15), 13), ((3, 6), 6), ((5, 16), 13)])
def test_a_follower_cuts_where_the_logs_part(diverging: tuple[int, int], end: int) -> None:
    log = log_with_epochs()
    answered(follower_of(log, 12), 0, diverging=diverging)
    assert log.end_offset == end


def test_batches_of_a_newer_epoch_are_left_out() -> None:
    source = filled(filled(empty_log(), 1, 0), 1, 5)
    log = empty_log()
    answered(follower_of(log, 3), 0, batches=tuple(source.batches), high_watermark=2, log_start_offset=0)
    assert (log.end_offset, log.high_watermark) == (1, 1)


@pytest.mark.parametrize(
    ("watermark", "start", "expected"),
    [(4, 2, (4, 2)), (2, 0, (3, 1)), (-1, -1, (3, 1)), (9, 9, (5, 5)), (3, 1, (3, 1))],
)
def test_a_followers_watermark_and_log_start_only_rise(watermark: int, start: int, expected: tuple[int, int]) -> None:
    """A new leader knows a lower watermark for a while; what consumers may have read stays readable."""
    log = filled(empty_log(), 5)
    log.raise_log_start(1)
    log.high_watermark = 3
    answered(follower_of(log, 0), 0, high_watermark=watermark, log_start_offset=start)
    assert (log.high_watermark, log.log_start_offset) == expected


def test_late_answers_and_fenced_epochs() -> None:
    log = empty_log()
    fetcher = follower_of(log, 3)
    late = fetcher.next_request(0)
    assert late is not None
    fetcher.remove((TOPIC_ID, 0))
    fetcher.add((TOPIC_ID, 0), log, 4)
    batches = tuple(filled(empty_log(), 1, 3).batches)
    fetcher.on_answer(late, FetchAnswer({(TOPIC_ID, 0): FetchOutcome(E.NONE, batches, 1, 0)}), 0)
    assert log.end_offset == 0
    answered(fetcher, 0, error=E.FENCED_LEADER_EPOCH)
    assert fetcher.next_request(10_000) is None, "until the metadata brings a higher epoch"


def test_metadata_that_an_answer_was_faster_than_changes_nothing() -> None:
    leader = replica(empty_log(), image(partition_epoch=5))
    assert not leader.apply(image(leader=2, epoch=3, isr=(2, 3), partition_epoch=4), 0)
    assert (leader.is_leader, leader.leader_epoch, leader.committed_isr) == (True, 0, (1, 2))


def test_a_proposal_ends_with_newer_metadata_and_is_made_again() -> None:
    leader = replica(empty_log(), image())
    leader.fetch(fetch(0, follower=3), 0)
    before = leader.proposal
    assert before is not None
    leader.apply(image(isr=(1,), partition_epoch=1), 0)
    assert (leader.proposal, leader.maximal_isr) == (None, {1})
    leader.fetch(fetch(0, follower=3), 0)
    assert leader.proposal is not None
    assert [member.broker_id for member in leader.proposal.new_isr_with_epochs] == [1, 3]


WAITING = [
    E.FENCED_LEADER_EPOCH,
    E.INVALID_UPDATE_VERSION,
    E.INVALID_REQUEST,
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.UNKNOWN_TOPIC_ID,
    E.NEW_LEADER_ELECTED,
]


@pytest.mark.parametrize("error", WAITING)
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_proposal_that_is_refused_for_what_the_metadata_will_say_waits_for_it_each_time(times: int, error: E) -> None:
    leader = replica(empty_log(), image(isr=(1,)))
    for number in range(times):
        leader.fetch(fetch(0, follower=2 + number % 2), 0)
        proposal = leader.proposal
        assert proposal is not None
        outcome = PartitionOutcome(error_code=error)
        assert not leader.on_isr_outcome(proposal, outcome), "not to be sent again"
        assert leader.is_waiting_for_metadata
        assert leader.proposal is proposal, "it may have been taken: who would join counts"
        leader.apply(image(isr=(1,), partition_epoch=1 + number), 0)
        assert (leader.is_waiting_for_metadata, leader.proposal) == (False, None)
    leader.fetch(fetch(0, follower=2), 0)
    assert leader.proposal is not None


@pytest.mark.parametrize("error", sorted(set(E) - {*WAITING, E.NONE, E.INELIGIBLE_REPLICA}))
def test_a_proposal_that_any_other_error_met_is_sent_again(error: E) -> None:
    leader = replica(empty_log(), image(isr=(1,)))
    leader.fetch(fetch(0), 0)
    proposal = leader.proposal
    assert proposal is not None
    assert leader.on_isr_outcome(proposal, PartitionOutcome(error_code=error))
    assert (leader.proposal, leader.is_waiting_for_metadata) == (proposal, False)


def test_an_answer_to_a_lost_request_changes_nothing() -> None:
    log = empty_log()
    fetcher = follower_of(log, 0)
    late = fetcher.next_request(0)
    assert late is not None
    assert fetcher.next_request(2000) is None
    again = fetcher.next_request(2050)
    assert again is not None
    answer = FetchAnswer({(TOPIC_ID, 0): FetchOutcome(E.NONE, tuple(filled(empty_log(), 1).batches), 1, 0)})
    fetcher.on_answer(late, answer, 2060)
    assert (log.end_offset, fetcher.next_request(2060)) == (0, None), "the other one is in flight"
    fetcher.on_answer(again, answer, 2070)
    assert log.end_offset == 1


@pytest.mark.parametrize(
    ("watermark", "min_isr", "expected"),
    [(9, 1, None), (10, 1, E.NONE), (10, 3, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND), (9, 3, None)],
)
def test_an_append_is_answered_when_the_isr_has_all_of_it(watermark: int, min_isr: int, expected: E | None) -> None:
    leader = replica(filled(empty_log(), 10), image(), min_isr)
    leader.log.high_watermark = watermark
    assert leader.produce_outcome(0, 10) == expected


def test_an_append_of_an_epoch_that_has_ended_is_refused_whatever_the_log_has() -> None:
    """What stands there now may be another record."""
    leader = replica(filled(empty_log(), 10), image())
    leader.apply(image(leader=2, epoch=1, partition_epoch=1), 0)
    assert leader.produce_outcome(0, 10) == E.NOT_LEADER_OR_FOLLOWER
    leader.apply(image(epoch=2, partition_epoch=2), 0)
    leader.log.high_watermark = 10
    assert leader.produce_outcome(0, 10) == E.NOT_LEADER_OR_FOLLOWER
    assert leader.produce_outcome(2, 10) == E.NONE


def test_a_lost_answer_is_asked_for_again_after_a_rest() -> None:
    fetcher = follower_of(empty_log(), 0)
    assert fetcher.next_request(0) is not None
    assert fetcher.next_request(1999) is None
    assert fetcher.next_request(2000) is None
    assert fetcher.next_request(2050) is not None


def replica_of(log: SimulatedLog, count: int) -> PartitionReplica:
    """A leader, 1, of so many replicas that are all in sync."""
    every = tuple(range(1, count + 1))
    first = PartitionImage(TOPIC_ID, 0, every, every, 1, 0, 0)
    made = PartitionReplica(
        1, log, ReplicaSettings(lag_ms=100), Eligibility(lambda _: True, lambda _: 10), lambda: 1, first
    )
    made.apply(first, 0)
    return made


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7])
def test_the_watermark_is_what_the_last_of_any_number_of_followers_has(count: int) -> None:
    for last in range(2, count + 1):
        log = empty_log()
        leader = replica_of(log, count)
        filled(log, 9)
        for follower in range(2, count + 1):
            leader.fetch(fetch(4 if follower == last else 8, follower=follower), 0)
        assert log.high_watermark == 4
        leader.fetch(fetch(7, follower=last), 0)
        assert log.high_watermark == 7


@pytest.mark.parametrize("count", [3, 4, 5, 7])
def test_all_followers_that_are_slow_leave_the_isr_at_once(count: int) -> None:
    log = empty_log()
    leader = replica_of(log, count)
    filled(log, 9)
    leader.fetch(fetch(9), 90)
    leader.propose_shrink(101)
    assert leader.proposal is not None
    assert [member.broker_id for member in leader.proposal.new_isr_with_epochs] == [1, 2]
