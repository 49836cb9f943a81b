"""Compare what a Parquet footer says twice: it has no checksum, and libraries believe each of its bytes.

A changed bit there gives other column names, other types or fewer rows without an error. The schema has the name and
the type of each column, and each row group has them again; the rows of the groups are those of the file; types are
written in an old and in a new form. What is there once only, such as the unit of a time, cannot be compared.
Source: parquet.thrift 2.11; Thrift's compact protocol.
"""

from __future__ import annotations

import io
import struct
from typing import Any, Final

from kafkaprod.loader.opening.errors import LoadError

TAIL_BYTES: Final = 8  # length of the footer, and the magic number
_MOST_DEPTH: Final = 64
_STOP, _TRUE, _FALSE, _BYTE, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12
# Numbers of fields.
_SCHEMA, _FILE_ROWS, _GROUPS = 2, 3, 4
_TYPE, _NAME, _CHILD_COUNT, _CONVERTED, _LOGICAL = 1, 4, 5, 6, 10
_COLUMNS, _GROUP_ROWS = 1, 3
_COLUMN_META, _COLUMN_TYPE, _PATH = 3, 1, 3
# The member of the union LogicalType for each ConvertedType.
_LOGICAL_OF_CONVERTED: Final = {
    **{0: 1, 1: 2, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 7, 9: 8, 10: 8, 19: 12, 20: 13},
    **dict.fromkeys(range(11, 19), 10),
}
_UNKNOWN: Final = 11  # a column of nulls, whatever its old form is


def check_parquet_footer(stream: Any, name: str) -> None:
    """Refuse a file whose footer contradicts itself. A footer that cannot be read is left to the library.

    Args:
        stream: The file; is left at its beginning.
        name: The name of the input.

    Raises:
        LoadError: The footer is damaged.
    """
    size = stream.seek(0, io.SEEK_END)
    stream.seek(max(size - TAIL_BYTES, 0))
    tail = stream.read(TAIL_BYTES)
    footer = b""
    if len(tail) == TAIL_BYTES:
        (length,) = struct.unpack_from("<I", tail)
        if length <= size - TAIL_BYTES:
            stream.seek(size - TAIL_BYTES - length)
            footer = stream.read(length)
    stream.seek(0)
    try:
        why = _contradiction(_Compact(footer).struct())
    except (IndexError, KeyError, TypeError, AttributeError, ValueError, struct.error):
        return
    if why:
        raise LoadError(f"{name} is damaged: {why}")


def _contradiction(footer: dict[int, Any]) -> str:
    """Return what the footer says in two ways; empty: nothing."""
    groups = footer[_GROUPS]
    counts = [group[_GROUP_ROWS] for group in groups]
    if sum(counts) != footer[_FILE_ROWS] or min(counts, default=0) < 0:
        return f"its footer has {footer[_FILE_ROWS]:,} rows, and row groups of {sum(counts):,}"
    leaves: list[tuple[list[bytes], dict[int, Any]]] = []
    end = _take_leaves(footer[_SCHEMA], 0, [], leaves)
    if end != len(footer[_SCHEMA]):
        return f"its schema has {len(footer[_SCHEMA])} elements, and the root has {end}"
    for path, element in leaves:
        if _LOGICAL in element and _CONVERTED in element:
            expected = _LOGICAL_OF_CONVERTED.get(element[_CONVERTED])
            if expected is not None and not {expected, _UNKNOWN} & element[_LOGICAL].keys() and element[_LOGICAL]:
                return f"its schema has two types for column {_shown(path)}"
    for number, group in enumerate(groups):
        if len(group[_COLUMNS]) != len(leaves):
            return f"its schema has {len(leaves)} columns, and row group {number} has {len(group[_COLUMNS])}"
        for (path, element), chunk in zip(leaves, group[_COLUMNS], strict=True):
            meta = chunk.get(_COLUMN_META)  # not there if the column is encrypted
            if meta is None:
                continue
            if meta.get(_PATH, path) not in ([], path):
                return f"column {_shown(path)} of its schema is {_shown(meta[_PATH])} in row group {number}"
            if meta[_COLUMN_TYPE] != element[_TYPE]:
                return f"column {_shown(path)} has another type in row group {number} than in the schema"
    return ""


def _shown(path: list[bytes]) -> str:
    return repr(b".".join(path).decode(errors="backslashreplace"))


def _take_leaves(
    schema: list[dict[int, Any]], place: int, path: list[bytes], leaves: list[tuple[list[bytes], dict[int, Any]]]
) -> int:
    """Collect the columns below an element of the schema, which is a tree in preorder; return the place behind it."""
    if len(path) > _MOST_DEPTH:
        raise ValueError("the schema is too deep")
    element = schema[place]
    child_count = element.get(_CHILD_COUNT, 0)
    if not child_count and place:
        leaves.append((path, element))
    place += 1
    for _ in range(child_count):
        place = _take_leaves(schema, place, [*path, schema[place][_NAME]], leaves)
    return place


class _Compact:
    """Reads Thrift's compact protocol: structs as dicts by field number. Raises IndexError or ValueError at damage.

    Args:
        data: Begins with a struct.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read a struct."""
        fields: dict[int, Any] = {}
        number = 0
        while True:
            head = self._byte()
            kind = head & 15
            if kind == _STOP:
                return fields
            number = number + (head >> 4) if head >> 4 else self._number()
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _MOST_DEPTH:
            raise ValueError("it is nested too deeply")
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        if kind <= _I64:
            return self._number()
        if kind == _BINARY:
            return self._bytes(self._unsigned())
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind in (_LIST, _SET):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._unsigned()
            return [self._value(head & 15, depth + 1) for _ in range(count)]
        if kind == _MAP:
            count = self._unsigned()
            kinds = self._byte() if count else 0
            return [(self._value(kinds >> 4, depth + 1), self._value(kinds & 15, depth + 1)) for _ in range(count)]
        raise ValueError(f"type {kind}")

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _bytes(self, count: int) -> bytes:
        start = self._at
        self._at += count
        if self._at > len(self._data):
            raise IndexError
        return self._data[start : self._at]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number has too many bytes")

    def _number(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
