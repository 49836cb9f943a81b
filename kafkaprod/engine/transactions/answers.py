"""What an error code means for the transaction: one table per request. Pure. That of EndTxn: `commit_table`.

Source: TransactionManager (Kafka 4.3), KIP-360, KIP-588, KIP-890, KIP-1050. A deviation, where Kafka's own client fails
for good although the transaction can simply be aborted: a group coordinator that answers INVALID_PRODUCER_EPOCH or
INVALID_TXN_STATE under v2 usually meets a transaction that its coordinator ended because it took too long. The abort
that follows has the last word: its answer is NONE, or PRODUCER_FENCED if another producer took over.
"""

from __future__ import annotations

from typing import Final

from kafkaprod.engine.transactions.commit_table import judge_end
from kafkaprod.engine.transactions.verdicts import Facts, Step, Verdict
from kafkaprod.protocol.error_codes import ErrorCode, describe

GROUP_MOVED_ON: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""The member that read the input is not the group's any more: another one may read it again."""

_MOVED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_FENCING: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE})
_REFUSALS: Final = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})
_REFUSED_OFFSETS: Final = frozenset(
    {
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)

# Definite codes that only end the transaction. What is neither here nor retriable ends the producer, but for
# AddPartitionsToTxn: with it nothing has been written yet.
_ABORTABLE: Final[dict[Step, frozenset[ErrorCode]]] = {
    Step.FIND_COORDINATOR: frozenset({ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTION_ABORTABLE}),
    Step.INIT: frozenset({ErrorCode.TRANSACTION_ABORTABLE}),
    Step.BUMP: frozenset({ErrorCode.TRANSACTION_ABORTABLE}),
    Step.ADD_OFFSETS: _REFUSED_OFFSETS,
    Step.COMMIT_OFFSETS: _REFUSED_OFFSETS | GROUP_MOVED_ON,
}
_FATAL_FOR_PARTITIONS: Final = _FENCING | {
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
}

FATAL_FOR_BATCHES: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""Answers to a produce request that end the producer; all others end the transaction."""


def judge(step: Step, code: int, facts: Facts) -> Verdict:
    """Decide what the answer `code` to a request calls for."""
    if step is Step.END:
        return judge_end(code, facts)
    if code == ErrorCode.NONE:
        return Verdict.DONE
    if code in _MOVED:
        return Verdict.RETRY if step is Step.FIND_COORDINATOR else Verdict.FIND_COORDINATOR
    if step is Step.COMMIT_OFFSETS and code == ErrorCode.REQUEST_TIMED_OUT:
        return Verdict.FIND_COORDINATOR
    if code == ErrorCode.CONCURRENT_TRANSACTIONS:
        return Verdict.WAIT_FOR_PREVIOUS
    if describe(code).retriable:
        return Verdict.RETRY
    if code == ErrorCode.UNKNOWN_PRODUCER_ID and step in (Step.ADD_PARTITIONS, Step.ADD_OFFSETS):
        return Verdict.ABORTABLE if facts.can_bump else Verdict.FATAL
    if facts.is_first_init and code in _REFUSALS and step in (Step.FIND_COORDINATOR, Step.INIT):
        return Verdict.REFUSED
    if step is Step.ADD_PARTITIONS:
        return Verdict.FATAL if code in _FATAL_FOR_PARTITIONS else Verdict.ABORTABLE
    if step is Step.COMMIT_OFFSETS and facts.is_v2 and code in _FENCING:
        return Verdict.ABORTABLE
    return Verdict.ABORTABLE if code in _ABORTABLE[step] else Verdict.FATAL


_WEIGHT: Final = {
    verdict: weight
    for weight, verdict in enumerate(
        (
            Verdict.DONE,
            Verdict.RETRY,
            Verdict.WAIT_FOR_PREVIOUS,
            Verdict.FIND_COORDINATOR,
            Verdict.REFUSED,
            Verdict.ABORTABLE,
            Verdict.FATAL,
        )
    )
}


def worst(step: Step, codes: list[int], facts: Facts) -> int:
    """The code that decides about a request with one code per partition.

    OPERATION_NOT_ATTEMPTED only means that another partition failed: with a code that may pass, such as
    UNKNOWN_TOPIC_OR_PARTITION for a new topic, all are repeated.
    """
    reasons = [code for code in codes if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)]
    return max(reasons or codes, key=lambda code: _WEIGHT[judge(step, code, facts)], default=0)
