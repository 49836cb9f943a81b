"""Decides what to do with a batch that was not simply written; every retry is decided here. Pure.

| answer                                       | verdict                                                             |
|----------------------------------------------|---------------------------------------------------------------------|
| 10 MESSAGE_TOO_LARGE, more than one record   | SPLIT                                                               |
| 46 DUPLICATE_SEQUENCE_NUMBER                 | SUCCEED, offset unknown                                             |
| 45, 47, 59 with idempotence (see below)      | RETRY, RENUMBER or FAIL                                             |
| retriable, tries and time left               | RETRY                                                               |
| anything else                                | FAIL                                                                |

Sequence errors. 45 OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that is not the first without an outcome: an earlier one is
being retried, and this one waits for it. For the first one, a sequence before it is missing in the log. If the producer
caused the gap (an earlier batch failed or expired) and every attempt of this batch was certainly rejected, the batch
gets a new sequence under a new epoch; if some attempt may have been written the batch fails, because a second write
could duplicate it. If the producer did not cause the gap, the broker has lost records or state: the batch fails with
that reason, and the producer continues under a new epoch. 47 and 59 (the broker does not know the epoch or the id) are
treated as a gap the producer caused. Source: KIP-98, KIP-360, KAFKA-13574; TransactionManager. Java renumbers batches
that may be written, and continues silently after lost state.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from kafkaprod.protocol.error_codes import describe

REQUEST_TIMED_OUT = 7
MESSAGE_TOO_LARGE = 10
NETWORK_EXCEPTION = 13
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
INVALID_PRODUCER_EPOCH = 47
UNKNOWN_PRODUCER_ID = 59

# Retriable answers after which some replica's log may still have the records; all others are certain rejections.
MAYBE_PERSISTED = frozenset(
    {
        -1,  # UNKNOWN_SERVER_ERROR: nothing is known
        6,  # NOT_LEADER_OR_FOLLOWER: leadership may have been lost after the append (KAFKA-13574)
        7,  # REQUEST_TIMED_OUT: appended, not replicated in time
        13,  # NETWORK_EXCEPTION: no answer at all
        20,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
        56,  # KAFKA_STORAGE_ERROR: the disk failed at some point of the append
    }
)


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
    partition_has_gap: bool
    maybe_persisted: bool


def judge(code: int, facts: BatchFacts, retries: int) -> BatchVerdict:
    """Decide about a batch for which the answer was `code`, not 0.

    Args:
        code: Kafka's error code; 13 for a lost connection.
        facts: About the batch before this answer.
        retries: Most attempts after the first.
    """
    if code == MESSAGE_TOO_LARGE and facts.record_count > 1:
        return BatchVerdict.SPLIT
    if code == DUPLICATE_SEQUENCE_NUMBER:
        return BatchVerdict.SUCCEED
    has_tries = facts.attempts < retries
    if facts.has_sequence and has_tries:
        if code == OUT_OF_ORDER_SEQUENCE_NUMBER and not facts.is_first_outstanding:
            return BatchVerdict.RETRY
        if code == OUT_OF_ORDER_SEQUENCE_NUMBER and facts.partition_has_gap and not facts.maybe_persisted:
            return BatchVerdict.RENUMBER
        if code in (INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID) and not facts.maybe_persisted:
            return BatchVerdict.RENUMBER
    if describe(code).retriable and has_tries:
        return BatchVerdict.RETRY
    return BatchVerdict.FAIL
