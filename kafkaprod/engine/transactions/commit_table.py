"""What each answer to EndTxn proves about the commit, what it calls for, and what errors say: one table. Pure.

The question is what a coordinator can still make of the commit. It is decided once PrepareCommit is in the log of the
coordinator and its replicas have it; whoever leads that log then completes it. So a refusal proves only that *this*
attempt wrote nothing, and only if its code comes from a check before the write:

    attempt                 the log may hold            ends as             `outcome` of the error
    answered NONE           the commit                  committed           (no error)
    refused by a check      what it held before         not committed       "not committed", if WITHOUT before
    anything else, lost     the commit, or not          not known           "unknown", whatever is answered later

Codes after a write. `TransactionStateManager.appendTransactionToLog` answers COORDINATOR_NOT_AVAILABLE when replicas
did not take the write in time or became too few (REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND),
NOT_COORDINATOR when the leadership was lost meanwhile, COORDINATOR_LOAD_IN_PROGRESS when it was lost and came back,
and passes on every other error of the log. The next coordinator finds PrepareCommit and completes it.

Codes before a write. `KafkaApis.handleEndTxnRequest` and the first half of `TransactionCoordinator.endTransaction`
check right, id, epoch and state; the second half repeats these checks in the same leader epoch, where nothing can
have changed them. CONCURRENT_TRANSACTIONS is one of them: another change is under way, or an earlier attempt is.

After a doubtful attempt no refusal is a proof. Another instance that takes over completes a decided commit and raises
the epoch, so that the repetition gets PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before EndTxn 2) beside committed
records; the id may expire (INVALID_PRODUCER_ID_MAPPING); a former coordinator, which has not heard of its successor,
refuses with any code by what it remembers (KAFKA-21181). Only an abort that is answered NONE settles it:
EndTxn(abort) finds an open transaction, or one aborted with this epoch, and a commit that comes later is refused
(INVALID_TXN_STATE).

What no table can mend: under v1 all transactions of a producer have one epoch, so that a late EndTxn may end the next
one (KAFKA-17754); so the machine gets a newer epoch after each lost one. Under v2 each has its own (KIP-890).
Source: Kafka 4.3; KIP-98, KIP-360, KIP-588, KIP-890, KIP-1050.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from kafkaprod.engine.transactions.verdicts import Facts, Verdict
from kafkaprod.errors import CommitOutcome
from kafkaprod.protocol.error_codes import ErrorCode, describe


class Log(Enum):
    """What the logs of all coordinators, now and later, may hold of a commit."""

    WITHOUT = auto()  # no coordinator has written it, or ever will
    DOUBTFUL = auto()
    COMMIT = auto()

    __hash__ = object.__hash__  # Enum's own hashes the name in Python


OUTCOMES: Final[dict[Log, CommitOutcome]] = {
    Log.WITHOUT: "not committed",
    Log.DOUBTFUL: "unknown",
    Log.COMMIT: "committed",
}
"""What an error says."""


class Row(NamedTuple):
    """What an answer to EndTxn(commit) means.

    Attributes:
        log: What the log may hold, if no earlier attempt is in doubt.
        v1, v2: What it calls for, by the rules of the transaction.
    """

    log: Log
    v1: Verdict
    v2: Verdict


_RETRY, _FIND, _WAIT = Verdict.RETRY, Verdict.FIND_COORDINATOR, Verdict.WAIT_FOR_PREVIOUS
_ABORTABLE, _FATAL = Verdict.ABORTABLE, Verdict.FATAL

# Under v2 an abort has the last word after a refused epoch or state: the coordinator may have ended the transaction by
# itself, as it took too long. Kafka's own client fails for good there.
COMMIT: Final[dict[int, Row]] = {
    ErrorCode.NONE: Row(Log.COMMIT, Verdict.DONE, Verdict.DONE),
    # Checks before the write.
    ErrorCode.PRODUCER_FENCED: Row(Log.WITHOUT, _FATAL, _ABORTABLE),
    ErrorCode.INVALID_PRODUCER_EPOCH: Row(Log.WITHOUT, _FATAL, _ABORTABLE),
    ErrorCode.INVALID_TXN_STATE: Row(Log.WITHOUT, _FATAL, _ABORTABLE),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Row(Log.WITHOUT, _FATAL, _FATAL),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Row(Log.WITHOUT, _FATAL, _FATAL),
    ErrorCode.INVALID_REQUEST: Row(Log.WITHOUT, _FATAL, _FATAL),
    ErrorCode.UNSUPPORTED_VERSION: Row(Log.WITHOUT, _FATAL, _FATAL),
    ErrorCode.CONCURRENT_TRANSACTIONS: Row(Log.WITHOUT, _WAIT, _WAIT),
    # Written or not.
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Row(Log.DOUBTFUL, _FIND, _FIND),
    ErrorCode.NOT_COORDINATOR: Row(Log.DOUBTFUL, _FIND, _FIND),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Row(Log.DOUBTFUL, _RETRY, _RETRY),
    ErrorCode.REQUEST_TIMED_OUT: Row(Log.DOUBTFUL, _RETRY, _RETRY),
    ErrorCode.UNKNOWN_SERVER_ERROR: Row(Log.DOUBTFUL, _RETRY, _RETRY),
    # No coordinator is known to send them here; the abort that follows settles it.
    ErrorCode.TRANSACTION_ABORTABLE: Row(Log.DOUBTFUL, _ABORTABLE, _ABORTABLE),
    ErrorCode.UNKNOWN_PRODUCER_ID: Row(Log.DOUBTFUL, _ABORTABLE, _ABORTABLE),
}
_OTHER_RETRIABLE: Final = Row(Log.DOUBTFUL, _RETRY, _RETRY)
_OTHER: Final = Row(Log.DOUBTFUL, _FATAL, _FATAL)  # codes of the future, too

_OF_ABORT: Final[dict[int, Verdict]] = {
    ErrorCode.NONE: Verdict.DONE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _FIND,
    ErrorCode.NOT_COORDINATOR: _FIND,
    ErrorCode.CONCURRENT_TRANSACTIONS: _WAIT,
    ErrorCode.UNKNOWN_SERVER_ERROR: _RETRY,
}


def judge_end(code: int, facts: Facts) -> Verdict:
    """Decide what the answer `code` to EndTxn calls for."""
    if not facts.is_commit:  # an abort that cannot be aborted
        return _OF_ABORT.get(code) or (_RETRY if describe(code).retriable else _FATAL)
    if code == ErrorCode.UNKNOWN_PRODUCER_ID and not facts.can_bump:
        return _FATAL
    row = _row(code)
    return row.v2 if facts.is_v2 else row.v1


def after_answer(before: Log, code: int, *, is_commit: bool) -> Log:
    """What the log may hold after an answer to EndTxn.

    Args:
        before: What it might hold before.
        code: The answer.
        is_commit: Whether EndTxn commits; else it aborts.
    """
    if not is_commit:
        return Log.WITHOUT if code == ErrorCode.NONE else before
    after = _row(code).log
    return Log.DOUBTFUL if after is Log.WITHOUT and before is Log.DOUBTFUL else after


def after_silence(before: Log, *, is_commit: bool) -> Log:
    """What the log may hold after an EndTxn that was sent and not answered. Arguments as for `after_answer`."""
    return Log.DOUBTFUL if is_commit else before


def _row(code: int) -> Row:
    return COMMIT.get(code) or (_OTHER_RETRIABLE if describe(code).retriable else _OTHER)
