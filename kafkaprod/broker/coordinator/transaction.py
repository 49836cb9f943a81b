"""The state of one transactional id, and what each request changes in it.

    Empty --add--> Ongoing --end--> PrepareCommit | PrepareAbort --markers written--> CompleteCommit | CompleteAbort
      ^               ^                                                                        |         |
      +-----init------|------------------------------------------------------------------------+---------+
                      +--add-------------------------------------------------------------------+---------+

A `Transaction` is immutable. Each function takes the present one and returns a `Transition`: an error, or the next one,
which the caller makes durable before it takes effect. Version 1 of the protocol (TV1) keeps the epoch over
transactions; version 2 (TV2, KIP-890) gives each transaction an epoch of its own. Pure: no I/O, no clock; times are
wall clock ms.
Source: Kafka, TransactionCoordinator and TransactionMetadata; KIP-98, KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any, NamedTuple

from kafkaprod.errors import IllegalStateError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.storage.batch_header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kafkaprod.structs import TopicPartition

NO_TIME = -1
NO_TIMEOUT_MS = 0x7FFFFFFF
"""The timeout of an id whose transactions never expire (two-phase commit)."""
LAST_EPOCH = 0x7FFF - 1
"""The last epoch that is given out; then the id gets a new producer id."""
TV1, TV2 = 1, 2


class TransactionState(IntEnum):
    """The states by their numbers in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that DescribeTransactions shows."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_S = TransactionState
PREPARED = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""The outcome is decided and markers may be missing."""
AT_REST = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is open."""
TRANSITIONS: Mapping[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.ONGOING: frozenset({_S.ONGOING, *PREPARED}),
    _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
    _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.COMPLETE_ABORT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.DEAD: frozenset(),
    _S.PREPARE_EPOCH_FENCE: frozenset(),
}


class ProducerIdAndEpoch(NamedTuple):
    """Who a producer is."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id.

    Attributes:
        previous_producer_id: The one before; a retried EndTxn or InitProducerId may still name it.
        next_producer_id: Takes over when the transaction is complete, as the epochs are used up.
        epoch: The epoch of the producer; of the markers while the outcome is decided.
        last_epoch: The one a retried InitProducerId may name. Not in the log.
        start_ms: When the transaction began, NO_TIME without one.
        last_update_ms: When the log was last written.
        client_version: The version of the transaction protocol the open transaction uses, 0 for TV1.
        is_fence_unwritten: The epoch was raised for a fence whose write failed; the next attempt does not raise it
            again. Not in the log.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    last_update_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0
    is_fence_unwritten: bool = False

    @property
    def identity(self) -> ProducerIdAndEpoch:
        """Who its producer is."""
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    @property
    def identity_when_complete(self) -> ProducerIdAndEpoch:
        """Who its producer will be when all markers are written."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return self.identity


class Transition(NamedTuple):
    """The outcome of a request.

    Attributes:
        error: NONE if it was accepted.
        after: To be written; None if nothing changes.
        answer: Who the producer is from now on, for InitProducerId and EndTxn 5.
    """

    error: ErrorCode = ErrorCode.NONE
    after: Transaction | None = None
    answer: ProducerIdAndEpoch = ProducerIdAndEpoch()


NewProducerId = Callable[[], int]
"""Gives out a fresh producer id."""


# -- InitProducerId ----------------------------------------------------------------------------------------------------


def init(
    now: Transaction,
    given: ProducerIdAndEpoch | None,
    timeout_ms: int,
    now_ms: int,
    level: int,
    new_producer_id: NewProducerId,
) -> Transition:
    """InitProducerId: fence the earlier producer and give out the next epoch.

    Args:
        now: The state; one with epoch -1 for an id that is not known yet.
        given: What the producer believes it is (KIP-360), None if it just started.
        timeout_ms: The timeout of its transactions; checked by the caller.
        now_ms: Wall time.
        level: The level of the feature transaction.version.
        new_producer_id: Called when the epochs are used up.

    Returns:
        An open transaction is aborted: the transition holds that, with CONCURRENT_TRANSACTIONS, so that the producer
        asks again.
    """
    if given is not None and not _may_be(now, given):
        return Transition(ErrorCode.PRODUCER_FENCED)
    if now.state in PREPARED:
        return Transition(ErrorCode.CONCURRENT_TRANSACTIONS)
    if now.state is TransactionState.ONGOING:
        if given is not None and given.producer_id == now.producer_id and given.epoch < now.epoch:
            return Transition(ErrorCode.PRODUCER_FENCED)  # a zombie must not abort its successor's transaction
        return Transition(ErrorCode.CONCURRENT_TRANSACTIONS, fence(now, now_ms, level, new_producer_id))
    if now.epoch >= LAST_EPOCH and (given is None or given.epoch == now.epoch):
        after = _reset(
            now,
            timeout_ms,
            now_ms,
            producer_id=new_producer_id(),
            previous_producer_id=now.producer_id,
            epoch=0,
            last_epoch=NO_PRODUCER_EPOCH if given is None else now.epoch,
        )
    else:
        bumped = now.epoch if now.is_fence_unwritten else now.epoch + 1
        if given is None:
            after = _reset(now, timeout_ms, now_ms, epoch=bumped, last_epoch=NO_PRODUCER_EPOCH)
        elif now.epoch in (NO_PRODUCER_EPOCH, given.epoch):
            after = _reset(now, timeout_ms, now_ms, epoch=bumped, last_epoch=now.epoch)
        elif given.epoch == now.last_epoch:
            after = _reset(now, timeout_ms, now_ms)  # the answer to its last attempt was lost
        else:
            return Transition(ErrorCode.PRODUCER_FENCED)
    return Transition(after=after, answer=after.identity)


def _may_be(now: Transaction, given: ProducerIdAndEpoch) -> bool:
    is_before_overflow = given.producer_id == now.previous_producer_id and given.epoch >= LAST_EPOCH
    return now.epoch == NO_PRODUCER_EPOCH or given.producer_id == now.producer_id or is_before_overflow


def _reset(now: Transaction, timeout_ms: int, now_ms: int, **changes: Any) -> Transaction:
    return _move(
        now,
        TransactionState.EMPTY,
        now_ms,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIME,
        client_version=0,
        is_fence_unwritten=False,
        **changes,
    )


# -- adding partitions -------------------------------------------------------------------------------------------------


def add(
    now: Transaction,
    given: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Transition:
    """Make partitions part of the transaction; the first ones begin it."""
    error = _check_producer(now, given)
    if error is not ErrorCode.NONE:
        return Transition(error)
    is_ongoing = now.state is TransactionState.ONGOING
    if is_ongoing and now.partitions.issuperset(partitions):
        return Transition()
    after = _move(
        now,
        TransactionState.ONGOING,
        now_ms,
        partitions=now.partitions.union(partitions),
        start_ms=now.start_ms if is_ongoing else now_ms,
        client_version=client_version,
    )
    return Transition(after=after)


def verify(
    now: Transaction, given: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Check that partitions are part of the transaction: NONE or TRANSACTION_ABORTABLE each, or one error for all."""
    error = _check_producer(now, given)
    if error is not ErrorCode.NONE:
        return dict.fromkeys(partitions, error)
    return {
        partition: ErrorCode.NONE if partition in now.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }


def _check_producer(now: Transaction, given: ProducerIdAndEpoch) -> ErrorCode:
    if given.producer_id != now.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if given.epoch != now.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if now.state in PREPARED else ErrorCode.NONE


# -- ending ------------------------------------------------------------------------------------------------------------


class _End(Enum):
    """What EndTxn does, besides refusing with an error code. Equal to no error code."""

    PREPARE = "prepare"
    ABORT_NOTHING = "abort nothing"
    """Raise the epoch though nothing is open: the producer cannot know whether its transaction had begun."""
    ALREADY = "it has been done"


_OK, _BAD, _BUSY, _FENCED = (
    _End.ALREADY,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED,
)
_Outcome = _End | ErrorCode
# state -> what to do on (commit, abort)
END_V1: Mapping[TransactionState, tuple[_Outcome, _Outcome]] = {
    _S.EMPTY: (_BAD, _BAD),
    _S.ONGOING: (_End.PREPARE, _End.PREPARE),
    _S.PREPARE_COMMIT: (_BUSY, _BAD),
    _S.PREPARE_ABORT: (_BAD, _BUSY),
    _S.COMPLETE_COMMIT: (_OK, _BAD),
    _S.COMPLETE_ABORT: (_BAD, _OK),
}
END_V2: Mapping[TransactionState, tuple[_Outcome, _Outcome]] = {
    _S.EMPTY: (_BAD, _End.ABORT_NOTHING),
    _S.ONGOING: (_End.PREPARE, _End.PREPARE),
    # The transaction before is decided and answered, its markers are under way: the end of the next one, in which
    # nothing was sent, can come so early. Kafka's coordinator has a transition pending then, and answers the same.
    _S.PREPARE_COMMIT: (_BUSY, _BUSY),
    _S.PREPARE_ABORT: (_BUSY, _BUSY),
    _S.COMPLETE_COMMIT: (_BAD, _End.ABORT_NOTHING),
    _S.COMPLETE_ABORT: (_BAD, _End.ABORT_NOTHING),
}
END_V2_RETRY: Mapping[TransactionState, tuple[_Outcome, _Outcome]] = {
    _S.EMPTY: (_FENCED, _FENCED),
    _S.ONGOING: (_FENCED, _FENCED),
    _S.PREPARE_COMMIT: (_BUSY, _BAD),
    _S.PREPARE_ABORT: (_BAD, _BUSY),
    _S.COMPLETE_COMMIT: (_OK, _BAD),
    _S.COMPLETE_ABORT: (_BAD, _OK),
}


def end(
    now: Transaction,
    given: ProducerIdAndEpoch,
    is_commit: bool,
    client_version: int,
    now_ms: int,
    new_producer_id: NewProducerId,
) -> Transition:
    """EndTxn: decide the transaction. The markers are the caller's to write, then `complete`.

    Args:
        now: The state.
        given: Who the producer is.
        is_commit: Or abort.
        client_version: TV2 from EndTxn 5 on, TV1 below.
        now_ms: Wall time.
        new_producer_id: Called when the epochs are used up.
    """
    table = _table_of_end(now, given, client_version)
    if isinstance(table, ErrorCode):
        return Transition(table)
    outcome = table[now.state][0 if is_commit else 1]
    if isinstance(outcome, ErrorCode):
        return Transition(outcome)
    if outcome is _End.ALREADY:
        return Transition(answer=now.identity)
    state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
    start_ms = now.start_ms if outcome is _End.PREPARE else now_ms
    if client_version >= TV2:
        after = _prepare_bumped(now, state, now_ms, start_ms, new_producer_id)
    else:
        after = _move(now, state, now_ms, client_version=0)
    return Transition(after=after, answer=after.identity_when_complete)


def _table_of_end(
    now: Transaction, given: ProducerIdAndEpoch, client_version: int
) -> Mapping[TransactionState, tuple[_Outcome, _Outcome]] | ErrorCode:
    # Only an end of TV2 raised the epoch. After one of TV1 the epoch before is that of a producer which was replaced.
    may_be_repeated = client_version >= TV2 and now.client_version >= TV2
    is_overflow = may_be_repeated and given == (now.previous_producer_id, LAST_EPOCH) and now.epoch == 0
    if given.producer_id != now.producer_id and not is_overflow:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if may_be_repeated and (is_overflow or given.epoch == now.epoch - 1):
        return END_V2_RETRY
    if given.epoch != now.epoch:
        return ErrorCode.PRODUCER_FENCED
    return END_V2 if client_version >= TV2 else END_V1


def fence(now: Transaction, now_ms: int, level: int, new_producer_id: NewProducerId) -> Transaction:
    """Abort the open transaction of a producer that is replaced or ran out of time; its epoch is worth nothing then."""
    if level >= TV2:
        return _prepare_bumped(now, TransactionState.PREPARE_ABORT, now_ms, now.start_ms, new_producer_id)
    epoch = now.epoch if now.is_fence_unwritten else now.epoch + 1
    return _move(
        now,
        TransactionState.PREPARE_ABORT,
        now_ms,
        epoch=epoch,
        last_epoch=NO_PRODUCER_EPOCH,
        client_version=0,
        is_fence_unwritten=False,
    )


def fence_unwritten(now: Transaction, level: int) -> Transaction:
    """What stays in memory when the write of a fence failed: the producer is fenced, its transaction is open still."""
    if level >= TV2 or now.is_fence_unwritten:
        return now
    return replace(now, epoch=now.epoch + 1, last_epoch=NO_PRODUCER_EPOCH, is_fence_unwritten=True)


def complete(now: Transaction, now_ms: int) -> Transaction:
    """All markers are written."""
    is_commit = now.state is TransactionState.PREPARE_COMMIT
    producer_id, epoch = now.identity_when_complete
    return _move(
        now,
        TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        now_ms,
        producer_id=producer_id,
        epoch=epoch,
        previous_producer_id=now.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
    )


def is_overdue(now: Transaction, now_ms: int) -> bool:
    """Whether the transaction is open for longer than its producer allowed."""
    if now.state is not TransactionState.ONGOING or now.timeout_ms == NO_TIMEOUT_MS:
        return False
    return now.start_ms + now.timeout_ms < now_ms


def is_expired(now: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Whether the id may be forgotten: it was not used for its expiration time."""
    return now.state in AT_REST and now.last_update_ms + expiration_ms <= now_ms


def _prepare_bumped(
    now: Transaction, state: TransactionState, now_ms: int, start_ms: int, new_producer_id: NewProducerId
) -> Transaction:
    """TV2: the markers carry the next epoch, so that what the producer sends late with the old one is refused."""
    return _move(
        now,
        state,
        now_ms,
        epoch=now.epoch + 1,
        last_epoch=now.epoch,
        next_producer_id=new_producer_id() if now.epoch >= LAST_EPOCH else NO_PRODUCER_ID,
        start_ms=start_ms,
        client_version=TV2,
    )


def _move(now: Transaction, state: TransactionState, now_ms: int, **changes: Any) -> Transaction:
    if state not in TRANSITIONS[now.state]:
        raise IllegalStateError(
            f"transactional id {now.transactional_id!r} cannot go from {now.state.title} to {state.title}"
        )
    return replace(now, state=state, last_update_ms=now_ms, **changes)
