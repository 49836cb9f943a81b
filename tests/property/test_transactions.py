"""Every event in every state: the machine with a model coordinator that loses, delays and repeats answers.

What must hold: one request at a time; no EndTxn while a batch has no outcome; under v1 no batch of a partition that was
not added; nothing after a fatal error; a call that reports a commit or an abort is right, and so is "not committed".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkaprod.engine.transactions.calls import Call, CallKind
from kafkaprod.engine.transactions.offsets import GroupMetadata, OffsetAndMetadata
from kafkaprod.engine.transactions.requests import TransactionRequest
from kafkaprod.engine.transactions.states import OPEN, State
from kafkaprod.engine.transactions.verdicts import Step
from kafkaprod.errors import DeliveryTimeoutError, IllegalStateError, KafkaError, TransactionAbortedError
from kafkaprod.protocol.error_codes import error_for
from kafkaprod.structs import TopicPartition
from tests.support.engine.coordinators import Bench, answer
from tests.support.engine.model_coordinator import ModelCoordinator

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
RETRIABLE = [14, 15, 16, 51]
GROUP = GroupMetadata("g", 5, "m")
OFFSETS = {PARTITIONS[0]: OffsetAndMetadata(1)}


class Transactions(RuleBasedStateMachine):
    """The machine, a coordinator, and the batches between them."""

    @initialize(is_v2=st.booleans(), can_bump=st.booleans())
    def start(self, is_v2: bool, can_bump: bool) -> None:
        self.can_bump = can_bump or is_v2
        self.bench = Bench(is_v2=is_v2)
        self.machine = self.bench.machine
        self.coordinator = ModelCoordinator()
        self.request: TransactionRequest | None = None
        self.call: Call | None = None
        self.batches: list[tuple[TopicPartition, bool]] = []  # (partition, whether it may be in the log)
        self.unsent: list[TopicPartition] = []
        self.added: set[tuple[int, TopicPartition]] = set()
        self.started: set[int] = set()  # transactions that the coordinator knew
        self.fenced = False

    # -- the application -----------------------------------------------------------------------------------------------

    def _try(self, start: Callable[[], Call | None]) -> None:
        before = self.machine.state
        try:
            self.call = start()
        except IllegalStateError:
            assert self.machine.state is before
        except KafkaError:
            assert self.machine.state is before
            assert before in (State.ABORTABLE_ERROR, State.FATAL_ERROR)

    @precondition(lambda self: self.call is None and self.machine.state is State.UNINITIALIZED)
    @rule()
    def init(self) -> None:
        self._try(self.machine.init)

    @precondition(lambda self: self.call is None and self.machine.state is State.READY)
    @rule()
    def begin(self) -> None:
        self.machine.begin()
        self.coordinator.number = self.machine.number

    @precondition(lambda self: self.call is None and self.machine.state is State.IN_TRANSACTION)
    @rule()
    def commit(self) -> None:
        self._try(self.machine.commit)

    @precondition(lambda self: self.call is None and self.machine.state in OPEN)
    @rule()
    def abort(self) -> None:
        self._try(self.machine.abort)

    @precondition(lambda self: self.call is None and self.machine.state is State.IN_TRANSACTION)
    @rule()
    def offsets(self) -> None:
        self._try(lambda: self.machine.send_offsets(OFFSETS, GROUP))

    @rule(which=st.integers(0, 5))
    def any_call(self, which: int) -> None:
        """Mostly illegal."""
        machine = self.machine
        calls = [machine.init, machine.commit, machine.abort, lambda: machine.send_offsets(OFFSETS, GROUP)]
        if which < len(calls) and (self.call is None or not self.call.is_waited_for):
            self._try(calls[which])

    @precondition(lambda self: self.call is not None and not self.call.is_waited_for)
    @rule()
    def resume(self) -> None:
        assert self.call is not None
        machine = self.machine
        again: dict[CallKind, Callable[[], Call | None]] = {
            CallKind.INIT: machine.init,
            CallKind.COMMIT: machine.commit,
            CallKind.ABORT: machine.abort,
            CallKind.OFFSETS: lambda: machine.send_offsets(OFFSETS, GROUP),
        }
        try:
            assert again[self.call.kind]() is self.call
        except KafkaError:
            assert self.call.kind is CallKind.OFFSETS
            assert machine.failure is not None

    @precondition(lambda self: self.call is not None and not self.call.is_done and self.call.is_waited_for)
    @rule()
    def time_out(self) -> None:
        assert self.call is not None
        self.machine.time_out(self.call, 1)

    def _learn(self) -> None:
        call = self.call
        if call is None or not call.is_done or not call.is_waited_for:
            return
        self.call = None
        error = self.machine.settle(call)
        number = self.machine.number
        if call.kind is CallKind.COMMIT:
            if error is None:
                assert number not in self.coordinator.aborted
                assert number in self.coordinator.committed or number not in self.started
            elif error.outcome == "not committed":
                assert number not in self.coordinator.committed, error
        elif call.kind is CallKind.ABORT and error is None:
            assert number not in self.coordinator.committed
            assert number in self.coordinator.aborted or number not in self.started

    # -- batches -------------------------------------------------------------------------------------------------------

    @rule(partition=st.sampled_from(PARTITIONS))
    def queue(self, partition: TopicPartition) -> None:
        try:
            self.machine.check_sending()
        except KafkaError:
            return
        self.unsent.append(partition)

    @precondition(lambda self: self.unsent)
    @rule()
    def drain(self) -> None:
        for partition in self.unsent.copy():
            if self.machine.may_drain(partition):
                assert self.machine.members.is_v2 or (self.machine.number, partition) in self.added
                self.machine.on_drained()
                self.unsent.remove(partition)
                self.batches.append((partition, False))

    @precondition(lambda self: self.batches)
    @rule(is_written=st.booleans(), has_answer=st.booleans())
    def finish_batch(self, is_written: bool, has_answer: bool) -> None:
        partition, _ = self.batches.pop(0)
        if self.machine.members.is_v2 and is_written:
            if not self.coordinator.produce(self.machine.epoch):
                self._fail(partition, error_for(47))
            else:
                self.started.add(self.machine.number)
        elif not is_written:
            is_known = has_answer or self.can_bump
            error = error_for(87) if has_answer else DeliveryTimeoutError("late", possibly_persisted=True)
            self._fail(partition, error)
            assert is_known or self.machine.state is State.FATAL_ERROR

    def _fail(self, partition: TopicPartition, error: KafkaError) -> None:
        self.machine.on_batch_failed(*partition, error, had_sequence=True)

    @precondition(lambda self: self.unsent)
    @rule()
    def expire(self) -> None:
        partition = self.unsent.pop(0)
        self.machine.on_batch_failed(*partition, DeliveryTimeoutError("late"), had_sequence=False)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _next(self) -> TransactionRequest | None:
        if self.machine.state in (State.ABORTABLE_ERROR, State.ABORTING, State.FATAL_ERROR):
            for partition in self.unsent:
                error = TransactionAbortedError("never sent")
                self.machine.on_batch_failed(*partition, error, had_sequence=False)
            self.unsent = []
        self.bench.has_batches = bool(self.batches or self.unsent)
        if self.request is None:
            self.request = self.bench.next()
            if self.request is not None:
                assert self.machine.state is not State.FATAL_ERROR
                assert not (self.request.step is Step.END and self.bench.has_batches)
        return self.request

    def _handle(self, request: TransactionRequest) -> Any:
        response = self.coordinator.handle(request)
        if self.coordinator.state == "ongoing":
            self.started.add(self.machine.number)
        return response

    @precondition(lambda self: self._next() is not None)
    @rule()
    def answer(self) -> None:
        request = self._next()
        if request is not None:
            self.request = None
            version = request.versions[1] if self.can_bump or request.step is not Step.INIT else 1
            self.machine.on_response(self._handle(request), version, self.bench.now_ms)
            self.added.update((self.machine.number, partition) for partition in self.machine.members.take_added())

    @precondition(lambda self: self._next() is not None)
    @rule(code=st.sampled_from(RETRIABLE))
    def refuse(self, code: int) -> None:
        request = self._next()
        if request is not None:
            self.request = None
            self.machine.on_response(answer(request, code), request.versions[1], self.bench.now_ms)

    @precondition(lambda self: self._next() is not None)
    @rule(is_handled=st.booleans())
    def lose(self, is_handled: bool) -> None:
        request = self._next()
        if request is not None:
            self.request = None
            if is_handled:
                self._handle(request)
            self.bench.lose()

    # -- what happens elsewhere ----------------------------------------------------------------------------------------

    @rule(chance=st.integers(0, 4))
    def coordinator_aborts(self, chance: int) -> None:
        if chance == 0:
            self.coordinator.abort_by_itself()

    @precondition(lambda self: not self.fenced)
    @rule(chance=st.integers(0, 9))
    def another_producer(self, chance: int) -> None:
        if chance == 0:
            self.fenced = True
            self.coordinator.take_over()

    @rule(is_v2=st.booleans())
    def change_level(self, is_v2: bool) -> None:
        self.machine.can_use_v2 = is_v2 and self.can_bump

    @rule()
    def work(self) -> None:
        """Let everything happen that can: else few transactions would come to an end."""
        for _ in range(5):
            self.drain()
            while self.batches and self.machine.state in OPEN:
                self.finish_batch(True, True)
            self.answer()

    @invariant()
    def failure_is_there_when_needed(self) -> None:
        self._learn()
        assert self.can_bump or self.request is None or self.request.step is not Step.BUMP
        has_failed = self.machine.state in (State.ABORTABLE_ERROR, State.FATAL_ERROR)
        assert (self.machine.failure is not None) >= has_failed


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
