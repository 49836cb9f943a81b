"""Decides what to do with a batch that was not simply written; every retry is decided here. Pure.

| answer                                       | verdict                                                             |
|----------------------------------------------|---------------------------------------------------------------------|
| MESSAGE_TOO_LARGE, more than one record      | SPLIT                                                               |
| DUPLICATE_SEQUENCE_NUMBER                    | SUCCEED, offset unknown                                             |
| sequence errors with idempotence (see below) | RETRY, RENUMBER or FAIL                                             |
| retriable, tries and time left               | RETRY                                                               |
| anything else                                | FAIL                                                                |

Sequence errors. OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that is not the first without an outcome: an earlier one is
being retried, and this one waits for it. For the first one, a sequence before it is missing in the log: an earlier
batch failed or expired, or the broker has lost records that it acknowledged, which is logged as an error. If every
attempt of this batch was certainly rejected, it gets a new sequence under a new epoch; if some attempt may have been
written it fails, because a second write could duplicate it. So it is for INVALID_PRODUCER_EPOCH and
UNKNOWN_PRODUCER_ID, whichever batch they are for. Source: KIP-98, KIP-360, KAFKA-13574; TransactionManager. Java
renumbers batches that may be written, and says nothing of lost records.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from kafkaprod.protocol.error_codes import ErrorCode, describe

MAYBE_PERSISTED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,  # nothing is known
        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # leadership may have been lost after the append (KAFKA-13574)
        ErrorCode.REQUEST_TIMED_OUT,  # appended, not replicated in time
        ErrorCode.NETWORK_EXCEPTION,  # no answer at all
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,  # the disk failed at some point of the append
    }
)
"""Answers after which some replica's log may still have the records; the other known ones are certain rejections."""
RENUMBERING: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""Answers that a batch's numbers do not fit those that the broker has."""
_KNOWN: Final = frozenset(ErrorCode)


class BatchVerdict(Enum):
    """The decision about a batch."""

    SUCCEED = auto()
    RETRY = auto()
    RENUMBER = auto()
    SPLIT = auto()
    FAIL = auto()


class BatchFacts(NamedTuple):
    """The facts that decide besides the error code."""

    record_count: int
    attempts: int
    has_sequence: bool
    is_first_outstanding: bool
    maybe_persisted: bool


def may_be_persisted(code: int) -> bool:
    """Whether some replica's log may have the records after an answer; a code of the future says nothing."""
    return code in MAYBE_PERSISTED or code not in _KNOWN


def judge(code: int, facts: BatchFacts, retries: int) -> BatchVerdict:
    """Decide about a batch for which the answer was `code`, not NONE.

    Args:
        code: Kafka's error code; NETWORK_EXCEPTION for a lost connection.
        facts: About the batch before this answer.
        retries: Most attempts after the first.
    """
    if code == ErrorCode.MESSAGE_TOO_LARGE and facts.record_count > 1:
        return BatchVerdict.SPLIT
    if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return BatchVerdict.SUCCEED
    has_tries = facts.attempts < retries
    if facts.has_sequence and has_tries:
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not facts.is_first_outstanding:
            return BatchVerdict.RETRY
        if code in RENUMBERING and not facts.maybe_persisted:
            return BatchVerdict.RENUMBER
    if describe(code).retriable and has_tries:
        return BatchVerdict.RETRY
    return BatchVerdict.FAIL
