"""The transactions of one producer as a state machine: intents and answers in, the next request out. Pure.

The request to send is derived from the state, never queued: after a lost answer the next one is derived again. One
request is in flight at a time. Time comes as an argument. Whoever drives the machine holds one lock around each call.

A batch may go out in an open transaction if its partition is a member (`may_drain`); membership is found when a batch
is drained, not when a record is queued. EndTxn waits until every batch that went out has its outcome.

Source: TransactionManager and Sender (Kafka 4.3); KIP-98, KIP-360, KIP-447, KIP-588, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from kafkaprod.config import ProducerConfig
from kafkaprod.engine.transactions import failures, requests
from kafkaprod.engine.transactions.answers import FATAL_FOR_BATCHES, judge, worst
from kafkaprod.engine.transactions.calls import Failure, OffsetsCall
from kafkaprod.engine.transactions.commit_table import Log, after_answer, after_silence
from kafkaprod.engine.transactions.intents import Intents
from kafkaprod.engine.transactions.members import Members
from kafkaprod.engine.transactions.pauses import Pauses
from kafkaprod.engine.transactions.requests import TransactionRequest
from kafkaprod.engine.transactions.states import ENDING, IDLE, OPEN, State
from kafkaprod.engine.transactions.verdicts import Facts, Step, Verdict
from kafkaprod.errors import (
    AuthenticationError,
    CorruptDataError,
    IllegalStateError,
    KafkaError,
    TransactionAbortedError,
    UnsupportedVersionError,
    broker_code,
)
from kafkaprod.protocol.error_codes import ErrorCode, error_for
from kafkaprod.retry import ExponentialBackoff
from kafkaprod.structs import Node, TopicPartition

ASK_AGAIN_MS: Final = 1000  # a coordinator that is being replaced may answer from old memory (KAFKA-21181)


class TransactionMachine(Intents):
    """The sender's half: which request is next, and what its answer means.

    Args:
        config: Options.
        random: Jitter of backoffs, in [0, 1).

    Attributes:
        can_bump: Whether the coordinator gives a running producer a newer epoch (Kafka 2.5).
        can_use_v2: Whether the cluster and all its known brokers can run the next transaction under v2. Written by
            the sender.
        refuses_late: Whether the brokers check that a transaction is open before they append to it (Kafka 3.6). Written
            by the sender.
    """

    def __init__(self, config: ProducerConfig, random: Callable[[], float]) -> None:
        super().__init__(config)
        self._timeout_ms = config.transaction_timeout_ms
        self.can_use_v2 = False
        self.refuses_late = True
        self._in_flight: TransactionRequest | None = None
        self._last_end: TransactionRequest | None = None
        self._coordinator: Node | None = None
        self._group_coordinators: dict[str, Node] = {}
        self._pauses = Pauses(ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms), random)
        self._not_before_ms = 0
        self.can_bump = True
        self._is_bump_due = False
        self._is_first_init = True
        self._moved_ms: int | None = None
        self._has_asked_again = False

    def take_name(self, transactional_id: str) -> None:
        """Take another transactional id, which may have another coordinator."""
        super().take_name(transactional_id)
        self._coordinator = self._last_end = None
        self._group_coordinators.clear()
        self._is_first_init, self._is_bump_due = True, False

    def may_drain(self, partition: TopicPartition) -> bool:
        """Whether a batch of the partition may go out; under v1 the partition is added if it is not a member yet."""
        return self.state in OPEN and self.members.may_drain(partition)

    def on_drained(self) -> None:
        """Batches of the transaction went out: the coordinator must hear how it ends."""
        self.members.is_started = True

    def next_request(self, now_ms: int, *, has_batches: bool) -> TransactionRequest | None:
        """The request to send now; None if none is due.

        Args:
            now_ms: The time.
            has_batches: A batch of the transaction has no outcome yet.
        """
        if self._in_flight is not None or now_ms < self._not_before_ms:
            return None
        if self.state in ENDING and not has_batches:
            members = self.members
            if not (members.is_started or members.unanswered or members.unanswered_groups):
                self._on_ended()  # the coordinator does not know of this transaction: to end it there is an error
            elif members.is_v2:  # nothing is left to be added
                self._in_flight = self._end_request()
                return self._in_flight
        request = self._derive(has_batches)
        self._in_flight = request
        if request is not None and request.step is Step.ADD_PARTITIONS:
            self.members.on_partitions_sent(list(request.partitions))
        elif request is not None and request.step is Step.ADD_OFFSETS:
            assert request.group_id is not None
            self.members.on_group_sent(request.group_id)
        elif request is not None and request.step is Step.COMMIT_OFFSETS and self.members.is_v2:
            self.members.is_started = True
        return request

    @property
    def is_idle(self) -> bool:
        """Whether no request can be due before a call of the application, a new partition or a failed batch."""
        members = self.members
        is_waiting = members.new or members.unanswered or members.unanswered_groups
        return self.state in IDLE and self._call is None and self._in_flight is None and not is_waiting

    def wait_ms(self, now_ms: int) -> int:
        """How long `next_request` will have nothing because of a backoff; 0 if that is not the reason."""
        return 0 if self._in_flight is not None else max(self._not_before_ms - now_ms, 0)

    def _derive(self, has_batches: bool) -> TransactionRequest | None:
        state, members = self.state, self.members
        if members.is_v2 and state in ENDING:
            return None  # batches have no outcome yet
        me = requests.TransactionalProducer(self._name, self.producer_id, self.epoch)
        if state is State.INITIALIZING:
            timeout_ms, is_bump = self._timeout_ms, not self._is_first_init
            return self._to(lambda node: requests.init_producer_id(me, node, timeout_ms, is_bump=is_bump))
        if state not in (State.IN_TRANSACTION, State.COMMITTING, State.ABORTING):
            return None
        partitions = sorted(members.unanswered) if state is State.ABORTING else members.to_add
        if partitions:
            return self._to(lambda node: requests.add_partitions(me, node, partitions))
        group_id = min(members.unanswered_groups, default=None)
        call = self._call
        if group_id is None and isinstance(call, OffsetsCall) and not call.is_done:
            if members.has_group(call.group.group_id):
                return self._to_group(me, call)
            group_id = call.group.group_id
        if group_id is not None:
            group = group_id
            return self._to(lambda node: requests.add_offsets(me, node, group))
        return None if state is State.IN_TRANSACTION or has_batches else self._end_request()

    def _end_request(self) -> TransactionRequest:
        """EndTxn, or the request that comes before it."""
        node, is_commit = self._coordinator, self.state is State.COMMITTING
        if node is None:
            return requests.find_coordinator(self._name, None)
        last = self._last_end
        if last is not None and (last.node, last.is_commit, last.is_v2) == (node, is_commit, self.members.is_v2):
            # The last EndTxn has been answered: reuse the object and change only its epoch.
            last.message.producer_id, last.message.producer_epoch = self.producer_id, self.epoch  # type: ignore[attr-defined]
            return last
        me = requests.TransactionalProducer(self._name, self.producer_id, self.epoch)
        self._last_end = requests.end(me, node, is_commit=is_commit, is_v2=self.members.is_v2)
        return self._last_end

    def _to(self, make: Callable[[Node], TransactionRequest]) -> TransactionRequest:
        """A request to the transaction coordinator, or one to find it."""
        if self._coordinator is None:
            return requests.find_coordinator(self._name, None)
        return make(self._coordinator)

    def _to_group(self, me: requests.TransactionalProducer, call: OffsetsCall) -> TransactionRequest:
        node = self._group_coordinators.get(call.group.group_id)
        if node is None:
            return requests.find_coordinator(self._name, call.group.group_id)
        return requests.commit_offsets(me, node, call, is_v2=self.members.is_v2)

    # -- answers -------------------------------------------------------------------------------------------------------

    def on_response(self, response: Any, version: int, now_ms: int) -> None:
        """Take the answer to the request in flight."""
        request = self._take()
        if self.state is State.FATAL_ERROR:
            return
        try:
            _HANDLERS[request.step](self, request, response, version, now_ms)
        except (CorruptDataError, IllegalStateError) as error:
            # The latter is a bug of this package: better no transaction than a wrong one.
            self._note_lost(request)
            self._fail(self._from_error(request.step, error), is_fatal=True)

    def on_no_answer(self, error: KafkaError, now_ms: int, *, was_sent: bool = True) -> None:
        """The request in flight got no answer: its connection ended, it timed out or could not be sent."""
        request = self._take()
        if was_sent:
            self._note_lost(request)
        if isinstance(error, UnsupportedVersionError):
            is_abortable = request.step is Step.COMMIT_OFFSETS
            self._fail(self._from_error(request.step, error, is_abortable=is_abortable), is_fatal=not is_abortable)
        elif isinstance(error, AuthenticationError):
            self._on_refused(self._from_error(request.step, error))
        else:
            self._forget_coordinator(request)
            self.last_refusal = error
            self._not_before_ms = now_ms + self._pauses.retry_ms()

    def on_authentication_error(self, error: AuthenticationError) -> None:
        """No connection can be made with these credentials: a first init fails, to be repeated."""
        if self.state is State.INITIALIZING and self._is_first_init:
            self._on_refused(self._from_error(Step.INIT, error))

    def on_batch_failed(self, topic: str, partition: int, error: KafkaError, *, had_sequence: bool) -> None:
        """A batch of the transaction failed: it cannot be committed.

        Args:
            topic, partition: Those of the batch.
            error: Its error.
            had_sequence: It was sent at least once, so that a sequence number is missing in the partition now.
        """
        if self.state not in OPEN or isinstance(error, TransactionAbortedError):
            return
        makes_gap = had_sequence and not self.members.is_v2
        make: Callable[[KafkaError, str, str], Failure] = failures.failed_records
        if broker_code(error) in FATAL_FOR_BATCHES:
            make = failures.fatal_records
        elif makes_gap and error.possibly_persisted and not self.refuses_late:  # KAFKA-14053
            make = failures.late_records
        elif makes_gap and not self.can_bump and not self.members.leaves_sequence_free(topic, partition, error):
            make = failures.stuck_records
        elif makes_gap and self.can_bump:
            self._is_bump_due = True
        failure = make(error, f"{topic}[{partition}]", self._who())
        self._fail(failure, is_fatal=make is not failures.failed_records)

    def _take(self) -> TransactionRequest:
        request, self._in_flight = self._in_flight, None
        if request is None:
            raise IllegalStateError(f"no request of transactional_id={self._name!r} is in flight")
        return request

    def end(self, failure: Failure) -> Failure:
        """Fail the call that waits: the producer is closed. Return the failure, with what is certain by now."""
        if self._in_flight is not None:
            self._note_lost(self._in_flight)
        failure = replace(failure, outcome=self._certain)
        self._finish_call(failure)
        return failure

    def _note_lost(self, request: TransactionRequest) -> None:
        """A request that was sent has no answer: the coordinator may have done what it says, or may do so late."""
        if request.step is Step.END:
            self._log = after_silence(self._log, is_commit=request.is_commit)
        elif request.step in (Step.ADD_PARTITIONS, Step.ADD_OFFSETS):
            self.members.on_answer_lost()
        else:
            return
        if not self.members.is_v2 and self.can_bump:
            self._is_bump_due = True  # else it may come so late that it changes the next transaction (KAFKA-17754)

    def coordinator_of_group(self, group_id: str) -> int | None:
        """Return the node that has taken the last offsets of a group; None if it must be found again."""
        node = self._group_coordinators.get(group_id)
        return None if node is None else node.node_id

    def _forget_coordinator(self, request: TransactionRequest) -> None:
        if request.step is Step.COMMIT_OFFSETS:
            assert request.group_id is not None
            self._group_coordinators.pop(request.group_id, None)
        elif request.step is not Step.FIND_COORDINATOR:
            self._coordinator = None

    def _on_code(
        self, request: TransactionRequest, code: int, now_ms: int, where: str = "", text: str | None = None
    ) -> bool:
        """Do what an answer calls for; return whether it was success."""
        step = request.step
        if code == 0:
            if step is not Step.FIND_COORDINATOR:  # which is only a step back to the request that is repeated
                self._on_progress()
            return True
        facts = Facts(self.members.is_v2, request.is_commit, self.can_bump, self._is_first_init)
        verdict = judge(step, code, facts)
        if verdict is Verdict.FATAL and self._may_ask_again(now_ms):
            self._has_asked_again = True
            verdict = Verdict.FIND_COORDINATOR
        if step is Step.END:
            self._log = after_answer(self._log, code, is_commit=request.is_commit)
        who = self._who() if text is None else f"{self._who()}; the broker adds: {text}"
        if verdict is Verdict.FIND_COORDINATOR:
            self._forget_coordinator(request)
            if code == ErrorCode.NOT_COORDINATOR and step is not Step.COMMIT_OFFSETS:
                self._moved_ms = now_ms
        elif verdict is Verdict.ABORTABLE and not (self.state is State.ABORTING and step is Step.FIND_COORDINATOR):
            if code == ErrorCode.UNKNOWN_PRODUCER_ID:
                self._is_bump_due = True
            self._fail(failures.abortable(step, code, who, self._certain, where), is_fatal=False)
            return False
        elif verdict in (Verdict.ABORTABLE, Verdict.FATAL):  # without a coordinator nothing can be aborted either
            self._fail(failures.fatal(step, code, who, self._certain, where), is_fatal=True)
            return False
        elif verdict is Verdict.REFUSED:
            self._on_refused(failures.refused(step, code, who))
            return False
        self.last_refusal = error_for(code, text, about=f"{step.value}{where}")
        is_concurrent = verdict is Verdict.WAIT_FOR_PREVIOUS
        pause_ms = self._pauses.concurrent_ms(now_ms) if is_concurrent else self._pauses.retry_ms()
        self._not_before_ms = now_ms + pause_ms
        return False

    def _on_progress(self) -> None:
        """Note that a request was answered for good."""
        self._pauses.reset()
        self._has_asked_again = False
        self.last_refusal = None

    def _may_ask_again(self, now_ms: int) -> bool:
        return self._moved_ms is not None and now_ms - self._moved_ms <= ASK_AGAIN_MS and not self._has_asked_again

    def _on_refused(self, failure: Failure) -> None:
        """Fail a first init so that it can be made again; anything later ends the producer."""
        if self.state is not State.INITIALIZING or not self._is_first_init:
            self._fail(failure, is_fatal=True)
            return
        self._move(State.UNINITIALIZED)
        self._finish_call(failure)

    def _on_coordinator(self, request: TransactionRequest, response: Any, version: int, now_ms: int) -> None:
        code, text, node = requests.read_coordinator(request, response, version)
        where = "" if request.group_id is None else f" of group {request.group_id!r}"
        if not self._on_code(request, code, now_ms, where, text):
            return
        assert node is not None
        if request.group_id is None:
            self._coordinator = node
        else:
            self._group_coordinators[request.group_id] = node

    def _on_init(self, request: TransactionRequest, response: Any, version: int, now_ms: int) -> None:
        if self.state is not State.INITIALIZING:
            return  # the call failed meanwhile, because of refused credentials
        if not self._on_code(request, response.error_code, now_ms):
            return
        if response.producer_id < 0 or response.producer_epoch < 0:
            what = f"producer id {response.producer_id} and epoch {response.producer_epoch}"
            raise CorruptDataError(f"InitProducerId was answered with {what}: neither may be negative")
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        self.can_bump = version >= 3
        self._is_first_init = self._is_bump_due = False
        self._is_v2 = self.can_use_v2
        self.members = Members(is_v2=self._is_v2)
        self._move(State.READY)
        self._finish_call()

    def _on_partitions(self, request: TransactionRequest, response: Any, _version: int, now_ms: int) -> None:
        codes = requests.read_partitions(request, response)
        self.members.on_partitions_answered(codes)
        facts = Facts(can_bump=self.can_bump)
        code = worst(request.step, list(codes.values()), facts)
        self._on_code(request, code, now_ms, _naming(codes))

    def _on_group(self, request: TransactionRequest, response: Any, _version: int, now_ms: int) -> None:
        assert request.group_id is not None
        self.members.on_group_answered(request.group_id, response.error_code)
        self._on_code(request, response.error_code, now_ms, f" of group {request.group_id!r}")

    def _on_offsets(self, request: TransactionRequest, response: Any, _version: int, now_ms: int) -> None:
        codes = requests.read_offsets_answer(request, response)
        call = request.call
        assert call is not None
        for partition, code in codes.items():
            if code == 0:
                call.missing.pop(partition, None)
        if call.is_done or call is not self._call:
            self._on_progress()
            return  # its transaction is being aborted
        facts = Facts(self.members.is_v2)
        code = worst(request.step, list(codes.values()), facts)
        where = f" of group {request.group_id!r}{_naming(codes)}"
        if self._on_code(request, code, now_ms, where):
            call.finish()

    def _on_end(self, request: TransactionRequest, response: Any, version: int, now_ms: int) -> None:
        if response.error_code:
            self._on_code(request, response.error_code, now_ms)
            return
        self._on_progress()
        if version >= 5 and response.producer_id >= 0:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self._is_bump_due = False
        self._on_ended()

    def _on_ended(self) -> None:
        """The transaction is committed or aborted; get a newer epoch if the next one needs it."""
        if self.can_use_v2 and not self._is_v2:
            # A leader that adds partitions by itself could take one of the former transaction for added.
            self._is_bump_due = True
        if self.producer_id < 0:
            self._is_bump_due = True
        self._is_v2 = self.can_use_v2
        self.members = Members(is_v2=self._is_v2)
        self.failure = None
        self._log = Log.WITHOUT
        if self._is_bump_due:
            if self._call is not None:
                self._call.is_decided = True
            self._is_first_init = self.producer_id < 0
            self._move(State.INITIALIZING)
        else:
            self._move(State.READY)
            self._finish_call()


def _naming(codes: dict[TopicPartition, int]) -> str:
    """The partitions that failed, at most three."""
    failed = [
        f"{topic}[{number}]"
        for (topic, number), code in codes.items()
        if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)
    ]
    return "" if not failed else f" for {', '.join(failed[:3])}{' ...' if len(failed) > 3 else ''}"


_HANDLERS: Final[dict[Step, Callable[[TransactionMachine, TransactionRequest, Any, int, int], None]]] = {
    Step.FIND_COORDINATOR: TransactionMachine._on_coordinator,
    Step.INIT: TransactionMachine._on_init,
    Step.BUMP: TransactionMachine._on_init,
    Step.ADD_PARTITIONS: TransactionMachine._on_partitions,
    Step.ADD_OFFSETS: TransactionMachine._on_group,
    Step.COMMIT_OFFSETS: TransactionMachine._on_offsets,
    Step.END: TransactionMachine._on_end,
}
