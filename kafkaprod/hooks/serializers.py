"""Objects to bytes: the first step of a record, on the caller's thread.

A serializer is the user's, in one of the forms other clients know; bind_serializer finds out which:

    f(data)                            any callable
    f(data, ctx)                       confluent-kafka's: the second argument is required, or named ctx or context
    .serialize(topic, headers, data)   kafka-python 3's
    .serialize(topic, data)            kafka-python's before

It is given None too, as in Java and those clients; those here turn None into null. It must be thread-safe if several
threads send.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kafkaprod.errors import ConfigError, SerializationError

Field: TypeAlias = Literal["key", "value"]
BytesLike: TypeAlias = bytes | bytearray | memoryview
Call: TypeAlias = Callable[[str, Any, Any], Any]  # topic, headers, data

_CONTEXT_NAMES: Final = ("ctx", "context")


class SerializationContext(NamedTuple):
    """What a confluent-style serializer gets besides the data.

    Attributes:
        topic: The record's topic.
        field: `key` or `value`.
        headers: The record's headers, a list of pairs that the serializer may append to.
    """

    topic: str
    field: Field
    headers: Any = None


class BoundSerializer:
    """A serializer of keys or of values, called the same way whatever its form. As thread-safe as the user's.

    Args:
        serializer: The user's.
        field: What it serializes.

    Attributes:
        takes_headers: Whether it sees the record's headers; it may append to them then, as in Java.

    Raises:
        ConfigError: It has none of the forms above.
    """

    __slots__ = ("_call", "_name", "field", "takes_headers")

    def __init__(self, serializer: Any, field: Field) -> None:
        self.field = field
        self._name = getattr(serializer, "__qualname__", type(serializer).__qualname__)
        self._call, self.takes_headers = _bind(serializer, field)

    def __call__(self, topic: str, headers: Any, data: Any) -> BytesLike | None:
        """Return the bytes of `data`; None for null.

        Raises:
            SerializationError: The serializer raised (its error is the cause) or returned something else.
        """
        try:
            serialized = self._call(topic, headers, data)
        except Exception as error:
            raise SerializationError(
                f"{self.field} serializer {self._name} raised {type(error).__name__} for a {type(data).__name__} of "
                f"topic {topic!r}: {error}",
                topic=topic,
            ) from error
        if serialized is None or isinstance(serialized, bytes | bytearray | memoryview):
            return serialized
        raise SerializationError(
            f"{self.field} serializer {self._name} returned a {type(serialized).__name__} for topic {topic!r}, "
            "expected bytes or None",
            topic=topic,
        )


def bind_serializer(serializer: Any, field: Field) -> BoundSerializer | None:
    """Return the serializer in its one calling form; None if there is none: the data are bytes already."""
    return None if serializer is None else BoundSerializer(serializer, field)


def _bind(serializer: Any, field: Field) -> tuple[Call, bool]:
    """Return the serializer in its one calling form, and whether it takes headers."""
    serialize = getattr(serializer, "serialize", None)
    if callable(serialize):
        if len(_required_parameters(serialize)) == 2:
            return (lambda topic, headers, data: serialize(topic, data)), False
        return serialize, True
    if not callable(serializer):
        raise ConfigError(f"{field}_serializer {type(serializer).__qualname__} is not callable and has no serialize()")
    function: Callable[..., Any] = serializer
    if _wants_context(function):
        return (lambda topic, headers, data: function(data, SerializationContext(topic, field, headers))), True
    return (lambda topic, headers, data: function(data)), False


def _wants_context(function: Callable[..., Any]) -> bool:
    # An optional second argument proves nothing: str.encode and pickle.dumps have one.
    if len(_required_parameters(function)) == 2:
        return True
    positional = _positional_parameters(function)
    return len(positional) > 1 and positional[1].name in _CONTEXT_NAMES


def _required_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return [each for each in _positional_parameters(function) if each.default is inspect.Parameter.empty]


def _positional_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # functions of C without a signature: taken as f(data)
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each for each in parameters if each.kind in kinds]


class BytesSerializer:
    """Bytes as they are; anything else is refused. Thread-safe."""

    def __call__(self, data: BytesLike | None) -> BytesLike | None:
        """Return the same object."""
        if data is None or isinstance(data, bytes | bytearray | memoryview):
            return data
        raise TypeError(f"expected bytes, not {type(data).__name__}")


class StringSerializer:
    """Text in an encoding. Thread-safe."""

    def __init__(self, encoding: str = "utf-8") -> None:
        "".encode(encoding)  # an unknown one raises here and not at the first record
        self._encoding = encoding

    def __call__(self, data: str | None) -> bytes | None:
        """Return the encoded text."""
        if data is None:
            return None
        if not isinstance(data, str):
            raise TypeError(f"expected str, not {type(data).__name__}")
        return data.encode(self._encoding)


class JsonSerializer:
    """Compact JSON in UTF-8. None becomes null, a tombstone, not the JSON text `null`. Thread-safe.

    Args:
        default: As in `json.dumps`: makes something serializable of objects JSON does not know.
    """

    def __init__(self, default: Callable[[Any], Any] | None = None) -> None:
        self._encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default)

    def __call__(self, data: Any) -> bytes | None:
        """Return the JSON text; refuse NaN and infinities, which JSON lacks."""
        return None if data is None else self._encoder.encode(data).encode()
