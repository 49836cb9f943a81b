"""confluent-kafka's `confluent_kafka.serialization`: the serializers; deserializers come from the original package."""

from __future__ import annotations

import struct
from enum import Enum
from typing import Any

from kafkaprod.compat.confluent_kafka.error import SerializationError
from kafkaprod.compat.originals import original

__all__ = [
    "DoubleSerializer",
    "IntegerSerializer",
    "MessageField",
    "SerializationContext",
    "SerializationError",
    "Serializer",
    "StringSerializer",
]


class MessageField(str, Enum):  # noqa: UP042  (as the original, which serializers compare it with)
    """The part of a record that is serialized."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"

    def __str__(self) -> str:
        return str(self.value)


class SerializationContext:
    """What a serializer gets besides the object: topic, field and headers of the record."""

    def __init__(self, topic: str, field: MessageField, headers: Any = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers


class Serializer:
    """Base of serializers: `serializer(obj, ctx)` returns bytes, or None for null."""

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        raise NotImplementedError


class StringSerializer(Serializer):
    """Text in an encoding."""

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        if obj is None:
            return None
        try:
            encoded: bytes = obj.encode(self.codec)
        except (AttributeError, UnicodeEncodeError) as error:
            raise SerializationError(str(error)) from error
        return encoded


class IntegerSerializer(Serializer):
    """A whole number as 32 bits, big-endian."""

    _FORMAT = ">i"

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        if obj is None:
            return None
        try:
            return struct.pack(self._FORMAT, obj)
        except struct.error as error:
            raise SerializationError(str(error)) from error


class DoubleSerializer(IntegerSerializer):
    """A number as a 64-bit float, big-endian."""

    _FORMAT = ">d"


def __getattr__(name: str) -> Any:
    return original("confluent_kafka.serialization", name, __name__)
