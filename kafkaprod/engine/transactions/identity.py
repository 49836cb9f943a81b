"""The identity of a transactional producer: the state machine between the application's threads and the sender thread.

The sender thread drives the machine (`Identity`), application threads make calls (`start_...`, `finish`, `time_out`).
Both hold one lock for as long as the machine computes, never while anything waits, is sent or calls back.

After each step the sender thread brings the core up to what the machine says: the number of the open transaction,
producer id and epoch, the gate for records, and batches that can no longer be part of a transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kafkaprod._core.queues.accumulator import Accumulator
from kafkaprod._core.requests.drain import Drain
from kafkaprod._core.requests.settlement import BatchRef, abort_batches
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.identity import MAX_WAIT_MS, IdentityRequest
from kafkaprod.engine.transactions.abilities import BrokerAbilities
from kafkaprod.engine.transactions.calls import Call, Failure
from kafkaprod.engine.transactions.machine import TransactionMachine
from kafkaprod.engine.transactions.offsets import (
    GroupMetadata,
    OffsetAndMetadata,
    read_group_metadata,
    read_offsets,
)
from kafkaprod.engine.transactions.requests import TransactionRequest
from kafkaprod.engine.transactions.states import ENDING, FAILED, OPEN, State
from kafkaprod.engine.transactions.verdicts import Step
from kafkaprod.errors import (
    AuthenticationError,
    ForkedProducerError,
    IllegalStateError,
    KafkaError,
    ProducerClosedError,
    TransactionAbortedError,
)
from kafkaprod.locks import locked
from kafkaprod.net.pool import NodePool
from kafkaprod.protocol.in_flight import InFlightRequest
from kafkaprod.structs import TopicPartition

V1_PRODUCE_VERSIONS: Final = (3, 11)
V2_PRODUCE_VERSIONS: Final = (12, 13)


class TransactionalIdentity:
    """See the module.

    Args:
        config: Options; an open transaction has its max_block_ms to be aborted when the producer closes.
        accumulator, drain, pool: The parts of the engine that it steers.
        random: Jitter of backoffs, in [0, 1).
    """

    keeps_producer_id = True  # a newer epoch comes from the coordinator, never from the producer alone
    may_split = True

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        drain: Drain,
        pool: NodePool,
        random: Callable[[], float],
    ) -> None:
        self.transactional_id: str | None = config.transactional_id
        self._accumulator = accumulator
        self._drain = drain
        self._pool = pool
        self._lock = threading.RLock()
        # guarded by _lock:
        self._machine = TransactionMachine(config, random)
        self._closed: Failure | None = None  # the sender thread has ended
        self._is_idle = False  # no request is due until a call or an outcome comes
        self._has_news = True  # the machine has changed, the core has not yet
        # sender thread only:
        self._prepared: tuple[TransactionRequest, IdentityRequest] | None = None  # to be sent, or in flight
        self._last_prepared: tuple[TransactionRequest, IdentityRequest] | None = None
        self._is_in_flight = False
        self._max_close_ms = config.max_block_ms
        self._closing_since_ms: int | None = None
        self._abilities = BrokerAbilities(pool)
        accumulator.failed_batches = []
        accumulator.set_gate(False)
        drain.set_transaction(0, False)

    # -- application threads -------------------------------------------------------------------------------------------

    @locked
    def start_init(self, wake: Callable[[], None]) -> Call:
        """Begin or resume init_transactions(). Raises IllegalStateError, or the producer's fatal error."""
        self._check_running()
        return self._started(self._machine.init(), wake)

    @locked
    def take_name(self, transactional_id: str) -> None:
        """Take another transactional id between two transactions. Raises as `start_init`."""
        self._check_running()
        self._machine.take_name(transactional_id)
        self.transactional_id = transactional_id
        self._has_news = True

    @locked
    def begin(self) -> None:
        """Begin a transaction; at once. Raises IllegalStateError, or why the last one failed."""
        if self._closed is not None:
            raise self._closed.error()
        try:
            self._machine.begin()
        finally:  # Ctrl-C may come right behind it
            if self._machine.state is State.IN_TRANSACTION:
                self._has_news = True
                self._accumulator.set_gate(True)

    def start_offsets(self, offsets: Any, group_metadata: Any, wake: Callable[[], None]) -> Call | None:
        """Begin or resume adding offsets; None: there are none. Raises as `begin`, InvalidRecordError."""
        group = read_group_metadata(group_metadata)
        return self._start_offsets(read_offsets(offsets), group, wake)

    def coordinator_of_group(self, group_id: str) -> int | None:
        """Return the node that has taken the last offsets of a group; None if it must be found again."""
        return self._machine.coordinator_of_group(group_id)

    @locked
    def _start_offsets(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], group: GroupMetadata, wake: Callable[[], None]
    ) -> Call | None:
        self._check_running()
        call = self._machine.send_offsets(offsets, group)
        return None if call is None else self._started(call, wake)

    @locked
    def start_commit(self, wake: Callable[[], None]) -> Call:
        """Begin or resume a commit. Raises as `begin`."""
        if self._closed is not None:
            raise self._closed.error()
        call = self._machine.commit()
        self._accumulator.set_gate(False)
        return self._started(call, wake)

    @locked
    def start_abort(self, wake: Callable[[], None]) -> Call:
        """Begin or resume an abort. Raises as `begin`."""
        self._check_running()
        call = self._machine.abort()
        self._accumulator.set_gate(False)
        return self._started(call, wake)

    def _check_running(self) -> None:
        if self._closed is not None:
            raise self._closed.error()

    def _started(self, call: Call, wake: Callable[[], None]) -> Call:
        call.waiter = wake
        call.wake = partial(self._pool.to_wake.append, wake)  # not at once: the caller needs the lock and the GIL
        self._has_news = True
        if call.is_done:
            wake()
        return call

    @locked
    def finish(self, call: Call) -> None:
        """Raise the error of a call that is done, if it has one."""
        error = self._machine.settle(call)
        if error is not None:
            raise error

    @locked
    def time_out(self, call: Call, timeout_s: float, why_records_wait: KafkaError | None = None) -> KafkaError | None:
        """Stop waiting for a call; return the error to raise. None: it is done by now, `finish` it."""
        return None if call.is_done else self._machine.time_out(call, timeout_s, why_records_wait)

    @locked
    def let_go(self, wake: Callable[[], None]) -> None:
        """Stop waiting because of an exception. The next call of its kind resumes the call, done or not.

        Args:
            wake: What the call was started with.
        """
        self._machine.let_go(wake)

    @locked
    def check_sending(self) -> int:
        """Return the number of the open transaction. Raises IllegalStateError, or why the transaction failed."""
        machine = self._machine
        if machine.state is not State.IN_TRANSACTION:
            machine.check_sending()  # raises
        return machine.number

    def check_same(self, number: int) -> None:
        """Raise IllegalStateError if transaction `number` is not the open one any more."""
        machine = self._machine
        if machine.state is State.IN_TRANSACTION and machine.number == number:
            return
        if self.check_sending() != number:
            raise IllegalStateError(
                f"transaction {number} of transactional_id={self.transactional_id!r} ended while a record of it waited "
                "for metadata or memory: the record is in no transaction"
            )

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, or must be aborted."""
        return self._machine.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR)

    def tell_outcome(self, error: KafkaError) -> None:
        """Note in an error that a call raises what is certain about the transaction."""
        if error.outcome is None and not isinstance(error, ForkedProducerError):  # the child cannot know
            error.outcome = self._machine.outcome

    @property
    def number(self) -> int:
        """How many transactions have begun."""
        return self._machine.number

    # -- the sender thread ---------------------------------------------------------------------------------------------

    @property
    def produce_versions(self) -> tuple[int, int]:
        """Lowest and highest version of produce requests in the open transaction."""
        return V2_PRODUCE_VERSIONS if self._machine.members.is_v2 else V1_PRODUCE_VERSIONS

    @property
    def last_refusal(self) -> KafkaError | None:
        """Why the last request of the transaction was refused, or not answered; None: it was not."""
        return self._machine.last_refusal

    @property
    def is_ending(self) -> bool:
        """Whether the transaction ends as soon as its batches have their outcomes; False once the request is sent."""
        return self._machine.state in ENDING and not self._is_in_flight

    def wanted(self, now_ms: int) -> IdentityRequest | None:
        """The next request of the transaction. Brings machine and core up to each other first.

        Every turn of the sender thread begins with this call. It does next to nothing while records are only sent.
        """
        if self._abilities.are_others_ready:
            self._look_at_brokers()
        machine, drain = self._machine, self._drain
        if self._accumulator.failed_batches:
            self._take_failed_batches()
        if drain.has_new_members:
            self._take_new_members()
        if self._has_news or drain.wants_epoch or machine.state in FAILED:
            self._apply()
        if self._is_in_flight or self._is_idle:
            return None
        if self._prepared is None:
            state = machine.state
            request = self._next_request(now_ms)
            if machine.state is not state:
                self._apply()  # a transaction that nothing was sent in ends here, or a call has begun meanwhile
            if request is None:
                return None
            if self._last_prepared is None or self._last_prepared[0] is not request:  # EndTxn is mostly the same object
                self._last_prepared = request, _to_send(request)
            self._prepared = self._last_prepared
        request, wanted = self._prepared
        if request.node is not None:
            self._pool.add_node(request.node)  # a coordinator may be named before the metadata knows the broker
        return wanted

    @locked
    def _next_request(self, now_ms: int) -> TransactionRequest | None:
        machine = self._machine
        # Counted under the lock: else a record could be sent, and its commit begin, before the count is used.
        has_batches = self._accumulator.incomplete_batch_count > 0
        if machine.state in ENDING:
            if has_batches and machine.members.is_v2:
                return None  # the usual turn between a commit and the last outcome
            if not has_batches and self._drain.has_drained:
                machine.on_drained()
            elif not has_batches:
                self._look_at_brokers()  # a transaction that nothing was sent in may end here
        request = machine.next_request(now_ms, has_batches=has_batches)
        self._is_idle = request is None and machine.is_idle
        return request

    def delay_ms(self, now_ms: int) -> int:
        """Until the backoff is over; MAX_WAIT_MS when an answer, a batch or a call must come first."""
        if self._is_in_flight or self._is_idle:
            return MAX_WAIT_MS
        return self._machine.wait_ms(now_ms) or MAX_WAIT_MS  # needs no lock: only the sender thread changes it

    def on_sent(self, wanted: IdentityRequest) -> None:
        """One request at a time."""
        self._is_in_flight = True

    def on_response(self, wanted: IdentityRequest, done: InFlightRequest, now_ms: int) -> None:
        """Take an answer, or that there is none."""
        self._is_in_flight, self._prepared = False, None
        if self._accumulator.failed_batches:
            self._take_failed_batches()
        if self._abilities.are_others_ready or self._abilities.are_others_known:
            self._look_at_brokers()
        self._tell_machine(done, now_ms)
        self._apply()
        self._is_idle = self._machine.state is State.READY  # a begin_transaction() is news

    @locked
    def _tell_machine(self, done: InFlightRequest, now_ms: int) -> None:
        self._has_news = True
        if done.error is None:
            self._machine.on_response(done.response, done.version, now_ms)
        else:
            self._machine.on_no_answer(done.error, now_ms, was_sent=done.is_possibly_persisted)

    def on_unsendable(self, wanted: IdentityRequest, error: KafkaError, now_ms: int) -> None:
        """The node cannot be reached, or supports no version of the request."""
        self._prepared = None
        self._tell_unsent(error, now_ms)
        self._apply()

    @locked
    def _tell_unsent(self, error: KafkaError, now_ms: int) -> None:
        self._has_news = True
        self._machine.on_no_answer(error, now_ms, was_sent=False)

    @locked
    def on_refused_connection(self, error: AuthenticationError) -> None:
        """Credentials were refused: a first init ends with that."""
        self._has_news = True
        self._machine.on_authentication_error(error)

    def may_drain(self) -> bool:
        """Always: the drain knows which transaction is open."""
        return True

    def on_new_cluster(self) -> bool:
        """Return False: the new cluster's coordinator refuses the id, and that ends this producer."""
        return False

    def note_cluster(self, *, is_known: bool) -> None:
        """Do nothing: another cluster refuses records of a transaction that it does not know."""

    def on_batch_failed(self, ref: BatchRef, error: KafkaError) -> None:
        """Nothing: the accumulator collects failed batches, also those that never get an answer."""

    def is_finished(self, now_ms: int) -> bool:
        """Abort an open transaction because the producer closes; return whether it is, or `max_close_ms` has passed."""
        has_work = self._abandon()
        if self._closing_since_ms is None:
            self._closing_since_ms = now_ms
        return not has_work or now_ms - self._closing_since_ms >= self._max_close_ms

    @locked
    def _abandon(self) -> bool:
        self._has_news = True
        return self._machine.abandon()

    @locked
    def on_end(self, error: KafkaError) -> None:
        """Fail the call that waits: the sender thread ends."""
        self._closed = self._machine.end(Failure(ProducerClosedError, str(error), "invalid", cause=error.__cause__))

    @locked
    def _take_new_members(self) -> None:
        self._has_news = True
        for topic, number in self._drain.new_members():
            self._machine.may_drain(TopicPartition(topic, number))

    @locked
    def _take_failed_batches(self) -> None:
        failed = self._accumulator.failed_batches or []
        self._accumulator.failed_batches = []
        self._look_at_brokers()
        self._has_news = True
        for topic, number, error, had_sequence in failed:
            if not isinstance(error, KafkaError):
                error = _wrapped(error)
            self._machine.on_batch_failed(topic, number, error, had_sequence=had_sequence)

    def _apply(self) -> None:
        """Bring the core up to the machine."""
        state, failure = self._pass_on()
        if state in FAILED:
            self._fail_batches(state, failure)

    @locked
    def _pass_on(self) -> tuple[State, Failure | None]:
        """Tell the core what the machine says; return the state it was in, and why it failed."""
        machine, drain = self._machine, self._drain
        state = machine.state
        self._has_news = self._is_idle = False
        if (drain.producer_id, drain.producer_epoch) != (machine.producer_id, machine.epoch) or drain.wants_epoch:
            drain.set_producer(machine.producer_id, machine.epoch, not machine.can_bump)
        drain.set_transaction(machine.number if state in OPEN else 0, machine.members.is_v2)
        if machine.members.fresh:
            drain.add_members(machine.members.take_added())
        self._accumulator.set_gate(state is State.IN_TRANSACTION)
        return state, machine.failure

    def _fail_batches(self, state: State, failure: Failure | None) -> None:
        """Fail batches that must not go out any more. Calls back: not under the lock."""
        if self._accumulator.incomplete_batch_count == 0:
            return
        if state is State.FATAL_ERROR:
            assert failure is not None
            abort_batches(self._accumulator, failure.error())
            return
        text = "the record was not sent: its transaction was aborted"
        if failure is not None:
            text = f"the record was not sent, because its transaction cannot be committed: {failure.text}"
        abort_batches(self._accumulator, TransactionAbortedError(text), unsent_only=True)

    def _look_at_brokers(self) -> None:
        self._abilities.look()
        self._machine.can_use_v2 = self._abilities.has_v2
        self._machine.refuses_late = self._abilities.refuses_late


def _to_send(request: TransactionRequest) -> IdentityRequest:
    node_id = None if request.node is None else request.node.node_id
    in_version = request.message_in if request.step is Step.FIND_COORDINATOR else None
    return IdentityRequest(request.message, node_id, request.versions, in_version)


def _wrapped(error: BaseException) -> KafkaError:
    """An error of a codec or serializer as one of this package's."""
    wrapped = KafkaError(str(error))
    wrapped.__cause__ = error
    return wrapped
