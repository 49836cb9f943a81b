"""KafkaError and KafkaException where confluent-kafka is not installed; where it is, `error` takes the original's."""

from __future__ import annotations

from typing import Any, TypeAlias

from kafkaprod.compat.confluent_kafka.codes import CODES, name_of, text_of

Text: TypeAlias = str  # KafkaError has a method of that name, which hides the builtin in its body


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
