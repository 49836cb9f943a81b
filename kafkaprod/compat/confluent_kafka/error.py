"""confluent-kafka's errors, and what each error of kafkaprod is there.

Where confluent-kafka is installed they are its own classes: what catches the errors of its consumers and admin clients
catches those of this producer, and the other way round.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkaprod import errors as ours
from kafkaprod.compat.confluent_kafka import standins
from kafkaprod.compat.confluent_kafka.codes import CODES, text_of
from kafkaprod.compat.originals import taken

if TYPE_CHECKING:
    from kafkaprod.compat.confluent_kafka.message import Message

if TYPE_CHECKING:
    from kafkaprod.compat.confluent_kafka.standins import KafkaError as KafkaError
    from kafkaprod.compat.confluent_kafka.standins import KafkaException as KafkaException
else:
    KafkaError = taken("confluent_kafka", standins.KafkaError)
    KafkaException = taken("confluent_kafka", standins.KafkaException)
INVALID_ARG: Final = CODES["_INVALID_ARG"]


class IllegalStateException(KafkaException):
    """The call is not legal in this state."""


class ConcurrentModificationException(KafkaException):
    """Two threads used what only one may use."""


class SerializationError(KafkaException):
    """A serializer failed."""


class _ClientError(KafkaException):
    """An error that was wrapped.

    Attributes:
        exception: What was raised.
        kafka_message: The record that was read, of a consumer's error.
    """

    def __init__(
        self, kafka_error: KafkaError, exception: Exception | None = None, kafka_message: Message | None = None
    ) -> None:
        super().__init__(kafka_error)
        self.exception = exception
        self.kafka_message = kafka_message

    @property
    def code(self) -> int:
        """The error's code."""
        return int(self.args[0].code())

    @property
    def name(self) -> str:
        """The code's name."""
        return str(self.args[0].name())


class ConsumeError(_ClientError):
    """A record could not be read."""


class KeyDeserializationError(ConsumeError, SerializationError):
    """The key deserializer failed."""

    def __init__(self, exception: Exception | None = None, kafka_message: Message | None = None) -> None:
        super().__init__(KafkaError(CODES["_KEY_DESERIALIZATION"], str(exception)), exception, kafka_message)


class ValueDeserializationError(ConsumeError, SerializationError):
    """The value deserializer failed."""

    def __init__(self, exception: Exception | None = None, kafka_message: Message | None = None) -> None:
        super().__init__(KafkaError(CODES["_VALUE_DESERIALIZATION"], str(exception)), exception, kafka_message)


class ProduceError(_ClientError):
    """A record could not be produced."""

    def __init__(self, kafka_error: KafkaError, exception: Exception | None = None) -> None:
        super().__init__(kafka_error, exception)


class KeySerializationError(ProduceError, SerializationError):
    """The key serializer failed."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(CODES["_KEY_SERIALIZATION"], str(exception)), exception)


class ValueSerializationError(ProduceError, SerializationError):
    """The value serializer failed."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(CODES["_VALUE_SERIALIZATION"], str(exception)), exception)


if not TYPE_CHECKING:
    IllegalStateException = taken("confluent_kafka", IllegalStateException)
    ConcurrentModificationException = taken("confluent_kafka", ConcurrentModificationException)
    SerializationError = taken("confluent_kafka.error", SerializationError)
    ConsumeError = taken("confluent_kafka.error", ConsumeError)
    KeyDeserializationError = taken("confluent_kafka.error", KeyDeserializationError)
    ValueDeserializationError = taken("confluent_kafka.error", ValueDeserializationError)
    ProduceError = taken("confluent_kafka.error", ProduceError)
    KeySerializationError = taken("confluent_kafka.error", KeySerializationError)
    ValueSerializationError = taken("confluent_kafka.error", ValueSerializationError)


# In this order: a class before its base.
_LOCAL_CODES: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (ours.RecordTooLargeError, "MSG_SIZE_TOO_LARGE"),
    (ours.BufferFullError, "_QUEUE_FULL"),
    (ours.DeliveryTimeoutError, "_MSG_TIMED_OUT"),
    (ours.MetadataTimeoutError, "_MSG_TIMED_OUT"),
    (ours.CommitUnknownError, "_TIMED_OUT"),
    (ours.TransactionTimeoutError, "_TIMED_OUT"),
    (ours.RequestTimedOutError, "_TIMED_OUT"),
    (ours.ConfigError, "_INVALID_ARG"),
    (ours.InvalidRecordError, "_INVALID_ARG"),
    (ours.BootstrapError, "_TRANSPORT"),
    (ours.ConnectionLostError, "_TRANSPORT"),
    (ours.AuthenticationError, "_AUTHENTICATION"),
    (ours.AuthorizationError, "TOPIC_AUTHORIZATION_FAILED"),
    (ours.UnsupportedVersionError, "_UNSUPPORTED_FEATURE"),
    (ours.TransactionAbortedError, "_PURGE_QUEUE"),
    (ours.PurgedError, "_PURGE_QUEUE"),
    (ours.ProducerClosedError, "_DESTROY"),
    (ours.IllegalStateError, "_STATE"),
    (ours.ForkedProducerError, "_STATE"),
    (ours.CorruptDataError, "_BAD_MSG"),
    (TimeoutError, "_TIMED_OUT"),
)


def kafka_error(error: BaseException) -> KafkaError:
    """Return kafkaprod's error as a KafkaError."""
    if isinstance(error, ours.DeliveryFailedError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
        return error.args[0]
    code = ours.broker_code(error) if isinstance(error, Exception) else None
    if code is None:
        name = next((name for kind, name in _LOCAL_CODES if isinstance(error, kind)), "_FAIL")
        if isinstance(error, ours.PurgedError) and error.was_in_flight:
            name = "_PURGE_INFLIGHT"
        code = CODES[name]
    category = getattr(error, "category", None)
    return KafkaError(
        code,
        f"{text_of(code)}: {error}",
        fatal=category in ("recoverable", "invalid"),
        retriable=bool(getattr(error, "retriable", False)) or category == "retriable",
        txn_requires_abort=category == "abortable",
    )


def record_error(error: BaseException) -> KafkaError:
    """Return why a record was not delivered: one that reached no broker has timed out, as in librdkafka."""
    if isinstance(error, ours.BootstrapError):
        code = CODES["_MSG_TIMED_OUT"]
        return KafkaError(code, f"{text_of(code)}: {error}")
    return kafka_error(error)


def kafka_exception(error: BaseException) -> KafkaException:
    """Return kafkaprod's error as an exception to raise; the error becomes its cause."""
    made = KafkaException(kafka_error(error))
    made.__cause__ = error
    return made


@contextlib.contextmanager
def theirs() -> Iterator[None]:
    """Raise KafkaException for kafkaprod's errors."""
    try:
        yield
    except (ours.KafkaError, TimeoutError) as error:
        raise kafka_exception(error) from error
