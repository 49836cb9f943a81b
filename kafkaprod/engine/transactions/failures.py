"""Why a transaction, or the producer, failed: the texts and classes of the errors that the application sees. Pure."""

from __future__ import annotations

from typing import Final

from kafkaprod.engine.transactions.answers import GROUP_MOVED_ON
from kafkaprod.engine.transactions.calls import Failure
from kafkaprod.engine.transactions.verdicts import Step
from kafkaprod.errors import (
    AuthorizationError,
    Category,
    CommitOutcome,
    ConfigError,
    DeliveryFailedError,
    InvalidProducerIdMappingError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    UnsupportedVersionError,
    broker_code,
)
from kafkaprod.protocol.error_codes import ErrorCode, describe

_ABORT: Final = "call abort_transaction(), begin the next one and read the input again"
_CLOSE: Final = "close this producer"
NOT_COMMITTED: Final = "not committed"  # of failed records: EndTxn waits for every outcome, so it was not sent
_FENCED: Final = (
    "another producer with this transactional id took over, or the coordinator aborted the transaction because it took "
    "longer than transaction_timeout_ms; make a new producer only if this instance should be the one that writes"
)


def _doubt(outcome: CommitOutcome | None) -> str:
    return (
        "; the transaction may have been committed by an attempt without a clear answer" if outcome == "unknown" else ""
    )


def abortable(step: Step, code: int, who: str, outcome: CommitOutcome | None, where: str = "") -> Failure:
    """An answer after which the transaction can only be aborted.

    Args:
        step: The request that was answered.
        code: The answer.
        who: Which producer in which state.
        outcome: What is certain about the transaction; None: none is open.
        where: Topics or the group that it concerns.
    """
    answer = describe(code)
    why = "; the group has given the input to another member" if code in GROUP_MOVED_ON else ""
    return Failure(
        TransactionAbortableError,
        f"{step.value}{where}: {answer}{why}{_doubt(outcome)} ({who}): {_ABORT}",
        "abortable",
        code,
        answer.name,
        outcome,
    )


def fatal(step: Step, code: int, who: str, outcome: CommitOutcome | None, where: str = "") -> Failure:
    """An answer that ends the producer. Arguments as for `abortable`."""
    answer = describe(code)
    error_class: type[KafkaError] = answer.error_class
    category: Category = "invalid"
    what = _CLOSE
    if code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
        error_class, category = ProducerFencedError, "recoverable"
        what = f"{_FENCED}; {_CLOSE}"
    elif code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        error_class, category = InvalidProducerIdMappingError, "recoverable"
        what = (
            "the id expired (transactional.id.expiration.ms, by default 7 days without use) or has another producer "
            f"id; {_CLOSE} and make a new one"
        )
    elif code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        error_class = ConfigError
        what = "set transaction_timeout_ms below the broker's transaction.max.timeout.ms, or raise that"
    elif error_class is TransactionAbortableError:
        what = f"the abort itself cannot be completed; {_CLOSE}"
    return Failure(
        error_class,
        f"{step.value}{where}: {answer}{_doubt(outcome)} ({who}): {what}",
        category,
        code,
        answer.name,
        outcome,
    )


def refused(step: Step, code: int, who: str) -> Failure:
    """A first init that the principal may not make; the call may be repeated once the ACL is right."""
    answer = describe(code)
    text = f"{step.value}: {answer} ({who}): grant Write on the transactional id, then call init_transactions() again"
    return Failure(AuthorizationError, text, "invalid", code, answer.name)


def from_error(
    step: Step, error: KafkaError, who: str, outcome: CommitOutcome | None, *, is_abortable: bool
) -> Failure:
    """A request that could not be sent: too old a broker, refused credentials, damaged answers."""
    what = _ABORT if is_abortable else _CLOSE
    error_class = TransactionAbortableError if is_abortable else type(error)
    if error_class not in (TransactionAbortableError, UnsupportedVersionError):
        error_class = KafkaError if issubclass(error_class, ConfigError) else error_class
    text = f"{step.value}: {error}{_doubt(outcome)} ({who}): {what}"
    return Failure(
        error_class,
        text,
        "abortable" if is_abortable else "invalid",
        broker_code(error) or ErrorCode.UNKNOWN_SERVER_ERROR,
        outcome=outcome,
        cause=error,
    )


def failed_records(error: BaseException, place: str, who: str) -> Failure:
    """Records of the transaction that were not written: it must not be committed."""
    code = broker_code(error) if isinstance(error, Exception) else None
    return Failure(
        DeliveryFailedError,
        f"the transaction cannot be committed, as records for {place} were not written: {error} ({who}): {_ABORT}",
        "abortable",
        ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code,
        outcome=NOT_COMMITTED,
        cause=error,
    )


def late_records(error: BaseException, place: str, who: str) -> Failure:
    """Records without an answer at brokers that would append them after the abort, in a transaction without an end.

    The init of a successor ends the transaction with a newer epoch, after which they are refused.
    """
    return Failure(
        KafkaError,
        f"records for {place} got no answer and may still arrive: {error}. Brokers before Kafka 3.6 would append them "
        f"after an abort, and readers of committed data would wait for ever ({who}): close this producer and make a "
        "new one with the same transactional_id, which ends the transaction in another way",
        "recoverable",
        outcome=NOT_COMMITTED,
        cause=error,
    )


def stuck_records(error: KafkaError, place: str, who: str) -> Failure:
    """Records whose sequence may be in the log, or is beyond its end, at a coordinator that gives no newer epoch."""
    code = broker_code(error)
    code = ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code
    return Failure(
        KafkaError,
        f"which sequence {place} expects next is not known any more: {error}. Coordinators before Kafka 2.5 give a "
        f"running producer no newer epoch, with which sequences begin again ({who}): close this producer and make a "
        "new one with the same transactional_id",
        "recoverable",
        code,
        describe(code).name,
        NOT_COMMITTED,
        error,
    )


def fatal_records(error: KafkaError, place: str, who: str) -> Failure:
    """Records that were not written because the producer may not write any more."""
    code = broker_code(error)
    code = ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code
    return Failure(
        type(error),
        f"records for {place} were not written: {error} ({who}): {_CLOSE}",
        "recoverable" if code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING) else "invalid",
        code,
        describe(code).name,
        NOT_COMMITTED,
        error,
    )
