"""Every error kafkaprod raises, as one tree.

    KafkaError
      ConfigError(ValueError)                    an option is unknown, out of range or in conflict: fix the call
      SerializationError(ValueError)             a serializer refused a key, value or header: fix the record
      RecordTooLargeError(ValueError)            no batch or request can hold the record: fix the record or the limit
      InvalidRecordError(ValueError)             an argument of a record has a wrong value: fix the record
        ArgumentTypeError(TypeError)             an argument has a type that is not allowed: fix the call
      BufferFullError(TimeoutError)              no memory for a record for max_block_ms: slow down
        NodeBufferFullError                      a sick broker's share is used up: handle it like a failed delivery
      DeliveryTimeoutError(TimeoutError)         delivery_timeout_ms passed before an answer
      MetadataTimeoutError(TimeoutError)         a topic's metadata did not arrive in time
      RequestTimedOutError(TimeoutError)         a broker did not answer one request in time: retried for you
      PurgedError                                purge() has failed the record
      ProducerClosedError                        the producer is closed: fix the program
      IllegalStateError                          the call is not legal in this state: fix the program
      ForkedProducerError                        a producer was used in a forked child: make a new one there
      ConnectionLostError(ConnectionError)       a connection ended with requests in flight: retried for you
      BootstrapError(ConnectionError)            no bootstrap server could be used; says host, stage and cause
      AuthenticationError                        credentials refused: fix them; never retried
      AuthorizationError                         the principal may not do this: fix the ACL
      UnsupportedVersionError                    the broker is too old (or too new) for a request
      BrokerError                                the broker answered an error code; .code and .name hold it
        TopicNotFoundError                       the topic or partition does not exist
        OutOfOrderSequenceError                  the broker lost or never had earlier batches of this producer
        ProducerFencedError                      another producer took over: fatal
        InvalidProducerIdMappingError            the transactional id expired or has another producer id: fatal
        InvalidTxnStateError                     the coordinator's transaction is in another state than ours
        TransactionAbortableError                abort the transaction and begin the next one
      TransactionTimeoutError(TimeoutError)      a transaction call reached its timeout: repeat the same call
        CommitUnknownError                       a commit reached its timeout: repeat it to learn the outcome
      TransactionAbortedError                    the record was not sent, because its transaction was aborted
      WriteError                                 a write with a write_id: nothing was written now
        WriteConflictError                       the id is known, and the rows are others: give them another id
        WriteStaleError                          its mark is of another cluster or of a topic that was made again
        WriteTakenOverError                      another try of the write took over: it writes, or the next one
        WriteUnknownError                        it is not known whether it is committed: run it again, same id
      DeliveryFailedError                        flush() found failed records that were never checked
      CorruptDataError(ValueError)               bytes violate the format; never repaired silently

Each class also inherits the builtin a stranger would catch. Messages say what, which, limit and value.
Attributes shared by all: `retriable` (the engine may try again by itself), `needs_metadata` (the cluster
snapshot is stale), `category` (what to do about a failed transaction call), `outcome` (what is certain about its
transaction), and `context`, a dict with any of topic, partition, node, api, correlation_id.
"""

from __future__ import annotations

import copy
from typing import Any, Literal, Self, TypeVar

from kafkaprod.text import printable as printable  # its public place for the rest of the package

Category = Literal["retriable", "abortable", "recoverable", "invalid"]
"""What to do about a failed transaction call."""

CommitOutcome = Literal["committed", "not committed", "unknown"]
"""What is certain about the transaction when a call of it fails."""


class KafkaError(Exception):
    """Base of all errors of this package.

    Args:
        message: What happened, which object, the limit and the value; what is not printable is escaped.
        context: Where it happened: any of topic, partition, node, api, correlation_id.

    Attributes:
        possibly_persisted: Whether a record that failed may still be in the log, because some attempt to
            send it got no definite answer. Sending it again may double it.
        result: The BlockResult or TableResult of a block or table that was queued in part; else None.
        category: What to do after an error of a transaction (KIP-1050): "retriable", repeat the same call; "abortable",
            abort the transaction and begin the next one; "recoverable", close this producer and make a new one if this
            instance stays; "invalid", close it and correct an option or an ACL. None: it concerns no transaction.
        outcome: What is certain about the transaction after an error of a transaction call: "committed" (only the
            epoch for the next one is missing), "not committed" (none of it is visible, or ever will be unless you
            commit it yet), or "unknown": a coordinator may have committed it, or may do so later; repeat the call
            after a timeout, read the committed offsets of the input after other errors. None: no transaction was open.
    """

    result: Any = None
    possibly_persisted: bool = False
    category: Category | None = None
    outcome: CommitOutcome | None = None

    retriable: bool = False
    needs_metadata: bool = False

    def __init__(self, message: str = "", **context: Any) -> None:
        super().__init__(printable(message))
        self.context: dict[str, Any] = context

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, self.__dict__

    def __copy__(self) -> Self:
        return copy_to_raise(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return copy_to_raise(self)  # with the same `result`, which belongs to a producer


AnyError = TypeVar("AnyError", bound=BaseException)


def copy_to_raise(error: AnyError) -> AnyError:
    """Return a new error that says the same, with the same cause: to be raised in place of one that is kept.

    `raise` leaves the caller's frame, with all its variables, in the error's traceback. A kept error would keep them
    alive, grow with each caller, and show one caller's variables in the report of another.
    """
    new: Any
    kind: Any = type(error)
    if isinstance(error, KafkaError):
        new = kind.__new__(kind)
        new.args = error.args
        new.__dict__.update(error.__dict__)
        new.context = dict(error.context)
    else:
        try:
            new = copy.copy(error)
        except Exception:  # a class of the program's that cannot be copied
            return error.with_traceback(None)
    notes = getattr(error, "__notes__", None)
    if notes is not None:
        new.__notes__ = list(notes)
    new.__cause__ = error.__cause__
    new.__context__ = error.__context__
    new.__suppress_context__ = error.__suppress_context__
    copied: AnyError = new
    return copied


class ConfigError(KafkaError, ValueError):
    """An option is unknown, out of range or conflicts with another; nothing was started."""


class SerializationError(KafkaError, ValueError):
    """A serializer raised or returned something that is not bytes; the record was not queued."""


class RecordTooLargeError(KafkaError, ValueError):
    """The record exceeds a size limit and is not in the log; if `send()` raised it, it was not queued either.

    Attributes:
        row: The first such record of a block; else None.
    """

    row: int | None = None


class InvalidRecordError(KafkaError, ValueError):
    """An argument of a record or block has a wrong value; nothing of the refused part was queued."""


class ArgumentTypeError(InvalidRecordError, TypeError):
    """An argument of a record, block or table, or an item of it, has a type that is not allowed; nothing was queued."""


class BufferFullError(KafkaError, TimeoutError):
    """For max_block_ms there was no memory for a record, which was not queued. The message names who holds it.

    Either `buffer_memory` is full, or the record's broker holds all that it can deliver in a quarter of
    `delivery_timeout_ms`.
    `result` has the rows of a block that were queued before.
    """


class NodeBufferFullError(BufferFullError):
    """With `buffer_full_policy="isolate"`: a sick broker's records hold all that they may; the record was not queued.

    Records for other brokers are taken, those of the same block, too: its `result` says which were not. Handle it like
    a failed delivery, or send again when the broker is well.

    Attributes:
        held_bytes: What the broker's records hold.
        limit_bytes: What they may hold.
        silent_ms: How long the broker has not answered.
        usual_ms: In what time it usually answers; -1: it never did.
    """

    def __init__(
        self,
        message: str = "",
        *,
        held_bytes: int = 0,
        limit_bytes: int = 0,
        silent_ms: int = 0,
        usual_ms: int = -1,
        **context: Any,
    ) -> None:
        super().__init__(message, **context)
        self.held_bytes = held_bytes
        self.limit_bytes = limit_bytes
        self.silent_ms = silent_ms
        self.usual_ms = usual_ms


class DeliveryTimeoutError(KafkaError, TimeoutError):
    """delivery_timeout_ms passed before a definite answer."""

    def __init__(self, message: str = "", *, possibly_persisted: bool = False, **context: Any) -> None:
        super().__init__(message, **context)
        self.possibly_persisted = possibly_persisted


class DeliveryDelayedError(KafkaError, TimeoutError):
    """With a `spool_dir`: the record is in the spool and not delivered yet.

    It will be, by this process or a later one with the same `spool_dir`.
    """


class MetadataTimeoutError(KafkaError, TimeoutError):
    """A topic's metadata did not arrive within max_block_ms; the record was not queued."""


class RequestTimedOutError(KafkaError, TimeoutError):
    """One request got no answer within request_timeout_ms; the record may be in the log. Retried for you."""

    retriable = True


class PurgedError(KafkaError, RuntimeError):
    """`purge()` has failed the record before it had an outcome.

    Attributes:
        was_in_flight: Whether it was in a request without an answer; else it waited to be sent.
    """

    def __init__(
        self, message: str = "", *, possibly_persisted: bool = False, was_in_flight: bool = False, **context: Any
    ) -> None:
        super().__init__(message, **context)
        self.possibly_persisted = possibly_persisted
        self.was_in_flight = was_in_flight


class ProducerClosedError(KafkaError, RuntimeError):
    """The producer is closed, or was closed before the record was delivered."""


class IllegalStateError(KafkaError, RuntimeError):
    """The operation is not legal in this state; the state is unchanged."""


class ForkedProducerError(KafkaError, RuntimeError):
    """The producer belongs to the parent process; make a new one in the child. Nothing was queued."""


class ConnectionLostError(KafkaError, ConnectionError):
    """A connection ended with requests in flight; their records may be in the log. Retried for you."""

    retriable = True
    needs_metadata = True


class BootstrapError(KafkaError, ConnectionError):
    """No bootstrap server could be used. The message names each host, the stage reached and the last cause."""


class AuthenticationError(KafkaError):
    """The broker refused the credentials or failed to prove its own; not retried."""


class AuthorizationError(KafkaError, PermissionError):
    """The principal may not do this; the record is not in the log."""


class UnsupportedVersionError(KafkaError):
    """No version of a request is known to both sides; nothing was sent."""


class BrokerError(KafkaError):
    """The broker answered an error code.

    Attributes:
        code: Kafka's error code, also when this package has no name for it.
        name: Kafka's name of the code, `UNKNOWN_<code>` for an unknown one.
    """

    def __init__(self, message: str = "", *, code: int = -1, name: str = "UNKNOWN_SERVER_ERROR", **context: Any):
        super().__init__(message, **context)
        self.code = code
        self.name = name


def broker_code(error: Exception) -> int | None:
    """The error code a broker answered, whatever the class of the error; None if the error is not a broker's."""
    if isinstance(error, BrokerError):
        return error.code
    return error.context.get("code") if isinstance(error, KafkaError) else None


class TopicNotFoundError(BrokerError):
    """The topic or partition does not exist and was not created; the record is not in the log."""

    retriable = True
    needs_metadata = True


class OutOfOrderSequenceError(BrokerError):
    """The broker does not have the batches sent before this one; earlier records may be missing from the log."""


class ProducerFencedError(BrokerError):
    """The coordinator has a newer epoch of this transactional id. Fatal: close this producer.

    Another producer with the id took over, or the coordinator itself aborted a transaction that took longer than
    transaction_timeout_ms (before Kafka 4 the answer is the same). Make a new producer only if this instance should be
    the one that writes.
    """

    category: Category | None = "recoverable"


class InvalidProducerIdMappingError(BrokerError):
    """The transactional id expired after days without use, or has another producer id. Fatal: make a new producer."""

    category: Category | None = "recoverable"


class InvalidTxnStateError(BrokerError):
    """The coordinator's transaction is in another state than this producer's. Fatal: make a new producer."""

    category: Category | None = "invalid"


class TransactionAbortableError(BrokerError):
    """The transaction cannot be committed: abort it, begin the next one and read the input again.

    `code` and `name` are those of the answer that caused it; -1 if no answer did.
    """

    category: Category | None = "abortable"


class TransactionTimeoutError(KafkaError, TimeoutError):
    """A transaction call did not end within its timeout; it continues. Only the same call, or close(), is legal now."""

    retriable = True
    category: Category | None = "retriable"


class CommitUnknownError(TransactionTimeoutError):
    """commit_transaction() did not end within its timeout. The transaction may be committed or not: repeat the call."""

    outcome: CommitOutcome | None = "unknown"


class TransactionAbortedError(KafkaError):
    """The record was not sent, because its transaction was aborted or cannot be committed. It is not in the log."""

    category: Category | None = "abortable"


class WriteError(KafkaError):
    """A write with a `write_id` did not happen now.

    Attributes:
        write_id: Its id.
        reason: What differs in a conflict: "topic", "rows" or "content".
    """

    write_id: str = ""
    reason: str = ""

    def __init__(self, message: str = "", *, write_id: str = "", reason: str = "", **context: Any) -> None:
        super().__init__(message, **context)
        self.write_id = write_id
        self.reason = reason


class WriteConflictError(WriteError):
    """A write of this id is committed, with other rows, in another order, or to another topic. Nothing was written."""

    category: Category | None = "invalid"
    outcome: CommitOutcome | None = "not committed"


class WriteStaleError(WriteError):
    """The mark of this id is of another cluster, or of a topic that was deleted and made again. Nothing was written."""

    category: Category | None = "invalid"
    outcome: CommitOutcome | None = "not committed"


class WriteTakenOverError(WriteError):
    """A later try of the write fenced this one, and has not committed in time. This one wrote nothing."""

    category: Category | None = "retriable"
    outcome: CommitOutcome | None = "not committed"


class WriteUnknownError(WriteError):
    """It is not known whether the write is committed. Run it again with the same id: then it will be."""

    category: Category | None = "retriable"
    outcome: CommitOutcome | None = "unknown"


class DeliveryFailedError(KafkaError):
    """Records failed since the last flush, and their results were never checked.

    commit_transaction() raises it for any failed record of the transaction, with `category` "abortable".

    Attributes:
        failed_count: How many records failed.
    """

    def __init__(self, message: str = "", *, failed_count: int = 0, **context: Any) -> None:
        super().__init__(message, **context)
        self.failed_count = failed_count


class CorruptDataError(KafkaError, ValueError):
    """Bytes from a peer or a disk violate the format; never repaired silently."""
