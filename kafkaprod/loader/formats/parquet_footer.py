"""Compare what a Parquet footer says twice: it has no checksum, and libraries believe each of its bytes.

A changed bit there gives other column names, other types or fewer rows without an error. The schema has the name and
the type of each column, and each row group has them again; the rows of the groups are those of the file; types are
written in an old and in a new form; what is in the file ends where the footer begins. What is there once only, such as
the unit of a time, cannot be compared. Only what is compared is kept in memory, of one row group at a time.
Source: parquet.thrift 2.12; Thrift's compact protocol.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kafkaprod.loader.opening.errors import LoadError

TAIL_BYTES: Final = 8  # length of the footer, and the magic number
MAGIC: Final = b"PAR1"
MOST_FOOTER_BYTES: Final = 128 << 20
MOST_ELEMENTS: Final = 100_000  # of a schema
_BLOOM_HEADER_BYTES: Final = 64
_MOST_DEPTH: Final = 64
_MOST_ITEMS: Final = 1_000_000  # of a list, as pyarrow has it
_STOP, _TRUE, _FALSE, _BYTE, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12
# Numbers of fields.
_SCHEMA, _FILE_ROWS, _GROUPS = 2, 3, 4
_TYPE, _NAME, _CHILD_COUNT, _CONVERTED, _LOGICAL = 1, 4, 5, 6, 10
_COLUMNS, _GROUP_ROWS = 1, 3
_COLUMN_META, _OFFSET_INDEX, _OFFSET_INDEX_BYTES, _COLUMN_INDEX, _COLUMN_INDEX_BYTES = 3, 4, 5, 6, 7
_COLUMN_TYPE, _PATH, _CHUNK_BYTES, _DATA_PAGE, _DICTIONARY_PAGE, _BLOOM, _BLOOM_BYTES = 1, 3, 7, 9, 11, 14, 15
_WHOLE: Final = None  # a number or a text, as a wanted field
Wanted = Mapping[int, Any]  # number of a field -> what is wanted of it, if it is a struct or a list of structs
_ELEMENT: Final[Wanted] = {
    **dict.fromkeys((_TYPE, _NAME, _CHILD_COUNT, _CONVERTED), _WHOLE),
    _LOGICAL: {number: {} for number in range(1, 65)},  # of a union, which member it is
}
_CHUNK: Final[Wanted] = {
    **dict.fromkeys((_OFFSET_INDEX, _OFFSET_INDEX_BYTES, _COLUMN_INDEX, _COLUMN_INDEX_BYTES), _WHOLE),
    _COLUMN_META: dict.fromkeys(
        (_COLUMN_TYPE, _PATH, _CHUNK_BYTES, _DATA_PAGE, _DICTIONARY_PAGE, _BLOOM, _BLOOM_BYTES), _WHOLE
    ),
}
# The member of the union LogicalType for each ConvertedType.
_LOGICAL_OF_CONVERTED: Final = {
    **{0: 1, 1: 2, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 7, 9: 8, 10: 8, 19: 12, 20: 13},
    **dict.fromkeys(range(11, 19), 10),
}
_UNKNOWN: Final = 11  # a column of nulls, whatever its old form is
_CONVERTED_INTERVAL: Final = 21
_INTERVAL, _VARIANT, _LAST_KNOWN = 9, 16, 18
_BROKEN: Final = (IndexError, KeyError, TypeError, AttributeError, ValueError, struct.error)


def check_parquet_footer(stream: Any, name: str) -> dict[str, str]:
    """Refuse a file whose footer contradicts itself. A footer that cannot be read is left to the library.

    Args:
        stream: The file; is left at its beginning.
        name: The name of the input.

    Returns:
        The types of columns whose values pyarrow shows as what they are stored as, by the column's name.

    Raises:
        LoadError: The footer is damaged or too large, or several files were joined.
    """
    size = stream.seek(0, io.SEEK_END)
    stream.seek(max(size - TAIL_BYTES, 0))
    tail = stream.read(TAIL_BYTES)
    footer, start = b"", size
    if len(tail) == TAIL_BYTES:
        (length,) = struct.unpack_from("<I", tail)
        if length <= size - TAIL_BYTES:
            if length > MOST_FOOTER_BYTES:
                raise LoadError(
                    f"{name} has a footer of {length:,} bytes: more than {MOST_FOOTER_BYTES:,} are not read"
                )
            start = size - TAIL_BYTES - length
            stream.seek(start)
            footer = stream.read(length)
    found = _Footer()
    try:
        why = found.contradiction(CompactReader(footer))
    except _BROKEN:
        stream.seek(0)
        return {}
    if why:
        raise LoadError(f"{name} is damaged: {why}")
    before = start - found.end(stream)
    if before >= TAIL_BYTES:
        stream.seek(before - len(MAGIC))
        if stream.read(2 * len(MAGIC)) == 2 * MAGIC:
            raise LoadError(f"{name} is several Parquet files that were joined: load them one by one")
    stream.seek(0)
    return found.stored_forms


class _Footer:
    """Has what is compared of a footer."""

    def __init__(self) -> None:
        self.stored_forms: dict[str, str] = {}
        self._leaves: list[tuple[list[bytes], dict[int, Any]]] = []
        self._end = len(MAGIC)  # of the parts of the file
        self._bloom_filters: set[int] = set()  # places of those whose lengths are not known

    def contradiction(self, data: CompactReader) -> str:
        """Return what a footer says in two ways; empty: nothing. Raises one of _BROKEN."""
        rows: int | None = None
        group_rows: list[int] = []
        has_schema = False
        for number, kind in data.fields():
            if number == _SCHEMA:
                has_schema = True
                if why := self._take_schema(data):
                    return why
            elif number == _FILE_ROWS:
                rows = data.value(kind, _WHOLE)
            elif number == _GROUPS:
                if not has_schema:
                    raise ValueError("row groups come before the schema")
                for _ in range(data.list_count()):
                    count, why = self._take_group(data, len(group_rows))
                    if why:
                        return why
                    group_rows.append(count)
            else:
                data.skip(kind)
        if rows is None or not has_schema:
            raise KeyError(_SCHEMA)
        # The first writers in Rust left 0 there. Libraries read the rows of the groups, whatever the sum is.
        if rows not in (0, sum(group_rows)) or min(group_rows, default=0) < 0:
            return f"its footer has {rows:,} rows, and row groups of {sum(group_rows):,}"
        return ""

    def _take_schema(self, data: CompactReader) -> str:
        count = data.list_count()
        if count > MOST_ELEMENTS:
            return f"its schema has {count:,} elements, more than {MOST_ELEMENTS:,}"
        schema = [data.struct(_ELEMENT) for _ in range(count)]
        end = _take_leaves(schema, 0, [], self._leaves, self.stored_forms)
        if end != len(schema):
            return f"its schema has {len(schema)} elements, and the root has {end}"
        for path, element in self._leaves:
            if _LOGICAL in element and _CONVERTED in element:
                expected = _LOGICAL_OF_CONVERTED.get(element[_CONVERTED])
                if expected is not None and not {expected, _UNKNOWN} & element[_LOGICAL].keys() and element[_LOGICAL]:
                    return f"its schema has two types for column {_shown(path)}"
        return ""

    def _take_group(self, data: CompactReader, number: int) -> tuple[int, str]:
        """Read a row group; return its rows, and what contradicts the schema."""
        rows: int | None = None
        has_columns = False
        for field, kind in data.fields():
            if field == _GROUP_ROWS:
                rows = data.value(kind, _WHOLE)
            elif field == _COLUMNS:
                has_columns = True
                count = data.list_count()
                if count != len(self._leaves):
                    return 0, f"its schema has {len(self._leaves)} columns, and row group {number} has {count}"
                for path, element in self._leaves:
                    if why := self._take_chunk(data.struct(_CHUNK), path, element, number):
                        return 0, why
            else:
                data.skip(kind)
        if rows is None or not has_columns:
            raise KeyError(_COLUMNS)
        return rows, ""

    def _take_chunk(self, chunk: dict[int, Any], path: list[bytes], element: dict[int, Any], number: int) -> str:
        for place, size in ((_OFFSET_INDEX, _OFFSET_INDEX_BYTES), (_COLUMN_INDEX, _COLUMN_INDEX_BYTES)):
            self._end = max(self._end, chunk.get(place, 0) + chunk.get(size, 0))
        meta = chunk.get(_COLUMN_META)  # not there if the column is encrypted
        if meta is None:
            return ""
        if meta.get(_PATH, path) not in ([], path):
            return f"column {_shown(path)} of its schema is {_shown(meta[_PATH])} in row group {number}"
        if meta[_COLUMN_TYPE] != element[_TYPE]:
            return f"column {_shown(path)} has another type in row group {number} than in the schema"
        start = min(place for place in (meta[_DATA_PAGE], meta.get(_DICTIONARY_PAGE, 0)) if place > 0)
        self._end = max(self._end, start + meta[_CHUNK_BYTES])
        if _BLOOM_BYTES in meta:
            self._end = max(self._end, meta.get(_BLOOM, 0) + meta[_BLOOM_BYTES])
        elif _BLOOM in meta:
            self._bloom_filters.add(meta[_BLOOM])
        return ""

    def end(self, stream: Any) -> int:
        """Return where the last part of the file ends; that of a joined one counts from its own beginning."""
        last = max(self._bloom_filters, default=0)
        if last >= self._end:
            stream.seek(last)
            head = CompactReader(stream.read(_BLOOM_HEADER_BYTES))
            try:
                self._end = last + head.struct({1: _WHOLE})[1] + head.at
            except _BROKEN:
                return self._end
        return self._end


def _shown(path: list[bytes]) -> str:
    return repr(b".".join(path).decode(errors="backslashreplace"))


def _take_leaves(
    schema: list[dict[int, Any]],
    place: int,
    path: list[bytes],
    leaves: list[tuple[list[bytes], dict[int, Any]]],
    stored_forms: dict[str, str],
) -> int:
    """Collect the columns below an element of the schema, which is a tree in preorder; return the place behind it."""
    if len(path) > _MOST_DEPTH:
        raise ValueError("the schema is too deep")
    element = schema[place]
    form = _stored_form(element)
    if form and path:
        stored_forms.setdefault(path[0].decode(errors="backslashreplace"), form)
    child_count = element.get(_CHILD_COUNT, 0)
    if not child_count and place:
        leaves.append((path, element))
    place += 1
    for _ in range(child_count):
        place = _take_leaves(schema, place, [*path, schema[place][_NAME]], leaves, stored_forms)
    return place


def _stored_form(element: dict[int, Any]) -> str:
    """Return the name of a type of which pyarrow shows how a value is stored, and not the value; empty: of another."""
    logical = element.get(_LOGICAL, {})
    if _VARIANT in logical:
        return "VARIANT"
    if _INTERVAL in logical or element.get(_CONVERTED) == _CONVERTED_INTERVAL:
        return "INTERVAL"
    unknown = max(logical, default=0)
    return f"number {unknown} of parquet.thrift" if unknown > _LAST_KNOWN else ""


class CompactReader:
    """Reads Thrift's compact protocol: structs as dicts by field number. Raises IndexError or ValueError at damage.

    Args:
        data: Has a struct.
        at: Where.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self.at = at

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and kind of each field of a struct; who takes one reads or skips its value before the next."""
        number = 0
        while True:
            head = self._byte()
            kind = head & 15
            if kind == _STOP:
                return
            number = number + (head >> 4) if head >> 4 else self._number()
            yield number, kind

    def struct(self, wanted: Wanted, depth: int = 0) -> dict[int, Any]:
        """Read a struct: the fields that are wanted."""
        found: dict[int, Any] = {}
        for number, kind in self.fields():
            if number in wanted:
                found[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self.value(kind, wanted[number], depth)
            elif kind not in (_TRUE, _FALSE):
                self.skip(kind, depth)
        return found

    def value(self, kind: int, wanted: Wanted | None, depth: int = 0) -> Any:
        """Read a number, a text, a list of texts, or what is wanted of a struct."""
        if kind == _STRUCT:
            return self.struct(wanted or {}, depth + 1)
        if kind in (_BYTE, _TRUE, _FALSE):
            return self._byte()
        if kind <= _I64:
            return self._number()
        if kind == _BINARY:
            return self._bytes(self._unsigned())
        if kind == _LIST:
            kind, count = self._list_head()
            if count > _MOST_DEPTH or kind != _BINARY:
                raise ValueError("no path of a column")
            return [self._bytes(self._unsigned()) for _ in range(count)]
        raise ValueError(f"type {kind}")

    def skip(self, kind: int, depth: int = 0) -> None:
        """Pass a value over."""
        if depth > _MOST_DEPTH:
            raise ValueError("it is nested too deeply")
        if kind == _STRUCT:
            for _, inner in self.fields():
                if inner not in (_TRUE, _FALSE):
                    self.skip(inner, depth + 1)
        elif kind in (_LIST, _SET):
            inner, count = self._list_head()
            self._skip_all(inner, count, depth)
        elif kind == _MAP:
            count = self._unsigned()
            kinds = self._byte() if count else 0
            for _ in range(count):
                self._skip_all(kinds >> 4, 1, depth)
                self._skip_all(kinds & 15, 1, depth)
        elif kind in (_BYTE, _TRUE, _FALSE):
            self._byte()
        elif kind <= _I64:
            self._unsigned()
        elif kind in (_BINARY, _DOUBLE):
            self._bytes(8 if kind == _DOUBLE else self._unsigned())
        else:
            raise ValueError(f"type {kind}")

    def _skip_all(self, kind: int, count: int, depth: int) -> None:
        if count > _MOST_ITEMS:
            raise ValueError("the library takes no such list")
        for _ in range(count):
            self.skip(kind, depth + 1)

    def list_count(self) -> int:
        """Read the head of a list of structs; its items follow."""
        kind, count = self._list_head()
        if kind != _STRUCT or count > len(self._data) - self.at:
            raise ValueError("no list of structs")
        return count

    def _list_head(self) -> tuple[int, int]:
        head = self._byte()
        return head & 15, head >> 4 if head >> 4 < 15 else self._unsigned()

    def _byte(self) -> int:
        byte = self._data[self.at]
        self.at += 1
        return byte

    def _bytes(self, count: int) -> bytes:
        start = self.at
        self.at += count
        if self.at > len(self._data):
            raise IndexError
        return self._data[start : self.at]

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
