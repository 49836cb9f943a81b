"""The half of the state machine that the application uses: what it may do in which state, and what it waits for. Pure.

At most one call waits at a time. One that timed out continues: the next call of its kind resumes it, and any other is
refused, so that the application always learns the outcome of a commit before it does anything else. Only offsets may be
given up, by aborting their transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkaprod.config import ProducerConfig
from kafkaprod.engine.transactions import failures
from kafkaprod.engine.transactions.calls import Call, CallKind, Failure, OffsetsCall
from kafkaprod.engine.transactions.commit_table import OUTCOMES, Log
from kafkaprod.engine.transactions.members import Members
from kafkaprod.engine.transactions.offsets import GroupMetadata, OffsetAndMetadata
from kafkaprod.engine.transactions.states import OPEN, TRANSITIONS, State
from kafkaprod.engine.transactions.verdicts import Step
from kafkaprod.errors import CommitOutcome, CommitUnknownError, IllegalStateError, KafkaError, TransactionTimeoutError
from kafkaprod.structs import TopicPartition


class Intents:
    """State, and the calls of the application.

    Args:
        config: Options, a transactional id among them.

    Attributes:
        state: Where the producer is.
        producer_id, epoch: What batches are numbered under; -1 before the first init.
        number: Counts transactions; grows with each `begin`.
        members: The members of the current transaction.
        failure: Why the transaction must be aborted, or the producer closed: the first reason.
        last_refusal: Why the last request was refused, or not answered; None: it was not.
    """

    def __init__(self, config: ProducerConfig) -> None:
        if config.transactional_id is None:
            raise IllegalStateError("transactions need a transactional_id")
        self._name = config.transactional_id
        self.state = State.UNINITIALIZED
        self.producer_id = -1
        self.epoch = -1
        self.number = 0
        self.members = Members(is_v2=False)
        self.failure: Failure | None = None
        self.last_refusal: KafkaError | None = None
        self._is_v2 = False  # of the next transaction
        self._call: Call | None = None
        self._log = Log.WITHOUT  # what it may hold of a commit of this transaction

    @property
    def outcome(self) -> CommitOutcome | None:
        """What is certain about the open transaction, or the one that failed for good; None: there is none."""
        call, state = self._call, self.state
        if state is State.FATAL_ERROR:
            return None if self.failure is None else self.failure.outcome
        if call is not None and call.is_decided:
            return "committed" if call.kind is CallKind.COMMIT else "not committed"
        if state is State.COMMITTING:
            return "unknown"  # it continues
        return self._certain

    def init(self) -> Call:
        """Begin to get a producer id, or resume a call that timed out. Raises IllegalStateError, or why it failed."""
        call = self._resume(CallKind.INIT)
        if call is None:
            if self.state is not State.UNINITIALIZED:
                self._raise_failure()
                raise IllegalStateError(f"init_transactions() is called once, as the first ({self._who()})")
            self._call = call = Call(CallKind.INIT)
        if self.state is State.UNINITIALIZED:
            self._move(State.INITIALIZING)
        return call

    def take_name(self, transactional_id: str) -> None:
        """Take another transactional id; `init` comes first then. Raises IllegalStateError, or why it failed."""
        self._check_no_call("another transactional id")
        if self.state is not State.UNINITIALIZED:
            self._raise_failure()
            if self.state is not State.READY:
                raise IllegalStateError(f"another transactional id: a transaction is open ({self._who()})")
            self._move(State.UNINITIALIZED)
        self._name = transactional_id
        self.producer_id = self.epoch = -1
        self.members = Members(is_v2=False)

    def begin(self) -> None:
        """Begin a transaction. Raises IllegalStateError, or why the previous one failed."""
        if self._call is not None:
            self._check_no_call("begin_transaction()")
        if self.state is not State.READY:
            self._raise_failure()
            first = (
                "init_transactions() comes first" if self.state is State.UNINITIALIZED else "end the present one first"
            )
            raise IllegalStateError(f"begin_transaction(): {first} ({self._who()})")
        self.number += 1
        self._log = Log.WITHOUT
        self._move(State.IN_TRANSACTION)

    def check_sending(self) -> None:
        """Raise IllegalStateError outside a transaction, or why it failed."""
        if self.state is State.IN_TRANSACTION:
            return
        self._raise_failure()
        raise IllegalStateError(f"records are sent between begin_transaction() and its commit or abort ({self._who()})")

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> OffsetsCall | None:
        """Begin to add offsets, or resume a call that timed out; None: there are none to add."""
        call = self._call
        if isinstance(call, OffsetsCall) and not call.is_waited_for and not call.is_for(group, dict(offsets)):
            raise IllegalStateError(
                f"{call.kind.value} timed out: repeat it with the same offsets, or abort ({self._who()})"
            )
        resumed = self._resume(CallKind.OFFSETS)
        if resumed is not None:
            assert isinstance(resumed, OffsetsCall)
            return resumed
        self.check_sending()
        if not offsets:
            return None
        self._call = started = OffsetsCall(CallKind.OFFSETS, group=group, wanted=dict(offsets), missing=dict(offsets))
        return started

    def commit(self) -> Call:
        """Begin to commit, or resume a commit that timed out. Raises IllegalStateError, or why it cannot be done."""
        return self._end(CallKind.COMMIT, State.COMMITTING, {State.IN_TRANSACTION})

    def abort(self) -> Call:
        """Begin to abort, or resume an abort that timed out. Raises IllegalStateError, or the fatal error."""
        call = self._call
        if isinstance(call, OffsetsCall) and not call.is_waited_for:
            self._call = None  # offsets that timed out are given up with their transaction
        return self._end(CallKind.ABORT, State.ABORTING, {State.IN_TRANSACTION, State.ABORTABLE_ERROR})

    def _end(self, kind: CallKind, target: State, legal: set[State]) -> Call:
        call = None if self._call is None else self._resume(kind)
        if call is None:
            if self.state not in legal:
                self._raise_failure()
                raise IllegalStateError(f"{kind.value}: no transaction is open ({self._who()})")
            self._call = call = Call(kind)
        if self.state in legal:  # not so if the call is resumed, unless Ctrl-C came between these lines
            self._move(target)
        return call

    def _resume(self, kind: CallKind) -> Call | None:
        """Take up the call of this kind that timed out. Raises IllegalStateError if any other call has no end yet."""
        call = self._call
        if call is None:
            return None
        if call.kind is not kind or call.is_waited_for:
            self._check_no_call(kind.value)
        call.is_waited_for = True
        return call

    def _check_no_call(self, what: str) -> None:
        call = self._call
        if call is None:
            return
        if call.is_waited_for:
            raise IllegalStateError(f"{what}: {call.kind.value} is running in another thread ({self._who()})")
        raise IllegalStateError(f"{what}: {call.kind.value} timed out and must be repeated first ({self._who()})")

    def settle(self, call: Call) -> KafkaError | None:
        """Take the outcome of a call that is done; return the error to raise, None if it succeeded."""
        if self._call is call:
            self._call = None
        return None if call.failure is None else call.failure.error()

    def time_out(self, call: Call, timeout_s: float, why_records_wait: KafkaError | None = None) -> KafkaError:
        """Note that the caller stopped waiting; return the error to raise. The call continues.

        Args:
            call: What it waited for.
            timeout_s: How long it waited.
            why_records_wait: Why records of the transaction have no outcome yet; None: nothing is known.
        """
        self._stop_waiting(call)
        reason = self.last_refusal or why_records_wait
        error = self._timeout_error(call, timeout_s, "" if reason is None else f"; the last refusal: {reason}")
        error.__cause__ = reason
        error.outcome = self.outcome
        return error

    def _timeout_error(self, call: Call, timeout_s: float, why: str) -> KafkaError:
        text = f"{call.kind.value} did not end within {timeout_s:g} s; it continues ({self._who()}): repeat it"
        if call.kind is CallKind.COMMIT and not call.is_decided:
            return CommitUnknownError(
                f"{text} to learn whether the transaction is committed, or close the producer{why}"
            )
        if call.kind is CallKind.OFFSETS:
            text += ", or abort the transaction"
        elif call.kind is CallKind.COMMIT:
            text += "; the transaction is committed, only the epoch for the next one is missing"
        return TransactionTimeoutError(text + why)

    def let_go(self, waiter: Callable[[], None]) -> None:
        """Note that a caller does not wait because of an exception: the next call of its kind resumes it, done or not.

        Args:
            waiter: The caller's. The exception may have come before it was noted.
        """
        call = self._call
        if call is not None and call.waiter in (None, waiter):
            self._stop_waiting(call)

    @staticmethod
    def _stop_waiting(call: Call) -> None:
        call.is_waited_for = False
        call.waiter = None

    def abandon(self) -> bool:
        """Abort whatever is open because the producer closes; return whether there is something to wait for."""
        if self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            self._move(State.ABORTING)
            self._call = Call(CallKind.ABORT, is_waited_for=False)
        return self.state in (State.COMMITTING, State.ABORTING)

    # -- for both halves -----------------------------------------------------------------------------------------------

    def _fail(self, failure: Failure, *, is_fatal: bool) -> None:
        """Take a failure: the first reason stays, a fatal one replaces an abortable one."""
        if self.state is State.FATAL_ERROR:
            return
        if is_fatal:
            self.failure = failure
            self._move(State.FATAL_ERROR)
            self._finish_call(failure)
        elif self.state in (State.IN_TRANSACTION, State.COMMITTING, State.INITIALIZING):
            self.failure = failure
            self._move(State.ABORTABLE_ERROR)
            self._finish_call(failure)

    def _finish_call(self, failure: Failure | None = None) -> None:
        call = self._call
        if call is not None:
            # What the coordinator has decided is not undone by the failure to get an epoch for the next transaction.
            call.finish(None if call.is_decided else failure)

    @property
    def _certain(self) -> CommitOutcome | None:
        """What is certain about the transaction if no further EndTxn is sent; None: none is open."""
        return OUTCOMES[self._log] if self.state in OPEN else None

    def _from_error(self, step: Step, error: KafkaError, *, is_abortable: bool = False) -> Failure:
        return failures.from_error(step, error, self._who(), self._certain, is_abortable=is_abortable)

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure.error()

    def _move(self, target: State) -> None:
        if target not in TRANSITIONS[self.state]:
            raise IllegalStateError(
                f"a transaction cannot go from {self.state.value!r} to {target.value!r}: {self._who()}"
            )
        self.state = target

    def _who(self) -> str:
        return (
            f"transactional_id={self._name!r}, producer id {self.producer_id}, epoch {self.epoch}, {self.state.value}"
        )
