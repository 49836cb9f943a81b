"""confluent-kafka's KafkaError and KafkaException, and what each error of kafkaprod is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafkaprod import errors as ours
from kafkaprod.compat.confluent_kafka.codes import CODES, name_of, text_of

if TYPE_CHECKING:
    from kafkaprod.compat.confluent_kafka.message import Message

Text: TypeAlias = str  # KafkaError has a method of that name, which hides the builtin in its body
INVALID_ARG: Final = CODES["_INVALID_ARG"]


class _Constants(type):
    """Lets type checkers take the constants of KafkaError, which are set below."""

    def __getattr__(cls, name: str) -> int:
        raise AttributeError(f"KafkaError has no attribute {name!r}")


class KafkaError(metaclass=_Constants):
    """A code with a text; no exception. Equal to its code.

    Args:
        error: The code.
        reason: Text in place of the code's own.
        fatal: Whether the producer cannot continue.
        retriable: Whether the same call may succeed later.
        txn_requires_abort: Whether the transaction must be aborted.
    """

    def __init__(
        self,
        error: int,
        reason: Text | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code = error
        self._text = text_of(error) if reason is None else reason
        self._is_fatal = fatal
        self._is_retriable = retriable
        self._needs_abort = txn_requires_abort

    def code(self) -> int:
        """Return the code: Kafka's, or librdkafka's if negative."""
        return self._code

    def name(self) -> Text:
        """Return the constant's name."""
        return name_of(self._code)

    def str(self) -> Text:
        """Return the text."""
        return self._text

    def fatal(self) -> bool:
        """Whether the producer cannot continue."""
        return self._is_fatal

    def retriable(self) -> bool:
        """Whether the same call may succeed later."""
        return self._is_retriable

    def txn_requires_abort(self) -> bool:
        """Whether the transaction must be aborted."""
        return self._needs_abort

    def __eq__(self, other: object) -> bool:
        return self._code == (other._code if isinstance(other, KafkaError) else other)

    def __lt__(self, other: Any) -> bool:
        return self._code < int(getattr(other, "_code", other))

    def __hash__(self) -> int:
        return self._code

    def __repr__(self) -> Text:
        fatal = "FATAL," if self._is_fatal else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self._text}"}}'

    __str__ = __repr__


for _name, _code in CODES.items():
    setattr(KafkaError, _name, _code)


class KafkaException(Exception):
    """Raised with a KafkaError as its first argument."""


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
