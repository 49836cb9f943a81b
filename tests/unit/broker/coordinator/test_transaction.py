"""The rules of one transactional id: every event in every state, epochs and their end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kafkaprod.broker.coordinator import transaction as rules
from kafkaprod.broker.coordinator.transaction import (
    LAST_EPOCH,
    TRANSITIONS,
    TV1,
    TV2,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
    Transition,
)
from kafkaprod.errors import IllegalStateError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.structs import TopicPartition

NOW_MS = 1_700_000_000_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
S = TransactionState
CURRENT = ProducerIdAndEpoch(4000, 5)
NEW_ID = 4001


def new_id() -> int:
    return NEW_ID


def no_new_id() -> int:
    raise AssertionError("no producer id is needed")


def in_state(state: TransactionState, epoch: int = 5, **changes: object) -> Transaction:
    has_partitions = state not in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
    transaction = Transaction("tx", 4000, epoch, 60_000, NOW_MS, state, frozenset({T0} if has_partitions else ()))
    start_ms = -1 if state is S.EMPTY else NOW_MS
    return replace(transaction, start_ms=start_ms, last_epoch=epoch - 1, **changes)  # type: ignore[arg-type]


def init(now: Transaction, given: ProducerIdAndEpoch | None, level: int = 2) -> Transition:
    return rules.init(now, given, 30_000, NOW_MS + 1, level, new_id)


def end(now: Transaction, is_commit: bool, version: int, given: ProducerIdAndEpoch = CURRENT) -> Transition:
    return rules.end(now, given, is_commit, version, NOW_MS + 1, no_new_id)


# -- every event in every state ----------------------------------------------------------------------------------------

FENCED, BAD, BUSY, UNKNOWN = 90, 48, 51, 49
LIVE_STATES = (S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
COMMIT, ABORT = True, False
# event -> what happens in each of LIVE_STATES: an error code, the next state, or None for success without a change
EXPECTED: dict[str, tuple[int | TransactionState | None, ...]] = {
    "init": (S.EMPTY, BUSY, BUSY, BUSY, S.EMPTY, S.EMPTY),
    "init as the present producer": (S.EMPTY, BUSY, BUSY, BUSY, S.EMPTY, S.EMPTY),
    "init again after a lost answer": (S.EMPTY, FENCED, BUSY, BUSY, S.EMPTY, S.EMPTY),
    "init with an old epoch": (FENCED, FENCED, BUSY, BUSY, FENCED, FENCED),
    "init with another id": (FENCED, FENCED, FENCED, FENCED, FENCED, FENCED),
    "add": (S.ONGOING, S.ONGOING, BUSY, BUSY, S.ONGOING, S.ONGOING),
    "add what is there": (S.ONGOING, None, BUSY, BUSY, S.ONGOING, S.ONGOING),
    "add with another id": (UNKNOWN,) * 6,
    "add with an old epoch": (FENCED,) * 6,
    "commit 4": (BAD, S.PREPARE_COMMIT, BUSY, BAD, None, BAD),
    "abort 4": (BAD, S.PREPARE_ABORT, BAD, BUSY, BAD, None),
    "commit 4 with an old epoch": (FENCED,) * 6,
    "commit 5": (BAD, S.PREPARE_COMMIT, BUSY, BUSY, BAD, BAD),
    "abort 5": (S.PREPARE_ABORT, S.PREPARE_ABORT, BUSY, BUSY, S.PREPARE_ABORT, S.PREPARE_ABORT),
    "commit 5 of a replaced producer": (FENCED,) * 6,
    "abort 5 of a replaced producer": (FENCED,) * 6,
    "commit 5 again": (FENCED, FENCED, BUSY, BAD, None, BAD),
    "abort 5 again": (FENCED, FENCED, BAD, BUSY, BAD, None),
    "commit 5 with an older epoch": (FENCED,) * 6,
    "commit 5 again, two epochs later": (FENCED,) * 6,
    "abort 5 again, two epochs later": (FENCED,) * 6,
    "commit 5 again, three epochs later": (FENCED,) * 6,
    "commit 5 of an epoch to come": (FENCED,) * 6,
    "commit 5 with another id": (UNKNOWN,) * 6,
}
OLD, OLDER, OTHER = ProducerIdAndEpoch(4000, 4), ProducerIdAndEpoch(4000, 3), ProducerIdAndEpoch(9, 5)
EVENTS: dict[str, Callable[[Transaction], Transition]] = {
    "init": lambda now: init(now, None),
    "init as the present producer": lambda now: init(now, CURRENT),
    "init again after a lost answer": lambda now: init(now, OLD),
    "init with an old epoch": lambda now: init(now, OLDER),
    "init with another id": lambda now: init(now, OTHER),
    "add": lambda now: rules.add(now, CURRENT, [T1], TV2, NOW_MS + 1),
    "add what is there": lambda now: rules.add(now, CURRENT, [T0], TV2, NOW_MS + 1),
    "add with another id": lambda now: rules.add(now, OTHER, [T0], TV2, NOW_MS + 1),
    "add with an old epoch": lambda now: rules.add(now, OLD, [T0], TV2, NOW_MS + 1),
    "commit 4": lambda now: end(now, COMMIT, TV1),
    "abort 4": lambda now: end(now, ABORT, TV1),
    "commit 4 with an old epoch": lambda now: end(now, COMMIT, TV1, OLD),
    "commit 5": lambda now: end(now, COMMIT, TV2),
    "abort 5": lambda now: end(now, ABORT, TV2),
    "commit 5 of a replaced producer": lambda now: end(now, COMMIT, TV2, OLD),
    "abort 5 of a replaced producer": lambda now: end(now, ABORT, TV2, OLD),
    "commit 5 again": lambda now: end(replace(now, client_version=TV2), COMMIT, TV2, OLD),
    "abort 5 again": lambda now: end(replace(now, client_version=TV2), ABORT, TV2, OLD),
    "commit 5 with an older epoch": lambda now: end(now, COMMIT, TV2, OLDER),
    "commit 5 again, two epochs later": lambda now: end(replace(now, client_version=TV2), COMMIT, TV2, OLDER),
    "abort 5 again, two epochs later": lambda now: end(replace(now, client_version=TV2), ABORT, TV2, OLDER),
    "commit 5 again, three epochs later": lambda now: end(
        replace(now, client_version=TV2), COMMIT, TV2, ProducerIdAndEpoch(4000, 2)
    ),
    "commit 5 of an epoch to come": lambda now: end(
        replace(now, client_version=TV2), COMMIT, TV2, ProducerIdAndEpoch(4000, 6)
    ),
    "commit 5 with another id": lambda now: end(now, COMMIT, TV2, OTHER),
}
EVERYTHING = [
    (event, state, outcome)
    for event, outcomes in EXPECTED.items()
    for state, outcome in zip(LIVE_STATES, outcomes, strict=True)
]


@pytest.mark.parametrize(("event", "state", "outcome"), EVERYTHING, ids=lambda value: str(value))
def test_event_in_state(event: str, state: TransactionState, outcome: int | TransactionState | None) -> None:
    transition = EVENTS[event](in_state(state))
    if isinstance(outcome, TransactionState):
        assert (transition.error, transition.after and transition.after.state) == (0, outcome)
        assert transition.after is not None
        assert transition.after.last_update_ms == NOW_MS + 1
    elif outcome is None:
        assert (transition.error, transition.after) == (0, None)
    else:
        assert transition.error == outcome
        assert transition.after is None or event.startswith("init")


def test_events_are_those_of_the_table() -> None:
    assert EVENTS.keys() == EXPECTED.keys()


@pytest.mark.parametrize("state", list(S))
@pytest.mark.parametrize("target", list(S))
def test_only_listed_transitions_are_possible(state: TransactionState, target: TransactionState) -> None:
    now = in_state(state)
    if target in TRANSITIONS[state]:
        assert rules._move(now, target, NOW_MS).state is target
    else:
        with pytest.raises(IllegalStateError, match=f"'tx' cannot go from {state.title} to {target.title}"):
            rules._move(now, target, NOW_MS)


def test_names_are_those_kafka_shows() -> None:
    assert [state.title for state in S] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


# -- init --------------------------------------------------------------------------------------------------------------


def test_first_init_of_an_id_gives_epoch_0() -> None:
    fresh = Transaction("tx", 4000, -1, 60_000, NOW_MS)
    for given in (None, ProducerIdAndEpoch(7, 3)):
        transition = init(fresh, given)
        assert transition.answer == (4000, 0)
        assert transition.after is not None
        assert (transition.after.timeout_ms, transition.after.start_ms, transition.after.partitions) == (
            30_000,
            -1,
            frozenset(),
        )


def test_repeated_init_gives_the_same_epoch_once_more() -> None:
    first = init(in_state(S.COMPLETE_COMMIT), CURRENT)
    assert first.answer == (4000, 6)
    assert first.after is not None
    assert init(first.after, CURRENT).answer == (4000, 6)
    assert init(first.after, first.answer).answer == (4000, 7)


def test_init_over_an_open_transaction_aborts_it_and_costs_two_epochs_in_all() -> None:
    transition = init(in_state(S.ONGOING), None)
    assert transition.error == BUSY
    assert transition.after is not None
    assert (transition.after.state, transition.after.epoch, transition.after.last_epoch) == (S.PREPARE_ABORT, 6, 5)
    completed = rules.complete(transition.after, NOW_MS)
    assert init(completed, None).answer == (4000, 7)
    assert init(completed, CURRENT).answer == (4000, 6)  # the owner itself; it was not fenced


def test_init_over_an_open_transaction_at_level_1_fences_its_owner() -> None:
    transition = init(in_state(S.ONGOING), None, level=1)
    assert transition.after is not None
    assert (transition.after.epoch, transition.after.last_epoch, transition.after.client_version) == (6, -1, 0)
    completed = rules.complete(transition.after, NOW_MS)
    assert init(completed, CURRENT, level=1).error == FENCED
    assert init(completed, None, level=1).answer == (4000, 7)


def test_fence_that_was_not_written_raises_the_epoch_once_only() -> None:
    now = rules.fence_unwritten(in_state(S.ONGOING), 1)
    assert (now.state, now.epoch, now.is_fence_unwritten) == (S.ONGOING, 6, True)
    assert rules.fence_unwritten(now, 1) == now
    assert end(now, COMMIT, TV1).error == FENCED
    fenced = rules.fence(now, NOW_MS, 1, no_new_id)
    assert (fenced.state, fenced.epoch, fenced.is_fence_unwritten) == (S.PREPARE_ABORT, 6, False)
    assert rules.fence_unwritten(in_state(S.ONGOING), 2) == in_state(S.ONGOING)


def test_init_at_the_last_epoch_gives_a_new_producer_id() -> None:
    now = in_state(S.COMPLETE_COMMIT, LAST_EPOCH)
    given = ProducerIdAndEpoch(4000, LAST_EPOCH)
    transition = init(now, given)
    assert transition.answer == (NEW_ID, 0)
    assert transition.after is not None
    assert transition.after.previous_producer_id == 4000
    assert init(transition.after, given).answer == (NEW_ID, 0)  # its answer was lost
    assert init(now, None).answer == (NEW_ID, 0)


# -- epochs of TV2 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_end_of_tv2_gives_each_transaction_its_own_epoch(is_commit: bool) -> None:
    transition = end(in_state(S.ONGOING), is_commit, TV2)
    assert transition.answer == (4000, 6)
    assert transition.after is not None
    assert (transition.after.epoch, transition.after.client_version, transition.after.partitions) == (6, 2, {T0})
    completed = rules.complete(transition.after, NOW_MS)
    assert completed.identity == transition.answer
    assert completed.partitions == frozenset()
    assert end(completed, is_commit, TV2).answer == (4000, 6)


def test_end_of_tv1_keeps_the_epoch() -> None:
    transition = end(in_state(S.ONGOING), True, TV1)
    assert transition.after is not None
    assert (transition.answer, transition.after.client_version) == ((4000, 5), 0)


@pytest.mark.parametrize("is_commit", [True, False])
def test_end_of_tv1_is_no_answer_to_the_producer_of_the_epoch_before(is_commit: bool) -> None:
    transition = end(replace(in_state(S.ONGOING), client_version=TV2), is_commit, TV1)
    assert transition.after is not None
    assert end(rules.complete(transition.after, NOW_MS), is_commit, TV2, OLD).error == FENCED


def test_abort_of_nothing_raises_the_epoch() -> None:
    transition = end(in_state(S.COMPLETE_COMMIT), False, TV2)
    assert transition.after is not None
    assert (transition.answer, transition.after.start_ms, transition.after.partitions) == (
        (4000, 6),
        NOW_MS + 1,
        frozenset(),
    )


def test_end_at_the_last_epoch_moves_to_a_new_producer_id() -> None:
    given = ProducerIdAndEpoch(4000, LAST_EPOCH)
    transition = rules.end(in_state(S.ONGOING, LAST_EPOCH), given, True, TV2, NOW_MS, new_id)
    assert transition.answer == (NEW_ID, 0)
    assert transition.after is not None
    assert (transition.after.producer_id, transition.after.epoch) == (4000, 32_767)  # of the markers
    assert rules.end(transition.after, given, True, TV2, NOW_MS, no_new_id).error == BUSY
    completed = rules.complete(transition.after, NOW_MS)
    assert (completed.identity, completed.previous_producer_id) == ((NEW_ID, 0), 4000)
    assert rules.end(completed, given, True, TV2, NOW_MS, no_new_id).answer == (NEW_ID, 0)
    assert init(completed, given).answer == (NEW_ID, 0)


# -- partitions and time -----------------------------------------------------------------------------------------------


def test_adding_keeps_the_start_and_the_other_partitions() -> None:
    began = rules.add(in_state(S.COMPLETE_ABORT), CURRENT, [T0], TV2, NOW_MS + 5).after
    assert began is not None
    added = rules.add(began, CURRENT, [T1], TV2, NOW_MS + 9).after
    assert added is not None
    assert (added.partitions, added.start_ms, added.client_version) == ({T0, T1}, NOW_MS + 5, 2)


def test_verification_names_the_partitions_that_are_missing() -> None:
    assert rules.verify(in_state(S.ONGOING), CURRENT, [T0, T1]) == {T0: 0, T1: 120}
    assert rules.verify(in_state(S.COMPLETE_COMMIT), CURRENT, [T0]) == {T0: 120}
    assert rules.verify(in_state(S.PREPARE_COMMIT), CURRENT, [T0]) == {T0: BUSY}
    assert rules.verify(in_state(S.ONGOING), OLD, [T0]) == {T0: FENCED}
    assert rules.verify(in_state(S.ONGOING), OTHER, [T0]) == {T0: UNKNOWN}


@pytest.mark.parametrize("state", LIVE_STATES)
def test_only_open_transactions_become_overdue(state: TransactionState) -> None:
    now = in_state(state)
    assert not rules.is_overdue(now, NOW_MS + 60_000)
    assert rules.is_overdue(now, NOW_MS + 60_001) == (state is S.ONGOING)
    assert not rules.is_overdue(replace(now, timeout_ms=rules.NO_TIMEOUT_MS), NOW_MS + 2**40)


@pytest.mark.parametrize("state", LIVE_STATES)
def test_only_ids_at_rest_expire(state: TransactionState) -> None:
    now = in_state(state)
    is_at_rest = state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
    assert not rules.is_expired(now, NOW_MS + 99, 100)
    assert rules.is_expired(now, NOW_MS + 100, 100) == is_at_rest


def test_what_an_end_does_equals_no_error_code() -> None:
    done = {
        outcome
        for table in (rules.END_V1, rules.END_V2, rules.END_V2_RETRY)
        for pair in table.values()
        for outcome in pair
    }
    others = {outcome for outcome in done if not isinstance(outcome, ErrorCode)}
    assert len(others) == 3
    assert not any(outcome == code for outcome in others for code in ErrorCode)
