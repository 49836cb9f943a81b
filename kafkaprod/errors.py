"""Every error kafkaprod raises, as one tree.

    KafkaError
      ConfigError(ValueError)                    an option is unknown, out of range or in conflict: fix the call
      SerializationError(ValueError)             a serializer refused a key, value or header: fix the record
      RecordTooLargeError(ValueError)            no batch or request can hold the record: fix the record or the limit
      InvalidRecordError(ValueError)             an argument of a record has a wrong type or value: fix the record
      BufferFullError(TimeoutError)              buffer_memory stayed full for max_block_ms: slow down
      DeliveryTimeoutError(TimeoutError)         delivery_timeout_ms passed before an answer
      MetadataTimeoutError(TimeoutError)         a topic's metadata did not arrive in time
      RequestTimedOutError(TimeoutError)         a broker did not answer one request in time: retried for you
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
        TransactionAbortableError                abort the transaction and go on
      DeliveryFailedError                        flush() found records that failed and that nobody had looked at
      CorruptDataError(ValueError)               bytes violate the format; never repaired silently

Each class also inherits the builtin a stranger would catch. Messages say what, which, limit and value.
Attributes shared by all: `retriable` (the engine may try again by itself), `needs_metadata` (the cluster
snapshot is stale), and `context`, a dict with any of topic, partition, node, api, correlation_id.
"""

from __future__ import annotations

from typing import Any


class KafkaError(Exception):
    """Base of all errors of this package.

    Args:
        message: What happened, which object, the limit and the value.
        context: Where it happened: any of topic, partition, node, api, correlation_id.

    Attributes:
        result: Of a block or table that was queued in part: its BlockResult or TableResult; else None.
    """

    result: Any = None

    retriable: bool = False
    needs_metadata: bool = False

    def __init__(self, message: str = "", **context: Any) -> None:
        super().__init__(message)
        self.context: dict[str, Any] = context


class ConfigError(KafkaError, ValueError):
    """An option is unknown, out of range or conflicts with another; nothing was started."""


class SerializationError(KafkaError, ValueError):
    """A serializer raised or returned something that is not bytes; the record was not queued."""


class RecordTooLargeError(KafkaError, ValueError):
    """The record exceeds a size limit; it was not queued and is not in the log.

    Attributes:
        row: Of a block of records: which one, the first of such; else None.
    """

    row: int | None = None


class InvalidRecordError(KafkaError, ValueError):
    """An argument of a record or block has a wrong value; nothing of the refused part was queued."""


class BufferFullError(KafkaError, TimeoutError):
    """buffer_memory stayed full for max_block_ms; the record was not queued. The message names who holds it.

    `result` has the rows of a block that were queued before.
    """


class DeliveryTimeoutError(KafkaError, TimeoutError):
    """delivery_timeout_ms passed. `possibly_persisted` tells whether the record was ever sent."""

    def __init__(self, message: str = "", *, possibly_persisted: bool = False, **context: Any) -> None:
        super().__init__(message, **context)
        self.possibly_persisted = possibly_persisted


class MetadataTimeoutError(KafkaError, TimeoutError):
    """A topic's metadata did not arrive within max_block_ms; the record was not queued."""


class RequestTimedOutError(KafkaError, TimeoutError):
    """One request got no answer within request_timeout_ms; the record may be in the log. Retried for you."""

    retriable = True


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
    """Another producer with the same transactional id took over. Fatal: close this producer."""


class TransactionAbortableError(BrokerError):
    """The transaction cannot be committed; abort it and go on."""


class DeliveryFailedError(KafkaError):
    """Records failed since the last flush and nobody had looked at their results.

    Attributes:
        failed_count: How many records failed.
    """

    def __init__(self, message: str = "", *, failed_count: int = 0, **context: Any) -> None:
        super().__init__(message, **context)
        self.failed_count = failed_count


class CorruptDataError(KafkaError, ValueError):
    """Bytes from a peer or a disk violate the format; never repaired silently."""
