"""The bytes of Kafka's own serializers in Java: numbers are big-endian, UUIDs text. All turn None into null.

Source: org.apache.kafka.common.serialization. All are thread-safe; what does not fit raises, and the record is refused.
"""

from __future__ import annotations

import struct
import uuid
from typing import ClassVar


class _Number:
    """A number in a format of `struct`."""

    _FORMAT: ClassVar[struct.Struct]

    def __call__(self, data: float | None) -> bytes | None:
        """Return the bytes; refuse what is no number of this kind, and one that does not fit."""
        if data is None:
            return None
        if isinstance(data, bool):
            raise TypeError("expected a number, not bool")
        return self._FORMAT.pack(data)


class ShortSerializer(_Number):
    """A whole number as 16 bits."""

    _FORMAT = struct.Struct(">h")


class IntegerSerializer(_Number):
    """A whole number as 32 bits."""

    _FORMAT = struct.Struct(">i")


class LongSerializer(_Number):
    """A whole number as 64 bits."""

    _FORMAT = struct.Struct(">q")


class FloatSerializer(_Number):
    """A number as a 32-bit float."""

    _FORMAT = struct.Struct(">f")


class DoubleSerializer(_Number):
    """A number as a 64-bit float."""

    _FORMAT = struct.Struct(">d")


class BooleanSerializer:
    """True as the byte 1, False as 0."""

    def __call__(self, data: bool | None) -> bytes | None:
        """Return the byte; refuse what is no bool."""
        if data is None:
            return None
        if not isinstance(data, bool):
            raise TypeError(f"expected bool, not {type(data).__name__}")
        return b"\x01" if data else b"\x00"


class UUIDSerializer:
    """A UUID as its text in UTF-8, 36 bytes."""

    def __call__(self, data: uuid.UUID | None) -> bytes | None:
        """Return the text; refuse what is no UUID."""
        if data is None:
            return None
        if not isinstance(data, uuid.UUID):
            raise TypeError(f"expected uuid.UUID, not {type(data).__name__}")
        return str(data).encode()
