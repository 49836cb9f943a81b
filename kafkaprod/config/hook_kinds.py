"""Kinds of options that are the user's code, or the name of what Kafka has: serializers and partitioners.

The names are kept as text; `kafkaprod.hooks` makes the objects.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

from kafkaprod.config.kinds import Hook

_JAVA_SERIALIZERS: Final = "org.apache.kafka.common.serialization."
_JAVA_PARTITIONERS: Final = "org.apache.kafka.clients.producer."
_PARTITIONERS: Final = {
    "murmur2_random": None,
    "round_robin": "round_robin",
    f"{_JAVA_PARTITIONERS}RoundRobinPartitioner": "round_robin",
    f"{_JAVA_PARTITIONERS}internals.DefaultPartitioner": None,
}
_SERIALIZERS: Final = {
    **dict.fromkeys(("ByteArraySerializer", "ByteBufferSerializer", "BytesSerializer")),
    **{
        name: name
        for name in (
            *("StringSerializer", "ShortSerializer", "IntegerSerializer", "LongSerializer", "FloatSerializer"),
            *("DoubleSerializer", "BooleanSerializer", "UUIDSerializer"),
        )
    },
}
_PARTITION_ARGUMENTS: Final = ("topic", "key", "value", "partition_count", "available")


class SerializerKind:
    """A serializer of the user's, or the name of one of Kafka's own, as in Java's `.properties` files."""

    __slots__ = ()
    type_name = "object"
    allowed = f"a callable, an object with serialize(), or {', '.join(_SERIALIZERS)}, also behind {_JAVA_SERIALIZERS}"

    def parse(self, value: object) -> Any:
        """Return the object, or the name of one of Kafka's own; None for those of bytes, which nothing does."""
        name = value.removeprefix(_JAVA_SERIALIZERS) if isinstance(value, str) else None
        return _SERIALIZERS[name] if name in _SERIALIZERS else Hook(("serialize",)).parse(value)

    def show(self, value: object) -> str:
        """Return a name as it is, and of an object its class: its own text may hold a secret."""
        return repr(value) if isinstance(value, str) else f"<{type(value).__qualname__}>"


class PartitionerKind:
    """A partitioner of the user's, or the name of one that comes with the package."""

    __slots__ = ()
    type_name = "object"
    allowed = (
        f"an object with partition(), a function of {', '.join(_PARTITION_ARGUMENTS)}, murmur2_random, round_robin, or "
        f"Java's names of these two, {_JAVA_PARTITIONERS}RoundRobinPartitioner for one"
    )

    def parse(self, value: object) -> Any:
        """Return the object, or the name of one of the package; None for the built-in choice."""
        if isinstance(value, str) and value in _PARTITIONERS:
            return _PARTITIONERS[value]
        if callable(value) and not hasattr(value, "partition") and not isinstance(value, type):
            _check_arguments(value)
            return value
        return Hook(("partition",), accepts_callable=False).parse(value)

    def show(self, value: object) -> str:
        """Return as SerializerKind.show."""
        return repr(value) if isinstance(value, str) else f"<{type(value).__qualname__}>"


def _check_arguments(function: Any) -> None:
    """Refuse a function that does not take what it will be given. Raises ValueError."""
    try:
        inspect.signature(function).bind(*_PARTITION_ARGUMENTS)
    except TypeError:
        raise ValueError(function) from None
