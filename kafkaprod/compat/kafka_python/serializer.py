"""kafka-python's `kafka.serializer`."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any


class Serializer(ABC):
    """Turns keys or values into bytes."""

    @abstractmethod
    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: Any) -> Any:
        """Return the bytes of `data`; may append to `headers`."""

    def close(self) -> None:
        """Free what it holds; called when the producer is closed."""
        return


class Deserializer(ABC):
    """Turns bytes into keys or values."""

    @abstractmethod
    def deserialize(self, topic: str, headers: list[tuple[str, bytes]], data: bytes) -> Any:
        """Return what `data` holds."""

    def close(self) -> None:
        """Free what it holds."""
        return


class DefaultSerializer(Serializer, Deserializer):
    """Text in an encoding; bytes as they are."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: Any) -> Any:
        """Return encoded text, or bytes as they are."""
        if data is None or isinstance(data, bytes | bytearray | memoryview):
            return data
        return data.encode(self.encoding)

    def deserialize(self, topic: str, headers: list[tuple[str, bytes]], data: bytes | None) -> Any:
        """Return the text."""
        return None if data is None else data.decode(self.encoding)


class JsonSerializer(DefaultSerializer):
    """JSON text; None is a null record."""

    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: Any) -> Any:
        """Return the JSON text, encoded."""
        return None if data is None else json.dumps(data).encode(self.encoding)

    def deserialize(self, topic: str, headers: list[tuple[str, bytes]], data: bytes | None) -> Any:
        """Return what the JSON text says."""
        return None if data is None else json.loads(data.decode(self.encoding))


class SerializeWrapper(Serializer):
    """A plain function as a serializer."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: Any) -> Any:
        """Return `fn(data)`; the data if there is no function."""
        return data if self.fn is None else self.fn(data)
