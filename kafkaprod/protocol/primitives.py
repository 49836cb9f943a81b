"""Reader and Writer for the types of Kafka's protocol, classic and compact.

    type              classic                          compact (flexible versions)
    INT8..INT64 etc.  big-endian                       same
    UUID              16 bytes, zero means none        same
    STRING            int16 length, UTF-8              uvarint length + 1, UTF-8
    BYTES, RECORDS    int32 length, bytes              uvarint length + 1, bytes
    ARRAY             int32 count, elements            uvarint count + 1, elements
    null of these     length or count -1               0
    tagged fields     -                                uvarint n, n x (uvarint tag, uvarint size, bytes), tags ascending

Source: protocol guide "Protocol Primitive Types", KIP-482 (flexible versions, unsigned varints), KIP-98 (zigzag).

Every read is checked against the end of the buffer, and every count against the bytes left, before memory is
allocated. Damage raises CorruptDataError; the position of the reader is then undefined, so drop the reader.

Threads: one at a time.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

from kafkaprod.errors import CorruptDataError
from kafkaprod.structs import BytesLike


class ByteChain(Protocol):
    """Consecutive buffers that are queued as one, such as the records of a request."""

    @property
    def nbytes(self) -> int:
        """The length of all buffers."""
        ...

    def from_byte(self, start: int, limit: int) -> list[BytesLike]:
        """Return at most `limit` buffers from byte `start` on, none empty."""
        ...


INT8 = struct.Struct(">b")
INT16 = struct.Struct(">h")
UINT16 = struct.Struct(">H")
INT32 = struct.Struct(">i")
UINT32 = struct.Struct(">I")
INT64 = struct.Struct(">q")
FLOAT64 = struct.Struct(">d")

MAX_STRING_BYTES = 32767  # the int16 length of the classic encoding; Kafka applies it to compact strings too
UINT32_MAX = 0xFFFFFFFF
UNLIMITED_ELEMENTS = 1 << 62
MAX_ELEMENTS = 1_000_000
"""Most array elements of an answer: one of 100 MiB could cost 20 times its size, and half a minute."""
LARGE_BUFFER_BYTES = 4096  # from this size a records buffer is referenced, not copied: a copy is cheaper below it

ZERO_UUID = bytes(16)


class Reader:
    """Reads values from a buffer, front to back. It never copies the buffer, so keep that unchanged while reading.

    Attributes:
        position: Index of the next byte to read.
        elements_left: The number of array elements that may still be read.
    """

    __slots__ = ("_end", "_view", "elements_left", "position")

    def __init__(self, buffer: BytesLike, max_elements: int = UNLIMITED_ELEMENTS) -> None:
        self._view = memoryview(buffer).cast("B")
        self._end = len(self._view)
        self.position = 0
        self.elements_left = max_elements

    @property
    def remaining(self) -> int:
        """The number of bytes left."""
        return self._end - self.position

    def damage(self, what: str) -> CorruptDataError:
        """Make the error for damage at the current position; the caller raises it."""
        return CorruptDataError(f"{what}, at byte {self.position} of {self._end}")

    def skip(self, size: int) -> int:
        """Move over `size` bytes; return the index of the first one."""
        start = self.position
        if not 0 <= size <= self._end - start:
            raise self.damage(f"{size} bytes announced where {self.remaining} are left")
        self.position = start + size
        return start

    def unpack(self, layout: struct.Struct) -> Any:
        """Read the values of one fixed layout, as a tuple."""
        start = self.position
        end = start + layout.size
        if end > self._end:
            raise self.damage(f"{layout.size} bytes announced where {self.remaining} are left")
        self.position = end
        return layout.unpack_from(self._view, start)

    def expect_end(self) -> None:
        """Raise unless everything was read."""
        if self.position != self._end:
            raise self.damage(f"{self.remaining} bytes left over")

    def begin_region(self, size: int) -> int:
        """Limit reading to the next `size` bytes; return the argument for `end_region`."""
        outer_end = self._end
        if size > self.remaining:
            raise self.damage(f"{size} bytes announced where {self.remaining} are left")
        self._end = self.position + size
        return outer_end

    def end_region(self, outer_end: int) -> None:
        """Leave a region, which must have been read to its end."""
        self.expect_end()
        self._end = outer_end

    # -- fixed sizes ---------------------------------------------------------------------------------------------------

    def read_int8(self) -> int:
        value: int = self.unpack(INT8)[0]
        return value

    def read_int16(self) -> int:
        value: int = self.unpack(INT16)[0]
        return value

    def read_int32(self) -> int:
        value: int = self.unpack(INT32)[0]
        return value

    def read_uuid(self) -> uuid.UUID | None:
        raw = self.read_view(16).tobytes()
        return None if raw == ZERO_UUID else uuid.UUID(bytes=raw)

    # -- varints -------------------------------------------------------------------------------------------------------

    def read_uvarint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        start = self.position
        if start < self._end:
            first = self._view[start]
            if first < 0x80:
                self.position = start + 1
                return first
        return self._read_long_uvarint(UINT32_MAX)

    def _read_long_uvarint(self, maximum: int) -> int:
        value = shift = 0
        while True:
            byte = self._view[self.skip(1)]
            value |= (byte & 0x7F) << shift
            shift += 7
            if value > maximum or (byte >= 0x80 and shift >= maximum.bit_length()):
                raise self.damage(f"a varint exceeds {maximum.bit_length()} bits")
            if byte < 0x80:
                return value

    # -- lengths and counts: -1 means null in both encodings -----------------------------------------------------------

    def read_compact_length(self) -> int:
        start = self.position
        if start < self._end:
            first = self._view[start]
            if first < 0x80:
                self.position = start + 1
                return first - 1
        return self._read_long_uvarint(UINT32_MAX) - 1

    def _required(self, length: int) -> int:
        if length < 0:
            raise self.damage("null where a value is required" if length == -1 else f"negative length {length}")
        return length

    def _optional(self, length: int) -> int | None:
        return None if length == -1 else self._required(length)

    def checked_count(self, count: int, min_element_bytes: int) -> int:
        """Return `count` if that many elements of the least size fit in the bytes left; -1 (null) is refused, too."""
        needed = count * min_element_bytes
        if not 0 <= needed <= self._end - self.position:
            self._required(count)
            raise self.damage(f"array of {count} elements needs {needed} bytes, {self.remaining} left")
        if count > self.elements_left:
            raise self.damage(f"array of {count} elements where {self.elements_left} more are allowed in the message")
        self.elements_left -= count
        return count

    # -- variable sizes ------------------------------------------------------------------------------------------------

    def read_view(self, size: int) -> memoryview:
        """Return the next `size` bytes, not copied."""
        start = self.skip(size)
        return self._view[start : start + size]

    def _read_text(self, size: int) -> str:
        start = self.skip(size)
        try:
            return str(self._view[start : start + size], "utf-8")
        except UnicodeDecodeError as error:
            raise self.damage(f"a string of {size} bytes is not UTF-8 ({error.reason})") from None

    def read_string(self) -> str:
        return self._read_text(self._required(self.read_int16()))

    def read_nullable_string(self) -> str | None:
        length = self._optional(self.read_int16())
        return None if length is None else self._read_text(length)

    def read_compact_string(self) -> str:
        return self._read_text(self._required(self.read_compact_length()))

    def read_compact_nullable_string(self) -> str | None:
        length = self._optional(self.read_compact_length())
        return None if length is None else self._read_text(length)

    def read_bytes(self) -> bytes:
        return self.read_view(self._required(self.read_int32())).tobytes()

    def read_nullable_bytes(self) -> bytes | None:
        length = self._optional(self.read_int32())
        return None if length is None else self.read_view(length).tobytes()

    def read_compact_bytes(self) -> bytes:
        return self.read_view(self._required(self.read_compact_length())).tobytes()

    def read_compact_nullable_bytes(self) -> bytes | None:
        length = self._optional(self.read_compact_length())
        return None if length is None else self.read_view(length).tobytes()

    def read_records(self) -> memoryview | None:
        """Return record batches as a view of the buffer, not copied."""
        length = self._optional(self.read_int32())
        return None if length is None else self.read_view(length)

    def read_compact_records(self) -> memoryview | None:
        """Return record batches as a view of the buffer, not copied."""
        length = self._optional(self.read_compact_length())
        return None if length is None else self.read_view(length)

    def skip_tagged_fields(self) -> None:
        """Skip a tagged section without known fields."""
        previous_tag = -1
        for _ in range(self.checked_count(self.read_uvarint(), 2)):
            previous_tag = self.read_tag(previous_tag)
            self.skip(self.read_uvarint())

    def read_tag(self, previous_tag: int) -> int:
        """Read the next tag of a tagged section; it must be higher than the previous one."""
        tag = self.read_uvarint()
        if tag <= previous_tag:
            raise self.damage(f"tag {tag} follows tag {previous_tag}")
        return tag


class Writer:
    """Collects encoded values. Values out of a type's range raise struct.error or ValueError.

    Large records are kept as references, so the result is a list of buffers; `getvalue` joins them.
    """

    __slots__ = ("_data", "_parts")

    def __init__(self) -> None:
        self._data = bytearray()
        self._parts: list[BytesLike] = []

    def parts(self) -> list[BytesLike]:
        """Return all buffers in order. Records buffers are the caller's: they must not change until sent."""
        return [*self._parts, self._data] if self._data else [*self._parts]

    def getvalue(self) -> bytes:
        """Return everything written as one new bytes object."""
        return b"".join(self.parts())

    def write_raw(self, data: BytesLike) -> None:
        """Write bytes that are already encoded."""
        self._data += data

    def pack(self, layout: struct.Struct, values: Sequence[Any]) -> None:
        """Write the values of one fixed layout."""
        self._data += layout.pack(*values)

    # -- fixed sizes ---------------------------------------------------------------------------------------------------

    def write_int8(self, value: int) -> None:
        self._data += INT8.pack(value)

    def write_int16(self, value: int) -> None:
        self._data += INT16.pack(value)

    def write_int32(self, value: int) -> None:
        self._data += INT32.pack(value)

    def write_uuid(self, value: uuid.UUID | None) -> None:
        self._data += ZERO_UUID if value is None else value.bytes

    # -- varints -------------------------------------------------------------------------------------------------------

    def write_uvarint(self, value: int) -> None:
        """An unsigned varint of at most 32 bits."""
        if 0 <= value <= 0x7F:
            self._data.append(value)
            return
        if not 0 <= value <= UINT32_MAX:
            raise ValueError(f"{value} does not fit an unsigned varint of 32 bits")
        self._write_long_uvarint(value)

    def _write_long_uvarint(self, value: int) -> None:
        while value > 0x7F:
            self._data.append(value & 0x7F | 0x80)
            value >>= 7
        self._data.append(value)

    # -- variable sizes; only the nullable ones take None --------------------------------------------------------------

    def write_string(self, value: str) -> None:
        raw = _encode_text(value)
        self.write_int16(len(raw))
        self._data += raw

    def write_nullable_string(self, value: str | None) -> None:
        if value is None:
            self.write_int16(-1)
        else:
            self.write_string(value)

    def write_compact_string(self, value: str) -> None:
        raw = _encode_text(value)
        self.write_uvarint(len(raw) + 1)
        self._data += raw

    def write_compact_nullable_string(self, value: str | None) -> None:
        if value is None:
            self.write_uvarint(0)
        else:
            self.write_compact_string(value)

    def write_bytes(self, value: BytesLike) -> None:
        self.write_int32(_size_of(value))
        self._data += value

    def write_nullable_bytes(self, value: BytesLike | None) -> None:
        if value is None:
            self.write_int32(-1)
        else:
            self.write_bytes(value)

    def write_compact_bytes(self, value: BytesLike) -> None:
        self.write_uvarint(_size_of(value) + 1)
        self._data += value

    def write_compact_nullable_bytes(self, value: BytesLike | None) -> None:
        if value is None:
            self.write_uvarint(0)
        else:
            self.write_compact_bytes(value)

    def write_records(self, value: BytesLike | None) -> None:
        self.write_int32(-1 if value is None else _size_of(value))
        self._reference(value)

    def write_compact_records(self, value: BytesLike | None) -> None:
        self.write_uvarint(0 if value is None else _size_of(value) + 1)
        self._reference(value)

    def _reference(self, value: BytesLike | None) -> None:
        if value is None:
            return
        if _size_of(value) < LARGE_BUFFER_BYTES:
            self._data += value
        else:
            self._parts += [self._data, value]
            self._data = bytearray()


def _encode_text(value: str) -> bytes:
    raw = value.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"string of {len(raw)} bytes exceeds the protocol's {MAX_STRING_BYTES}: {value[:40]!r}...")
    return raw


def _size_of(value: BytesLike) -> int:
    return memoryview(value).nbytes
