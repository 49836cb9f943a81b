"""CSV: cut at line ends outside quotes into pieces, each parsed by pyarrow, or forwarded as it is.

A piece that does not parse is halved until the lines that are at fault stand alone. Column types are those of the first
piece, so that a column looks the same in every record; `--column-type` and `--text-columns` change them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.text.row_splitter import split_lines
from kafkaprod.loader.errors import BadRow, LoadError
from kafkaprod.loader.inputs import Source
from kafkaprod.loader.plan import RAW, RowPlan
from kafkaprod.loader.rows import RowBlock
from kafkaprod.loader.tables import import_pyarrow, table_block
from kafkaprod.loader.text import Cut, Piece, Text, pieces

if TYPE_CHECKING:
    import pyarrow as pa

QUOTE: Final = ord('"')
_OWN_ROW: Final = re.compile(r"Row #\d+: ")


class CsvReader:
    """Reads one CSV file.

    Args:
        source: What to read.
        plan: What becomes of rows.
        separator: Between fields.
        types: Column -> pyarrow type name; others as the first piece suggests.
        is_text: Take every other column as text.
        names: Of the columns; None: the first line has them.
    """

    def __init__(
        self,
        source: Source,
        plan: RowPlan,
        separator: str = ",",
        types: Mapping[str, str] | None = None,
        is_text: bool = False,
        names: list[str] | None = None,
    ) -> None:
        self._source = source
        self._plan = plan
        self._separator = separator
        self._types = dict(types or {})
        self._is_text = is_text
        self._names = names
        self._schema: dict[str, Any] = {}

    def blocks(self, row: int, offset: int) -> Iterator[RowBlock]:
        """Blocks from a row on that begins at `offset`."""
        has_header = self._names is None
        if self._plan.value != RAW or self._plan.needs_fields:
            import_pyarrow("CSV")
            begin = self._learn()
        else:
            begin = self._header_end() if has_header else 0
        for piece in pieces(self._source, max(offset, begin), _split):
            rows = _without_blank_lines(piece)
            if self._plan.value == RAW and not self._plan.needs_fields:
                numbers = np.arange(row, row + rows.row_count, dtype=np.int64)
                yield RowBlock(numbers, _column(rows), row + rows.row_count, rows.end)
            else:
                yield self._parsed(rows, row)
            row += rows.row_count

    def _header_end(self) -> int:
        for piece in pieces(self._source, 0, _split):
            return _first_line_end(piece.text)
        return 0

    def _learn(self) -> int:
        """Find column names and types in the first piece; return where the first row begins."""
        import pyarrow as pa

        for piece in pieces(self._source, 0, _split, fills=not self._is_text):
            begin = 0 if self._names is not None else _first_line_end(piece.text)
            names = self._names or self._header(piece.text[:begin])
            self._names = names
            self._plan.check_fields(names, self._source.name)
            unknown = [name for name in self._types if name not in names]
            if unknown:
                raise LoadError(f"{self._source.name} has no column {unknown[0]!r}; it has: {', '.join(names)}")
            self._schema = {name: _type(kind) for name, kind in self._types.items()}
            if self._is_text:
                self._schema = {name: pa.string() for name in names} | self._schema
            else:
                self._schema = self._guessed(piece.text[begin : piece.used]) | self._schema
            return begin
        return 0

    def _guessed(self, text: memoryview) -> dict[str, Any]:
        """Types of the columns as those rows suggest that can be read; text if there is none."""
        import pyarrow as pa
        import pyarrow.csv as pc

        assert self._names is not None
        parse = pc.ParseOptions(
            delimiter=self._separator, newlines_in_values=True, invalid_row_handler=lambda _: "skip"
        )
        convert = pc.ConvertOptions(strings_can_be_null=False)
        try:
            schema = pc.read_csv(pa.py_buffer(text), self._read_options(), parse, convert).schema
        except pa.ArrowInvalid:  # an empty text, too
            return dict.fromkeys(self._names, pa.string())
        return {field.name: _settled(field.type) for field in schema}

    def _header(self, line: memoryview) -> list[str]:
        import pyarrow as pa
        import pyarrow.csv as pc

        try:
            names = list(
                pc.read_csv(pa.py_buffer(line), parse_options=pc.ParseOptions(delimiter=self._separator)).schema.names
            )
        except pa.ArrowInvalid as error:
            raise LoadError(f"{self._source.name}: the first line has no column names: {error}") from error
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise LoadError(f"{self._source.name} has two columns {twice!r}")
        return names

    def _read_options(self) -> Any:
        import pyarrow.csv as pc

        return pc.ReadOptions(column_names=self._names, use_threads=False, block_size=1 << 30)

    def _parsed(self, piece: Piece, row: int) -> RowBlock:
        table = self._parse(piece.text[: piece.used])
        bad: list[BadRow] = []
        places = None
        if isinstance(table, str) or table.num_rows != piece.row_count:
            table, bad, places = self._sort_out(piece, row)
        batches = table.combine_chunks().to_batches()
        if not batches:
            return RowBlock(np.zeros(0, dtype=np.int64), None, row + piece.row_count, piece.end, bad=bad)
        raw = None
        if self._plan.value == RAW:
            raw = _column(piece) if places is None else _column(_only(piece, places))
        block = table_block(self._source, self._plan, batches[0], row, piece.end, raw)
        numbers = block.numbers if places is None else np.array(places, dtype=np.int64)[block.numbers - row] + row
        bad = sorted([*bad, *block.bad], key=lambda row: row.row)
        return replace(block, numbers=numbers, end_row=row + piece.row_count, bad=bad)

    def _parse(self, text: bytes | memoryview) -> Any:
        """A table, or why it is none."""
        import pyarrow as pa
        import pyarrow.csv as pc

        parse = pc.ParseOptions(delimiter=self._separator, newlines_in_values=True)
        convert = pc.ConvertOptions(column_types=self._schema, strings_can_be_null=False)
        try:
            return pc.read_csv(pa.py_buffer(text), self._read_options(), parse, convert)
        except pa.ArrowInvalid as error:
            return _plain(str(error))

    def _sort_out(self, piece: Piece, row: int) -> tuple[pa.Table, list[BadRow], list[int]]:
        """The rows that parse, those that do not, and the places of the good ones among all."""
        import pyarrow as pa

        column = _column(piece)
        lines = [column[i] or b"" for i in range(piece.row_count)]
        bad: list[BadRow] = []
        good: list[pa.Table] = []
        numbers: list[int] = []
        todo = [(0, len(lines))]
        while todo:
            first, last = todo.pop()
            table = self._parse(b"\n".join(lines[first:last]) + b"\n")
            if not isinstance(table, str) and table.num_rows == last - first:
                good.append(table)
                numbers.extend(range(first, last))
            elif last - first == 1:
                reason = table if isinstance(table, str) else "is not one row"
                bad.append(BadRow(self._source.name, row + first, reason, lines[first]))
            else:
                middle = (first + last) // 2
                todo += [(middle, last), (first, middle)]
        empty = pa.table({name: pa.array([], kind) for name, kind in self._schema.items()})
        return pa.concat_tables(good, promote_options="permissive") if good else empty, bad, numbers


def _split(text: Text, is_last: bool) -> Cut:
    return (*split_lines(text, 10, QUOTE, True, is_last), False)


def _column(piece: Piece) -> Column:
    return Column.from_views(piece.views, [piece.text], name="value")


def _only(piece: Piece, places: Sequence[int] | NDArray[np.intp]) -> Piece:
    """Some rows of a piece."""
    views = np.frombuffer(piece.views, dtype=np.uint8).reshape(-1, 16)[np.asarray(places, dtype=np.intp)]
    return piece._replace(views=views.tobytes(), row_count=len(views))


def _without_blank_lines(piece: Piece) -> Piece:
    lengths = np.frombuffer(piece.views, dtype=np.int32)[::4]
    return piece if lengths.all() else _only(piece, np.flatnonzero(lengths))


def _first_line_end(text: Text) -> int:
    views, count, _ = split_lines(text, 10, QUOTE, False, True)
    return min(int(np.frombuffer(views[:4], dtype=np.int32)[0]) + 1, len(text)) if count else 0


def _type(name: str) -> Any:
    import pyarrow as pa

    aliases = {"text": "string", "int": "int64", "float": "double", "timestamp": "timestamp[ms]", "date": "date32"}
    try:
        return pa.type_for_alias(aliases.get(name, name))
    except ValueError as error:
        raise LoadError(f"--column-type: {name!r} is no type; try text, int, float, bool, timestamp, date") from error


def _settled(kind: pa.DataType) -> pa.DataType:
    """A column that is empty all through the first piece is text."""
    import pyarrow as pa

    return pa.string() if pa.types.is_null(kind) else kind


def _plain(message: str) -> str:
    """Pyarrow's message without the numbers of the piece's own rows."""
    if message.startswith(("CSV parse error", "In CSV column")):
        message = message.partition(": ")[2]
    return _OWN_ROW.sub("", message)
