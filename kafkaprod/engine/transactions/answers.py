"""What an error code means for the transaction: one table per request. Pure.

Source: TransactionManager (Kafka 4.3), KIP-360, KIP-588, KIP-890, KIP-1050. Two deviations, both where Kafka's own
client fails for good although the transaction can simply be aborted: a v2 coordinator that answers INVALID_TXN_STATE or
PRODUCER_FENCED to a commit, and a group coordinator that answers INVALID_PRODUCER_EPOCH or INVALID_TXN_STATE under v2,
usually ended the transaction itself because it took too long. The abort that follows has the last word: its answer is
NONE, or PRODUCER_FENCED if another producer took over.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kafkaprod.protocol.error_codes import describe


class Step(Enum):
    """A request of the transaction; the value is its name in messages."""

    FIND_COORDINATOR = "FindCoordinator"
    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END = "EndTxn"
    BUMP = "InitProducerId for a newer epoch"

    __hash__ = object.__hash__  # Enum's own hashes the name in Python


class Verdict(Enum):
    """What an answer calls for."""

    DONE = auto()
    RETRY = auto()  # the same request after a backoff
    WAIT_FOR_PREVIOUS = auto()  # the same request after a short wait: the previous transaction is being completed
    FIND_COORDINATOR = auto()  # the coordinator moved: find it, then the same request
    REPEAT = auto()  # the outcome is unknown: as RETRY, but it may have happened
    ABORTABLE = auto()
    FATAL = auto()
    REFUSED = auto()  # the call fails and may be made again


@dataclass(frozen=True, slots=True)
class Facts:
    """What a verdict depends on besides request and code.

    Attributes:
        is_v2: The rules of the current transaction.
        is_commit: EndTxn commits; else it aborts.
        can_bump: The coordinator knows InitProducerId 3, so that a newer epoch can be had (Kafka 2.5).
        is_first_init: The producer has never been initialized.
    """

    is_v2: bool = False
    is_commit: bool = False
    can_bump: bool = True
    is_first_init: bool = False


REQUEST_TIMED_OUT: Final = 7
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
INVALID_PRODUCER_EPOCH: Final = 47
INVALID_TXN_STATE: Final = 48
INVALID_PRODUCER_ID_MAPPING: Final = 49
INVALID_TRANSACTION_TIMEOUT: Final = 50
CONCURRENT_TRANSACTIONS: Final = 51
UNKNOWN_PRODUCER_ID: Final = 59
PRODUCER_FENCED: Final = 90

GROUP_MOVED_ON: Final = frozenset({22, 25, 69, 82, 113})
"""The member that read the input is not the group's any more: another one may read it again."""

_MOVED: Final = {COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR}
_FENCING: Final = {INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, INVALID_TXN_STATE}
_REFUSALS: Final = {31, 53}

# Definite codes that only end the transaction. What is neither here nor retriable ends the producer, but for
# AddPartitionsToTxn: with it nothing has been written yet.
_ABORTABLE: Final[dict[Step, frozenset[int]]] = {
    Step.FIND_COORDINATOR: frozenset({30, 120}),
    Step.INIT: frozenset({120}),
    Step.BUMP: frozenset({120}),
    Step.ADD_OFFSETS: frozenset({12, 24, 29, 30, 120}),
    Step.COMMIT_OFFSETS: frozenset({12, 24, 29, 30, 120}) | GROUP_MOVED_ON,
    Step.END: frozenset({120}),
}
_FATAL_FOR_PARTITIONS: Final = _FENCING | {INVALID_PRODUCER_ID_MAPPING, 53, 35}

FATAL_FOR_BATCHES: Final = frozenset({31, 35, INVALID_PRODUCER_ID_MAPPING, 53, PRODUCER_FENCED})
"""Answers to a produce request that end the producer; all others end the transaction."""


def judge(step: Step, code: int, facts: Facts) -> Verdict:
    """Decide what the answer `code` to a request calls for."""
    if code == 0:
        return Verdict.DONE
    if code in _MOVED:
        return Verdict.RETRY if step is Step.FIND_COORDINATOR else Verdict.FIND_COORDINATOR
    if step is Step.COMMIT_OFFSETS and code == REQUEST_TIMED_OUT:
        return Verdict.FIND_COORDINATOR
    if code == CONCURRENT_TRANSACTIONS:
        return Verdict.WAIT_FOR_PREVIOUS
    if describe(code).retriable:
        return Verdict.RETRY
    if code == UNKNOWN_PRODUCER_ID and step in (Step.ADD_PARTITIONS, Step.ADD_OFFSETS, Step.END):
        return Verdict.ABORTABLE if facts.can_bump and not _is_abort(step, facts) else Verdict.FATAL
    if facts.is_first_init and code in _REFUSALS and step in (Step.FIND_COORDINATOR, Step.INIT):
        return Verdict.REFUSED
    if step is Step.END:
        return _judge_end(code, facts)
    if step is Step.ADD_PARTITIONS:
        return Verdict.FATAL if code in _FATAL_FOR_PARTITIONS else Verdict.ABORTABLE
    if step is Step.COMMIT_OFFSETS and facts.is_v2 and code in _FENCING:
        return Verdict.ABORTABLE
    return Verdict.ABORTABLE if code in _ABORTABLE[step] else Verdict.FATAL


def _judge_end(code: int, facts: Facts) -> Verdict:
    if code == -1:
        return Verdict.REPEAT
    if not facts.is_commit:
        return Verdict.FATAL  # an abort that cannot be aborted
    if facts.is_v2 and code in _FENCING:
        return Verdict.ABORTABLE
    return Verdict.ABORTABLE if code in _ABORTABLE[Step.END] else Verdict.FATAL


def _is_abort(step: Step, facts: Facts) -> bool:
    return step is Step.END and not facts.is_commit


_WEIGHT: Final = {
    verdict: weight
    for weight, verdict in enumerate(
        (
            Verdict.DONE,
            Verdict.RETRY,
            Verdict.REPEAT,
            Verdict.WAIT_FOR_PREVIOUS,
            Verdict.FIND_COORDINATOR,
            Verdict.REFUSED,
            Verdict.ABORTABLE,
            Verdict.FATAL,
        )
    )
}
OPERATION_NOT_ATTEMPTED: Final = 55


def worst(step: Step, codes: list[int], facts: Facts) -> int:
    """The code that decides about a request with one code per partition.

    55 only means that another partition failed: with a code that may pass, such as 3 for a new topic, all are repeated.
    """
    reasons = [code for code in codes if code not in (0, OPERATION_NOT_ATTEMPTED)]
    return max(reasons or codes, key=lambda code: _WEIGHT[judge(step, code, facts)], default=0)
