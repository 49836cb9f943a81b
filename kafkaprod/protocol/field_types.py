"""The types of fields in message declarations.

    field(INT16)    field(STRING.nullable(since=12))    field(array(INT32))    field(array(Topic).nullable())

A type defines what an unset field holds (`zero`) and how a value is read and written at one version (`codec`). Null
is legal from version `nullable_since` on; before it, or without it, null raises in both directions.
Where null is legal in every version, it is what an unset field holds.

Source: protocol guide "Protocol Primitive Types", KIP-482 (compact encodings), KIP-893 (nullable structs).
"""

from __future__ import annotations

import copy
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, Self

from kafkaprod.errors import CorruptDataError, UnsupportedVersionError
from kafkaprod.protocol.primitives import Reader, Writer


class ValueCodec(NamedTuple):
    """Reads and writes values of one type at one version.

    Attributes:
        read: Takes one value from a reader; raises CorruptDataError.
        write: Appends one value to a writer; raises ValueError, TypeError or struct.error for a value out of range.
        min_bytes: The size of the smallest encoding, at least 1; a count is checked with it before memory is taken.
    """

    read: Callable[[Reader], Any]
    write: Callable[[Writer, Any], None]
    min_bytes: int


class ElementType(Protocol):
    """What an array can hold: a field type, or a struct class."""

    def codec(self, version: int, is_flexible: bool, /) -> ValueCodec: ...


class FieldType(ABC):
    """One type of the protocol. Immutable once made."""

    nullable_since: int | None = None

    def nullable(self, since: int = 0) -> Self:
        """Return this type, with null legal from version `since` of the message on."""
        made = copy.copy(self)
        made.nullable_since = since
        return made

    def is_nullable(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since

    @abstractmethod
    def zero(self) -> Any:
        """Return a new value for a field that was not set and declares no default."""

    @abstractmethod
    def codec(self, version: int, is_flexible: bool, /) -> ValueCodec:
        """Return reader and writer at one version."""


class FixedType(FieldType):
    """A number or boolean. Neighbours are read and written together, as one `struct` layout.

    Attributes:
        format: Its letter in the `struct` module.
    """

    def __init__(self, format: str, zero_value: Any = 0) -> None:
        self.format = format
        self.zero_value = zero_value

    def zero(self) -> Any:
        return self.zero_value

    def codec(self, version: int, is_flexible: bool, /) -> ValueCodec:
        layout = struct.Struct(">" + self.format)

        def read(reader: Reader) -> Any:
            return reader.unpack(layout)[0]

        def write(writer: Writer, value: Any) -> None:
            writer.pack(layout, (value,))

        return ValueCodec(read, write, layout.size)


class ScalarType(FieldType):
    """UUID, string, bytes or records. Each variant is the pair of a Reader's and a Writer's method."""

    def __init__(
        self,
        zero_value: Any,
        classic: ValueCodec,
        classic_nullable: ValueCodec,
        compact: ValueCodec,
        compact_nullable: ValueCodec,
    ) -> None:
        self.zero_value = zero_value
        self.classic = classic
        self.classic_nullable = classic_nullable
        self.compact = compact
        self.compact_nullable = compact_nullable

    def zero(self) -> Any:
        return None if self.nullable_since == 0 else self.zero_value

    def codec(self, version: int, is_flexible: bool, /) -> ValueCodec:
        if self.is_nullable(version):
            return self.compact_nullable if is_flexible else self.classic_nullable
        return _refusing_null(self.compact if is_flexible else self.classic, self.nullable_since)


class ArrayType(FieldType):
    """Elements of one type; a list in Python."""

    def __init__(self, element: ElementType) -> None:
        self.element = element

    def zero(self) -> Any:
        return None if self.nullable_since == 0 else []

    def codec(self, version: int, is_flexible: bool, /) -> ValueCodec:
        if isinstance(self.element, FixedType):
            read_elements, write_elements = _fixed_elements(self.element.format)
        else:
            read_elements, write_elements = _elements(self.element.codec(version, is_flexible))
        read_count = Reader.read_compact_length if is_flexible else Reader.read_int32
        write_count = _write_compact_count if is_flexible else Writer.write_int32
        is_nullable = self.is_nullable(version)

        def read(reader: Reader) -> Any:
            count = read_count(reader)
            return None if count == -1 and is_nullable else read_elements(reader, count)

        def write(writer: Writer, value: Any) -> None:
            if value is None and is_nullable:
                write_count(writer, -1)
            else:
                write_count(writer, len(value))
                write_elements(writer, value)

        codec = ValueCodec(read, write, 1 if is_flexible else 4)
        return codec if is_nullable else _refusing_null(codec, self.nullable_since)


class StructType(FieldType):
    """A struct as a field. A nullable one starts with a byte: -1 null, 1 present (KIP-893)."""

    def __init__(self, struct_class: Any) -> None:
        self.struct_class = struct_class

    def zero(self) -> Any:
        return None if self.nullable_since == 0 else self.struct_class()

    def codec(self, version: int, is_flexible: bool, /) -> ValueCodec:
        inner: ValueCodec = self.struct_class.codec(version, is_flexible)
        if not self.is_nullable(version):
            return _refusing_null(inner, self.nullable_since)

        def read(reader: Reader) -> Any:
            return None if reader.read_int8() < 0 else inner.read(reader)

        def write(writer: Writer, value: Any) -> None:
            writer.write_int8(-1 if value is None else 1)
            if value is not None:
                inner.write(writer, value)

        return ValueCodec(read, write, 1)


def _refusing_null(codec: ValueCodec, nullable_since: int | None) -> ValueCodec:
    def write(writer: Writer, value: Any) -> None:
        if value is None:
            if nullable_since is not None:
                raise UnsupportedVersionError(f"null is legal only from version {nullable_since} on")
            raise ValueError("null where a value is required")
        codec.write(writer, value)

    return codec._replace(write=write)


def _write_compact_count(writer: Writer, count: int) -> None:
    writer.write_uvarint(count + 1)


_ReadElements = Callable[[Reader, int], list[Any]]
_WriteElements = Callable[[Writer, Any], None]


@lru_cache(maxsize=256)
def _layout(count: int, letter: str) -> struct.Struct:
    """Return the layout; cached, because a cluster has few replica counts and very many partitions."""
    return struct.Struct(f">{count}{letter}")


def _fixed_elements(letter: str) -> tuple[_ReadElements, _WriteElements]:
    element_bytes = struct.calcsize(">" + letter)

    def read(reader: Reader, count: int) -> list[Any]:
        reader.checked_count(count, element_bytes)
        return list(reader.unpack(_layout(count, letter)))

    def write(writer: Writer, values: Any) -> None:
        writer.pack(_layout(len(values), letter), values)

    return read, write


def _elements(element: ValueCodec) -> tuple[_ReadElements, _WriteElements]:
    read_element, write_element, min_bytes = element

    def read(reader: Reader, count: int) -> list[Any]:
        reader.checked_count(count, min_bytes)
        values: list[Any] = []
        try:
            for _ in range(count):
                values.append(read_element(reader))
        except CorruptDataError as error:
            raise CorruptDataError(f"element {len(values)}: {error}") from None
        return values

    def write(writer: Writer, values: Any) -> None:
        for value in values:
            write_element(writer, value)

    return read, write


BOOL = FixedType("?", zero_value=False)
INT8 = FixedType("b")
INT16 = FixedType("h")
INT32 = FixedType("i")
INT64 = FixedType("q")
UINT16 = FixedType("H")
UINT32 = FixedType("I")
FLOAT64 = FixedType("d", zero_value=0.0)

_UUID_CODEC = ValueCodec(Reader.read_uuid, Writer.write_uuid, 16)
# The zero UUID means none and is None in Python: no null marker on the wire, so every variant is the same.
UUID = ScalarType(None, _UUID_CODEC, _UUID_CODEC, _UUID_CODEC, _UUID_CODEC).nullable()

STRING = ScalarType(
    "",
    ValueCodec(Reader.read_string, Writer.write_string, 2),
    ValueCodec(Reader.read_nullable_string, Writer.write_nullable_string, 2),
    ValueCodec(Reader.read_compact_string, Writer.write_compact_string, 1),
    ValueCodec(Reader.read_compact_nullable_string, Writer.write_compact_nullable_string, 1),
)
NULLABLE_STRING = STRING.nullable()

BYTES = ScalarType(
    b"",
    ValueCodec(Reader.read_bytes, Writer.write_bytes, 4),
    ValueCodec(Reader.read_nullable_bytes, Writer.write_nullable_bytes, 4),
    ValueCodec(Reader.read_compact_bytes, Writer.write_compact_bytes, 1),
    ValueCodec(Reader.read_compact_nullable_bytes, Writer.write_compact_nullable_bytes, 1),
)
NULLABLE_BYTES = BYTES.nullable()

_CLASSIC_RECORDS = ValueCodec(Reader.read_records, Writer.write_records, 4)
_COMPACT_RECORDS = ValueCodec(Reader.read_compact_records, Writer.write_compact_records, 1)
# Record batches, opaque; null is legal in every message that has them.
RECORDS = ScalarType(None, _CLASSIC_RECORDS, _CLASSIC_RECORDS, _COMPACT_RECORDS, _COMPACT_RECORDS).nullable()


def array(element: ElementType) -> ArrayType:
    """Return an array of a field type or of a struct class."""
    return ArrayType(element)


def struct_of(struct_class: Any) -> StructType:
    """Return a struct as a single field."""
    return StructType(struct_class)
