from __future__ import annotations

import pytest

from kafkaprod.engine.transactions.offsets import GroupMetadata, OffsetAndMetadata
from kafkaprod.engine.transactions.states import State
from kafkaprod.engine.transactions.verdicts import Step
from kafkaprod.errors import (
    AuthenticationError,
    AuthorizationError,
    CommitUnknownError,
    ConfigError,
    ConnectionLostError,
    CorruptDataError,
    DeliveryFailedError,
    DeliveryTimeoutError,
    IllegalStateError,
    InvalidProducerIdMappingError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionTimeoutError,
    UnsupportedVersionError,
)
from kafkaprod.protocol.error_codes import ErrorCode, error_for
from kafkaprod.structs import TopicPartition
from tests.support.engine.coordinators import Bench, answer, offset_codes, partition_codes

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = {T0: OffsetAndMetadata(42), T1: OffsetAndMetadata(7)}
GROUP = GroupMetadata("g", 5, "m")


def test_v1_transaction_sends_these_requests_in_this_order() -> None:
    bench = Bench()
    machine = bench.machine
    call = machine.init()
    find = bench.answer_next(Step.FIND_COORDINATOR)
    assert find.node is None
    init = bench.answer_next(Step.INIT, 0, (4000, 3))
    assert init.node is not None
    assert init.node.node_id == 1
    assert bench.outcome(call) is None
    machine.begin()
    assert not machine.may_drain(T0)
    assert not machine.may_drain(T1)
    add = bench.expect(Step.ADD_PARTITIONS)
    assert add.partitions == (T0, T1)
    assert add.versions == (0, 3)
    assert not machine.may_drain(T0)
    bench.respond(add)
    assert machine.members.take_added() == [T0, T1]
    assert machine.may_drain(T0)
    assert machine.may_drain(T1)
    assert bench.next() is None
    offsets = machine.send_offsets(OFFSETS, GROUP)
    assert offsets is not None
    bench.answer_next(Step.ADD_OFFSETS)
    assert bench.answer_next(Step.FIND_COORDINATOR).group_id == "g"
    sent = bench.answer_next(Step.COMMIT_OFFSETS)
    assert sent.versions == (0, 4)
    assert bench.outcome(offsets) is None
    commit = machine.commit()
    bench.has_batches = True
    assert bench.next() is None
    bench.has_batches = False
    end = bench.answer_next(Step.END)
    assert (end.is_commit, end.versions) == (True, (0, 4))
    assert bench.outcome(commit) is None
    assert (machine.state, machine.producer_id, machine.epoch) == (State.READY, 4000, 3)
    assert bench.next() is None


@pytest.mark.parametrize("is_v2", [False, True])
def test_another_transactional_id_is_begun_like_the_first(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.init()
    machine = bench.machine
    machine.begin()
    with pytest.raises(IllegalStateError, match="a transaction is open"):
        machine.take_name("another")
    commit = machine.commit()
    assert bench.next() is None
    assert bench.outcome(commit) is None
    machine.take_name("another")
    assert (machine.state, machine.producer_id, machine.epoch) == (State.UNINITIALIZED, -1, -1)
    call = machine.init()
    assert bench.answer_next(Step.FIND_COORDINATOR).message.coordinator_keys == ["another"]  # type: ignore[attr-defined]
    init = bench.answer_next(Step.INIT, 0, (5000, 0))
    assert init.message.transactional_id == "another"  # type: ignore[attr-defined]
    assert bench.outcome(call) is None
    assert (machine.producer_id, machine.epoch) == (5000, 0)


def test_v2_transaction_adds_nothing_and_takes_the_epoch_of_its_end() -> None:
    bench = Bench(is_v2=True)
    bench.init()
    machine = bench.machine
    bench.begin(T0)
    assert machine.members.is_v2
    offsets = machine.send_offsets(OFFSETS, GROUP)
    assert offsets is not None
    bench.answer_next(Step.FIND_COORDINATOR)
    assert bench.answer_next(Step.COMMIT_OFFSETS).versions == (5, 5)
    assert bench.outcome(offsets) is None
    commit = machine.commit()
    end = bench.answer_next(Step.END, 0, (4000, 1))
    assert end.versions == (5, 5)
    assert bench.outcome(commit) is None
    assert (machine.state, machine.epoch) == (State.READY, 1)


@pytest.mark.parametrize("is_answered", [True, False])
def test_v2_transaction_of_offsets_alone_is_ended_at_its_coordinator(is_answered: bool) -> None:
    """The group's coordinator has added itself, perhaps also where its answer was lost."""
    bench = Bench(is_v2=True)
    bench.init((4000, 0))
    bench.machine.begin()
    offsets = bench.machine.send_offsets(OFFSETS, GROUP)
    assert offsets is not None
    bench.answer_next(Step.FIND_COORDINATOR)
    if is_answered:
        bench.answer_next(Step.COMMIT_OFFSETS)
        assert bench.outcome(offsets) is None
        call = bench.machine.commit()
    else:
        bench.expect(Step.COMMIT_OFFSETS)
        bench.lose()
        bench.machine.time_out(offsets, 1)
        call = bench.machine.abort()
    assert bench.answer_next(Step.END, 0, (4000, 1)).is_commit is is_answered
    assert bench.outcome(call) is None
    assert bench.machine.epoch == 1


def test_v2_end_with_a_new_producer_id_is_taken() -> None:
    bench = Bench(is_v2=True)
    bench.init((4000, 32_766))
    bench.begin(T0)
    bench.machine.commit()
    bench.answer_next(Step.END, 0, (4001, 0))
    assert (bench.machine.producer_id, bench.machine.epoch) == (4001, 0)


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("is_commit", [False, True])
def test_transaction_without_records_ends_without_a_request(is_v2: bool, is_commit: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.init()
    bench.begin()
    call = bench.machine.commit() if is_commit else bench.machine.abort()
    assert bench.next() is None
    assert bench.outcome(call) is None
    assert bench.machine.state is State.READY


def test_v1_lost_answer_to_added_partitions_is_repeated_while_aborting() -> None:
    """The coordinator may have opened the transaction: to skip the end would leave it open, to send it could be 48."""
    bench = Bench()
    bench.init()
    bench.machine.begin()
    bench.machine.may_drain(T0)
    bench.expect(Step.ADD_PARTITIONS)
    bench.lose()
    call = bench.machine.abort()
    bench.answer_next(Step.FIND_COORDINATOR)
    assert bench.answer_next(Step.ADD_PARTITIONS).partitions == (T0,)
    assert not bench.answer_next(Step.END).is_commit
    bench.answer_next(Step.BUMP, 0, (4000, 1))
    assert bench.outcome(call) is None


@pytest.mark.parametrize("code", [14, 15, 16, 51])
def test_v1_refusal_after_a_lost_answer_does_not_say_that_nothing_was_added(code: int) -> None:
    bench = Bench()
    bench.init()
    bench.machine.begin()
    bench.machine.may_drain(T0)
    bench.expect(Step.ADD_PARTITIONS)
    bench.lose()
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.answer_next(Step.ADD_PARTITIONS, code)
    bench.machine.abort()
    while (request := bench.next()) is not None and request.step is Step.FIND_COORDINATOR:
        bench.machine.on_response(answer(request), request.versions[1], bench.now_ms)
    assert request is not None
    assert request.step is Step.ADD_PARTITIONS
    assert request.partitions == (T0,)


@pytest.mark.parametrize("code", [14, 15, 16, 51])
def test_v1_refused_group_after_a_lost_answer_may_have_been_added(code: int) -> None:
    bench = Bench()
    bench.init()
    bench.machine.begin()
    offsets = bench.machine.send_offsets(OFFSETS, GROUP)
    assert offsets is not None
    bench.expect(Step.ADD_OFFSETS)
    bench.lose()
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.answer_next(Step.ADD_OFFSETS, code)
    bench.machine.time_out(offsets, 1)
    bench.machine.settle(offsets)
    bench.machine.abort()
    while (request := bench.next()) is not None and request.step is Step.FIND_COORDINATOR:
        bench.machine.on_response(answer(request), request.versions[1], bench.now_ms)
    assert request is not None
    assert request.step is Step.ADD_OFFSETS


def test_v1_lost_answer_to_an_added_group_is_repeated_while_aborting() -> None:
    bench = Bench()
    bench.init()
    bench.machine.begin()
    offsets = bench.machine.send_offsets(OFFSETS, GROUP)
    assert offsets is not None
    bench.expect(Step.ADD_OFFSETS)
    bench.lose()
    assert isinstance(bench.machine.time_out(offsets, 1), TransactionTimeoutError)
    call = bench.machine.abort()
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.answer_next(Step.ADD_OFFSETS)
    bench.answer_next(Step.END)
    bench.answer_next(Step.BUMP, 0, (4000, 1))
    assert bench.outcome(call) is None


@pytest.mark.parametrize("code", [7, 14, 15, 16])
def test_v1_refusal_that_may_follow_a_write_does_not_say_that_nothing_was_added(code: int) -> None:
    """A coordinator that moved while it wrote: the next one has the transaction open, and it must be ended there."""
    bench = Bench()
    bench.init()
    bench.machine.begin()
    bench.machine.may_drain(T0)
    bench.answer_next(Step.ADD_PARTITIONS, code)
    call = bench.machine.abort()
    while (request := bench.next()) is not None and request.step is Step.FIND_COORDINATOR:
        bench.respond(request)
    assert request is not None
    assert (request.step, request.partitions) == (Step.ADD_PARTITIONS, (T0,))
    bench.respond(request)
    assert not bench.answer_next(Step.END).is_commit
    assert bench.outcome(call) is None


def test_v1_partitions_that_were_refused_are_not_repeated_while_aborting() -> None:
    bench = Bench()
    bench.init()
    bench.machine.begin()
    bench.machine.may_drain(T0)
    bench.answer_next(Step.ADD_PARTITIONS, 29)
    assert bench.machine.state is State.ABORTABLE_ERROR
    call = bench.machine.abort()
    assert bench.next() is None
    assert bench.outcome(call) is None
    assert bench.machine.state is State.READY


def test_refused_partitions_are_named() -> None:
    bench = Bench()
    bench.init()
    bench.machine.begin()
    bench.machine.may_drain(T0)
    bench.machine.may_drain(T1)
    add = bench.expect(Step.ADD_PARTITIONS)
    bench.machine.on_response(partition_codes(add, {T0: 55, T1: 29}), 3, 0)
    with pytest.raises(TransactionAbortableError, match=r"t\[1\].*TOPIC_AUTHORIZATION_FAILED.*'tx'.*4000") as caught:
        bench.machine.check_sending()
    assert (caught.value.code, caught.value.category) == (29, "abortable")


def test_only_offsets_that_were_refused_are_sent_again() -> None:
    bench = Bench(is_v2=True)
    bench.init()
    bench.machine.begin()
    offsets = bench.machine.send_offsets(OFFSETS, GROUP)
    assert offsets is not None
    bench.answer_next(Step.FIND_COORDINATOR)
    sent = bench.expect(Step.COMMIT_OFFSETS)
    bench.machine.on_response(offset_codes(sent, 3, T1), 5, bench.now_ms)
    again = bench.answer_next(Step.COMMIT_OFFSETS)
    assert [topic.partitions[0].partition_index for topic in again.message.topics] == [1]  # type: ignore[attr-defined]
    assert bench.outcome(offsets) is None


def test_group_that_moved_on_makes_the_transaction_abortable() -> None:
    bench = Bench(is_v2=True)
    bench.init()
    bench.machine.begin()
    offsets = bench.machine.send_offsets(OFFSETS, GROUP)
    assert offsets is not None
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.answer_next(Step.COMMIT_OFFSETS, 22)
    error = bench.outcome(offsets)
    assert isinstance(error, TransactionAbortableError)
    assert "another member" in str(error)
    assert bench.machine.state is State.ABORTABLE_ERROR


def test_empty_offsets_need_no_request_but_a_transaction() -> None:
    bench = Bench()
    bench.init()
    with pytest.raises(IllegalStateError):
        bench.machine.send_offsets({}, GROUP)
    bench.machine.begin()
    assert bench.machine.send_offsets({}, GROUP) is None


@pytest.mark.parametrize("code", [15, 16])
def test_moved_coordinator_is_found_and_asked_again(code: int) -> None:
    bench = Bench()
    bench.init()
    bench.begin(T0)
    call = bench.machine.commit()
    bench.answer_next(Step.END, code)
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.answer_next(Step.END)
    assert bench.outcome(call) is None


def test_fatal_answer_right_after_a_move_is_asked_once_more() -> None:
    bench = Bench()
    bench.init()
    bench.begin(T0)
    call = bench.machine.commit()
    bench.answer_next(Step.END, 16)
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.answer_next(Step.END, 48)
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.answer_next(Step.END, 48)
    assert isinstance(bench.outcome(call), KafkaError)
    assert bench.machine.state is State.FATAL_ERROR


def test_concurrent_transactions_are_waited_for_shortly_at_first() -> None:
    bench = Bench()
    bench.machine.init()
    bench.answer_next(Step.FIND_COORDINATOR)
    waits = []
    for _ in range(30):
        request = bench.next()
        assert request is not None
        bench.respond(request, 51)
        waits.append(bench.machine.wait_ms(bench.now_ms))
    assert waits[:7] == [20, 30, 45, 68, 101, 152, 200]
    assert set(waits[7:]) == {200, 500, 1000}
    assert waits == sorted(waits)


# -- outcomes of a commit ----------------------------------------------------------------------------------------------


def test_failed_record_stops_the_commit_before_its_end() -> None:
    bench = Bench()
    bench.init()
    bench.begin(T0)
    call = bench.machine.commit()
    bench.machine.on_batch_failed("t", 0, DeliveryTimeoutError("late"), had_sequence=False)
    error = bench.outcome(call)
    assert isinstance(error, DeliveryFailedError)
    assert error.category == "abortable"
    assert isinstance(error.__cause__, DeliveryTimeoutError)
    assert bench.next() is None
    abort = bench.machine.abort()
    assert not bench.answer_next(Step.END).is_commit
    assert bench.outcome(abort) is None
    assert bench.machine.state is State.READY


def test_timed_out_commit_goes_on_and_is_resumed() -> None:
    bench = Bench()
    bench.init()
    bench.begin(T0)
    machine = bench.machine
    call = machine.commit()
    request = bench.expect(Step.END)
    error = machine.time_out(call, 2.5)
    assert isinstance(error, CommitUnknownError)
    assert isinstance(error, TimeoutError)
    assert error.retriable
    assert "2.5 s" in str(error)
    for other in (machine.abort, machine.begin, machine.init, lambda: machine.send_offsets(OFFSETS, GROUP)):
        with pytest.raises(IllegalStateError, match="timed out and must be repeated"):
            other()
    bench.respond(request)
    with pytest.raises(IllegalStateError, match="must be repeated"):
        machine.begin()
    assert machine.commit() is call
    assert bench.outcome(call) is None
    machine.begin()


def test_call_of_another_thread_excludes_all_others() -> None:
    bench = Bench()
    bench.init()
    bench.begin(T0)
    bench.machine.commit()
    for other in (bench.machine.abort, bench.machine.commit, bench.machine.begin):
        with pytest.raises(IllegalStateError, match=r"commit_transaction\(\) is running"):
            other()


@pytest.mark.parametrize("is_commit", [True, False])
def test_v1_lost_end_that_is_answered_later_gets_a_newer_epoch(is_commit: bool) -> None:
    """Else the lost one, if it arrives late, ends the next transaction: all have the same epoch (KAFKA-17754)."""
    bench = Bench()
    bench.init()
    bench.begin(T0)
    call = bench.machine.commit() if is_commit else bench.machine.abort()
    bench.expect(Step.END)
    bench.lose()
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.answer_next(Step.END)
    assert bench.machine.outcome == ("committed" if is_commit else "not committed")
    bench.answer_next(Step.BUMP, 0, (4000, 1))
    assert bench.outcome(call) is None
    assert bench.machine.outcome is None


def test_v2_lost_commit_that_is_answered_later_is_committed() -> None:
    bench = Bench(is_v2=True)
    bench.init()
    bench.begin(T0)
    call = bench.machine.commit()
    bench.expect(Step.END)
    bench.lose()
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.answer_next(Step.END, 0, (4000, 1))
    assert bench.outcome(call) is None
    assert bench.machine.state is State.READY


@pytest.mark.parametrize("code", [47, 49, 90])
def test_lost_commit_that_is_refused_later_is_unknown(code: int) -> None:
    bench = Bench()
    bench.init()
    bench.begin(T0)
    call = bench.machine.commit()
    bench.expect(Step.END)
    bench.lose()
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.answer_next(Step.END, code)
    error = bench.outcome(call)
    assert isinstance(error, ProducerFencedError | InvalidProducerIdMappingError)
    assert error.outcome == "unknown"
    assert "may have been committed" in str(error)


@pytest.mark.parametrize("code", [47, 49, 90])
def test_commit_that_never_left_and_is_refused_later_is_not_committed(code: int) -> None:
    bench = Bench()
    bench.init()
    bench.begin(T0)
    call = bench.machine.commit()
    bench.expect(Step.END)
    bench.machine.on_no_answer(ConnectionLostError("no connection"), bench.now_ms, was_sent=False)
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.answer_next(Step.END, code)
    error = bench.outcome(call)
    assert isinstance(error, ProducerFencedError | InvalidProducerIdMappingError)
    assert error.outcome == "not committed"


@pytest.mark.parametrize("code", [47, 49, 90])
def test_commit_that_was_sent_once_and_refused_is_not_committed(code: int) -> None:
    bench = Bench()
    bench.init()
    bench.begin(T0)
    call = bench.machine.commit()
    bench.answer_next(Step.END, code)
    error = bench.outcome(call)
    assert isinstance(error, ProducerFencedError | InvalidProducerIdMappingError)
    assert (error.outcome, error.category) == ("not committed", "recoverable")


def test_unknown_server_error_on_commit_counts_as_a_lost_answer() -> None:
    bench = Bench(is_v2=True)
    bench.init()
    bench.begin(T0)
    call = bench.machine.commit()
    bench.answer_next(Step.END, -1)
    bench.answer_next(Step.END, 90)
    error = bench.outcome(call)
    assert isinstance(error, TransactionAbortableError)
    assert error.outcome == "unknown"


@pytest.mark.parametrize("code", [48, 90])
def test_v2_abort_has_the_last_word_after_a_refused_commit(code: int) -> None:
    bench = Bench(is_v2=True)
    bench.init()
    bench.begin(T0)
    call = bench.machine.commit()
    bench.answer_next(Step.END, code)
    assert isinstance(bench.outcome(call), TransactionAbortableError)
    abort = bench.machine.abort()
    bench.answer_next(Step.END, 0, (4000, 2))
    assert bench.outcome(abort) is None
    assert (bench.machine.state, bench.machine.epoch) == (State.READY, 2)


def test_v2_abort_of_a_fenced_producer_is_fatal() -> None:
    bench = Bench(is_v2=True)
    bench.init()
    bench.begin(T0)
    bench.machine.on_batch_failed("t", 0, error_for(47), had_sequence=True)
    assert bench.machine.state is State.ABORTABLE_ERROR
    abort = bench.machine.abort()
    bench.answer_next(Step.END, 90)
    assert isinstance(bench.outcome(abort), ProducerFencedError)
    assert bench.machine.state is State.FATAL_ERROR
    assert bench.next() is None


# -- epochs ------------------------------------------------------------------------------------------------------------


def test_v1_failed_batch_raises_the_epoch_after_the_abort() -> None:
    bench = Bench()
    bench.init((4000, 7))
    bench.begin(T0)
    bench.machine.on_batch_failed("t", 0, error_for(45), had_sequence=True)
    abort = bench.machine.abort()
    bench.answer_next(Step.END)
    assert bench.machine.state is State.INITIALIZING
    assert not abort.is_done
    bump = bench.expect(Step.BUMP)
    assert (bump.message.producer_id, bump.message.producer_epoch) == (4000, 7)  # type: ignore[attr-defined]
    bench.lose()
    bench.answer_next(Step.FIND_COORDINATOR)
    again = bench.expect(Step.BUMP)
    assert again.message == bump.message
    bench.respond(again, 0, (4000, 8))
    assert bench.outcome(abort) is None
    assert (bench.machine.state, bench.machine.epoch) == (State.READY, 8)


def test_v1_failed_batch_that_was_never_sent_needs_no_epoch() -> None:
    bench = Bench()
    bench.init()
    bench.begin(T0)
    bench.machine.on_batch_failed("t", 0, DeliveryTimeoutError("late"), had_sequence=False)
    bench.machine.abort()
    bench.answer_next(Step.END)
    assert bench.machine.state is State.READY


@pytest.mark.parametrize("refuses_late", [True, False])
@pytest.mark.parametrize("is_v2", [True, False])
def test_record_that_may_arrive_after_the_abort_ends_the_producer(refuses_late: bool, is_v2: bool) -> None:
    """Older leaders would open a transaction with it that nothing ends; once the epoch is newer they refuse it."""
    bench = Bench(is_v2=is_v2)
    bench.init()
    bench.begin(T0)
    bench.machine.refuses_late = refuses_late
    bench.machine.on_batch_failed("t", 0, DeliveryTimeoutError("late", possibly_persisted=True), had_sequence=True)
    is_safe = refuses_late or is_v2
    assert bench.machine.state is (State.ABORTABLE_ERROR if is_safe else State.FATAL_ERROR)
    if not is_safe:
        with pytest.raises(KafkaError, match="make a new one") as caught:
            bench.machine.abort()
        assert caught.value.category == "recoverable"
        assert bench.next() is None


@pytest.mark.parametrize("version", [0, 1, 2])
def test_coordinator_without_newer_epochs_lets_a_transaction_be_aborted_after_refused_records(version: int) -> None:
    bench = Bench()
    bench.init((4000, 7), version=version)
    bench.begin(T0)
    assert not bench.machine.can_bump
    for code in (29, 45, 45):  # those behind the refused batch are out of order
        bench.machine.on_batch_failed("t", 0, error_for(code), had_sequence=True)
    abort = bench.machine.abort()
    bench.answer_next(Step.END)
    assert bench.outcome(abort) is None
    assert (bench.machine.state, bench.machine.epoch) == (State.READY, 7)
    bench.begin(T0)


@pytest.mark.parametrize(
    "error", [DeliveryTimeoutError("late", possibly_persisted=True), error_for(45)], ids=["no answer", "lost records"]
)
def test_coordinator_without_newer_epochs_ends_a_producer_whose_sequence_is_not_known(error: KafkaError) -> None:
    bench = Bench()
    bench.init((4000, 0), version=1)
    bench.begin(T0)
    bench.machine.on_batch_failed("t", 1, error_for(29), had_sequence=True)  # another partition
    bench.machine.on_batch_failed("t", 0, error, had_sequence=True)
    with pytest.raises(KafkaError, match="make a new one") as caught:
        bench.machine.abort()
    assert (caught.value.category, caught.value.outcome) == ("recoverable", "not committed")
    assert bench.next() is None


def test_records_refused_in_one_transaction_do_not_explain_a_gap_in_the_next() -> None:
    bench = Bench()
    bench.init((4000, 0), version=1)
    bench.begin(T0)
    bench.machine.on_batch_failed("t", 0, error_for(29), had_sequence=True)
    abort = bench.machine.abort()
    bench.answer_next(Step.END)
    assert bench.outcome(abort) is None
    bench.begin(T0)
    bench.machine.on_batch_failed("t", 0, error_for(45), had_sequence=True)
    assert bench.machine.state is State.FATAL_ERROR


def test_cluster_that_is_upgraded_switches_at_the_end_of_a_transaction_with_a_newer_epoch() -> None:
    bench = Bench()
    bench.init()
    bench.begin(T0)
    bench.machine.can_use_v2 = True
    call = bench.machine.commit()
    assert bench.answer_next(Step.END).versions == (0, 4)
    assert not call.is_done
    bench.answer_next(Step.BUMP, 0, (4000, 1))
    assert bench.outcome(call) is None
    bench.begin(T0)
    assert bench.machine.members.is_v2
    bench.machine.can_use_v2 = False
    bench.machine.commit()
    assert bench.answer_next(Step.END, 0, (4000, 2)).versions == (5, 5)
    assert bench.machine.state is State.READY
    bench.machine._call = None
    bench.begin(T0)
    assert not bench.machine.members.is_v2


def test_commit_is_not_undone_by_a_failed_epoch() -> None:
    bench = Bench()
    bench.init()
    bench.begin(T0)
    bench.machine.can_use_v2 = True
    call = bench.machine.commit()
    bench.answer_next(Step.END)
    bench.answer_next(Step.BUMP, 90)
    assert bench.outcome(call) is None
    with pytest.raises(ProducerFencedError):
        bench.machine.begin()


# -- init --------------------------------------------------------------------------------------------------------------


def test_init_that_may_not_be_made_can_be_made_again() -> None:
    bench = Bench()
    call = bench.machine.init()
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.answer_next(Step.INIT, 53)
    assert isinstance(bench.outcome(call), AuthorizationError)
    assert bench.machine.state is State.UNINITIALIZED
    again = bench.machine.init()
    bench.answer_next(Step.INIT, 0, (1, 0))
    assert bench.outcome(again) is None


def test_too_long_a_timeout_names_both_options() -> None:
    bench = Bench()
    call = bench.machine.init()
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.answer_next(Step.INIT, 50)
    error = bench.outcome(call)
    assert isinstance(error, ConfigError)
    assert "transaction_timeout_ms" in str(error)
    assert "transaction.max.timeout.ms" in str(error)


def test_init_answered_abortable_is_made_again_by_the_abort() -> None:
    bench = Bench()
    call = bench.machine.init()
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.answer_next(Step.INIT, 120)
    assert isinstance(bench.outcome(call), TransactionAbortableError)
    abort = bench.machine.abort()
    bench.answer_next(Step.INIT, 0, (1, 0))
    assert bench.outcome(abort) is None
    assert bench.machine.state is State.READY


def test_refused_credentials_fail_a_first_init() -> None:
    bench = Bench()
    call = bench.machine.init()
    bench.machine.on_authentication_error(AuthenticationError("no"))
    assert isinstance(bench.outcome(call), AuthenticationError)
    assert bench.machine.state is State.UNINITIALIZED


def test_init_that_timed_out_is_resumed() -> None:
    bench = Bench()
    call = bench.machine.init()
    assert isinstance(bench.machine.time_out(call, 0), TransactionTimeoutError)
    with pytest.raises(IllegalStateError, match="must be repeated"):
        bench.machine.begin()
    assert bench.machine.init() is call


def test_init_is_called_once() -> None:
    bench = Bench()
    bench.init()
    with pytest.raises(IllegalStateError, match="once"):
        bench.machine.init()


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [31, 35, 49, 53, 90])
def test_produce_answers_that_end_the_producer(code: int) -> None:
    bench = Bench(is_v2=True)
    bench.init()
    bench.begin(T0)
    bench.machine.on_batch_failed("t", 0, error_for(code), had_sequence=True)
    assert bench.machine.state is State.FATAL_ERROR
    for call in (bench.machine.abort, bench.machine.begin, bench.machine.commit, bench.machine.check_sending):
        with pytest.raises(KafkaError) as caught:
            call()
        assert not isinstance(caught.value, IllegalStateError)


@pytest.mark.parametrize("code", [10, 29, 45, 47, 48, 59, 87, 120])
def test_produce_answers_that_end_the_transaction(code: int) -> None:
    bench = Bench(is_v2=True)
    bench.init()
    bench.begin(T0)
    bench.machine.on_batch_failed("t", 0, error_for(code), had_sequence=True)
    assert bench.machine.state is State.ABORTABLE_ERROR


def test_first_failure_is_the_one_that_is_raised() -> None:
    bench = Bench(is_v2=True)
    bench.init()
    bench.begin(T0)
    bench.machine.on_batch_failed("t", 0, KafkaError("the first"), had_sequence=False)
    bench.machine.on_batch_failed("t", 1, KafkaError("the second"), had_sequence=False)
    errors = []
    for _ in range(2):
        with pytest.raises(DeliveryFailedError, match="the first") as caught:
            bench.machine.commit()
        errors.append(caught.value)
    assert errors[0] is not errors[1]


def test_group_coordinator_too_old_for_member_ids_makes_the_transaction_abortable() -> None:
    bench = Bench()
    bench.init()
    bench.machine.begin()
    offsets = bench.machine.send_offsets(OFFSETS, GROUP)
    assert offsets is not None
    bench.answer_next(Step.ADD_OFFSETS)
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.expect(Step.COMMIT_OFFSETS)
    bench.machine.on_no_answer(UnsupportedVersionError("too old"), 0, was_sent=False)
    assert isinstance(bench.outcome(offsets), TransactionAbortableError)


def test_lost_group_coordinator_is_found_again() -> None:
    bench = Bench(is_v2=True)
    bench.init()
    bench.machine.begin()
    offsets = bench.machine.send_offsets(OFFSETS, GROUP)
    assert offsets is not None
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.expect(Step.COMMIT_OFFSETS)
    bench.lose()
    assert bench.answer_next(Step.FIND_COORDINATOR).group_id == "g"
    bench.answer_next(Step.COMMIT_OFFSETS)
    assert bench.outcome(offsets) is None


def test_answer_for_another_key_is_not_believed() -> None:
    bench = Bench()
    call = bench.machine.init()
    request = bench.expect(Step.FIND_COORDINATOR)
    response = answer(request)
    response.coordinators[0].key = "other"
    bench.machine.on_response(response, 4, 0)
    assert isinstance(bench.outcome(call), KafkaError)
    assert bench.machine.state is State.FATAL_ERROR


def test_answer_without_a_producer_id_is_not_believed() -> None:
    bench = Bench()
    call = bench.machine.init()
    bench.answer_next(Step.FIND_COORDINATOR)
    bench.answer_next(Step.INIT, 0, (-1, -1))
    assert isinstance(bench.outcome(call), CorruptDataError)


def test_coordinator_without_a_node_is_looked_for_again() -> None:
    bench = Bench()
    bench.machine.init()
    response = answer(bench.expect(Step.FIND_COORDINATOR))
    response.coordinators[0].node_id = -1
    bench.machine.on_response(response, 6, bench.now_ms)
    bench.expect(Step.FIND_COORDINATOR)


def test_partitions_of_a_topic_that_is_new_to_the_broker_are_added_again() -> None:
    bench = Bench()
    bench.init()
    bench.machine.begin()
    bench.machine.may_drain(T0)
    bench.machine.may_drain(T1)
    add = bench.expect(Step.ADD_PARTITIONS)
    bench.machine.on_response(partition_codes(add, {T0: 55, T1: 3}), 3, bench.now_ms)
    assert bench.machine.state is State.IN_TRANSACTION
    assert bench.answer_next(Step.ADD_PARTITIONS).partitions == (T0, T1)


def test_closing_aborts_what_is_open() -> None:
    bench = Bench()
    bench.init()
    assert not bench.machine.abandon()
    bench.begin(T0)
    assert bench.machine.abandon()
    assert not bench.answer_next(Step.END).is_commit
    assert not bench.machine.abandon()


def test_sending_outside_a_transaction_is_refused() -> None:
    bench = Bench()
    with pytest.raises(IllegalStateError, match="between begin_transaction"):
        bench.machine.check_sending()
    bench.init()
    with pytest.raises(IllegalStateError, match="between begin_transaction"):
        bench.machine.check_sending()
    with pytest.raises(IllegalStateError, match="no transaction is open"):
        bench.machine.commit()
    with pytest.raises(IllegalStateError, match="no transaction is open"):
        bench.machine.abort()


def test_a_call_that_times_out_names_the_last_refusal() -> None:
    bench = Bench()
    call = bench.machine.init()
    bench.answer_next(Step.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    error = bench.machine.time_out(call, 5)
    assert isinstance(error, TransactionTimeoutError)
    assert "; the last refusal: FindCoordinator: COORDINATOR_NOT_AVAILABLE (15): " in str(error)
    assert error.__cause__ is bench.machine.last_refusal


def test_a_commit_that_times_out_names_the_refusal_until_an_answer_comes() -> None:
    bench = Bench()
    bench.init()
    bench.begin(T0)
    call = bench.machine.commit()
    bench.answer_next(Step.END, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    error = bench.machine.time_out(call, 5)
    assert isinstance(error, CommitUnknownError)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(error)
    bench.machine.commit()
    bench.now_ms += 10_000
    bench.answer_next(Step.END)
    assert bench.machine.last_refusal is None


def test_a_commit_that_waits_for_records_says_why_they_wait() -> None:
    bench = Bench()
    bench.init()
    bench.begin(T0)
    bench.has_batches = True
    error = bench.machine.time_out(bench.machine.commit(), 5, error_for(ErrorCode.NOT_ENOUGH_REPLICAS))
    assert "; the last refusal: NOT_ENOUGH_REPLICAS (19): " in str(error)
