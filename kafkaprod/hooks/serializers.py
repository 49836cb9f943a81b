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

import enum
import inspect
import uuid
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from kafkaprod._core.queues.record_hooks import SerializerCall
from kafkaprod.errors import ConfigError
from kafkaprod.hooks import java_serializers
from kafkaprod.structs import BytesLike
from kafkaprod.threads import apart, importing

if TYPE_CHECKING:
    from json import JSONEncoder

RecordField: TypeAlias = Literal["key", "value"]
Form: TypeAlias = Literal["data", "topic", "headers", "context"]

_CONTEXT_NAMES: Final = ("ctx", "context")


class SerializationContext(NamedTuple):
    """What a confluent-style serializer gets besides the data.

    Attributes:
        topic: The record's topic.
        field: `key` or `value`.
        headers: The record's headers, a list of pairs that the serializer may append to.
    """

    topic: str
    field: RecordField
    headers: Any = None


class BoundSerializer(SerializerCall):
    """A serializer of keys or of values, called the same way whatever its form. As thread-safe as the user's.

    Args:
        serializer: The user's.
        field: What it serializes.

    Attributes:
        field: `key` or `value`.
        takes_headers: Whether it sees the record's headers; it may append to them then, as in Java.

    Raises:
        ConfigError: It has none of the forms above.
    """

    __slots__ = ()

    def __init__(self, serializer: Any, field: RecordField) -> None:
        name = getattr(serializer, "__qualname__", type(serializer).__qualname__)
        super().__init__(*_bind(serializer, field), field, name, SerializationContext)


def bind_serializer(serializer: Any, field: RecordField) -> BoundSerializer | None:
    """Return the serializer in its one calling form; None if there is none: the data are bytes already.

    Text is the name of one of Kafka's own, which the option has checked.
    """
    if isinstance(serializer, str):
        serializer = StringSerializer() if serializer == "StringSerializer" else getattr(java_serializers, serializer)()
    return None if serializer is None else BoundSerializer(serializer, field)


def _bind(serializer: Any, field: RecordField) -> tuple[Callable[..., Any], Form]:
    """Return the function to call, and in which form."""
    serialize = getattr(serializer, "serialize", None)
    if callable(serialize):
        return serialize, "topic" if len(_required_parameters(serialize)) == 2 else "headers"
    if not callable(serializer):
        raise ConfigError(f"{field}_serializer {type(serializer).__qualname__} is not callable and has no serialize()")
    return serializer, "context" if _wants_context(serializer) else "data"


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

    Uses orjson where it is installed (extra `json`), which is several times as fast; what orjson takes differently, the
    standard library writes. The text of floats may differ between the two (`1e16`, `1e+16`); the number is the same.

    Args:
        default: As in `json.dumps`: makes something serializable of objects JSON does not know; `dataclasses.asdict`
            for data classes, `lambda model: model.model_dump(mode="json")` for models of pydantic. Enumeration members
            and UUIDs are not passed to it: they are written as their value, and as text.
    """

    def __init__(self, default: Callable[[Any], Any] | None = None) -> None:
        self._default = default
        self._encoder = _json_encoder()(
            ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=self._plain_value
        )
        self._fast = _fast_json(default)

    def __call__(self, data: Any) -> bytes | None:
        """Return the JSON text; refuse NaN and infinities, which JSON lacks."""
        if data is None:
            return None
        if self._fast is not None:
            text = self._fast(data)
            if text is not None:
                return text
        return self._encoder.encode(data).encode()

    def _plain_value(self, data: Any) -> Any:
        if isinstance(data, enum.Enum):
            return data.value
        if isinstance(data, uuid.UUID):
            return str(data)
        if self._default is None:
            raise TypeError(f"Object of type {type(data).__name__} is not JSON serializable")
        return self._default(data)


@importing
def _json_encoder() -> type[JSONEncoder]:
    from json import JSONEncoder  # few producers write JSON

    return JSONEncoder


def _orjson() -> ModuleType | None:
    try:
        import orjson
    except ImportError:
        return None
    return orjson


def _fast_json(default: Callable[[Any], Any] | None) -> Callable[[Any], bytes | None] | None:
    """Return a function that makes JSON with orjson, or None for what it does differently; None without orjson."""
    orjson = apart(_orjson)
    if orjson is None:
        return None
    dumps, refusal = orjson.dumps, orjson.JSONEncodeError
    options = (
        orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
    )  # to `default`, as in the standard library

    def unknown(data: Any) -> Any:
        if default is None or isinstance(data, float | tuple):  # subclasses, which the standard library knows
            raise TypeError
        return default(data)

    def fast(data: Any) -> bytes | None:
        try:
            text: bytes = dumps(data, unknown, options)
        except refusal:
            return None
        # It writes NaN and infinities as null: where there is a null the standard library must look.
        return None if b"null" in text else text

    return fast
