"""Read CSV by RFC 4180: `split_csv` cuts rows, pyarrow parses pieces of them, or they are forwarded as they are.

Columns are text unless `--column-type` or `--infer-types` says otherwise. A piece that does not parse is halved until
the rows that are at fault stand alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.text.csv_splitter import ROW_OPEN_QUOTE, ROW_TEXT_AFTER_QUOTE, split_csv
from kafkaprod.loader.formats.arrow_casts import cast_column, cast_schema, type_named
from kafkaprod.loader.formats.arrow_forms import check_forms, names_to_read
from kafkaprod.loader.formats.arrow_rows import import_pyarrow, table_block
from kafkaprod.loader.formats.csv_heads import find_head, has_comment, split_without_comments
from kafkaprod.loader.formats.csv_types import exact_column, inferred_types, is_parsed, is_text, with_nulls
from kafkaprod.loader.formats.limits import check_schema
from kafkaprod.loader.formats.lines import LineCounter
from kafkaprod.loader.formats.rows import RowBlock
from kafkaprod.loader.formats.text import Cut, Piece, TextBytes, pieces, text_start
from kafkaprod.loader.opening.errors import BadRow, LoadRefusedError, check_fields
from kafkaprod.loader.opening.source import Source
from kafkaprod.tables.row_plan import RAW, RowPlan

if TYPE_CHECKING:
    import pyarrow as pa

Places = NDArray[np.intp]

MOST_ROWS: Final = 0x7FFFFFFF
FIRST_ROWS: Final = 10  # that show whether the first line has the column names
_OWN_ROW: Final = re.compile(r"Row #\d+: ")
_MALFORMED: Final = {
    ROW_OPEN_QUOTE: "a quote is opened and not closed",
    ROW_TEXT_AFTER_QUOTE: "text follows a closing quote",
}


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """Describes how a CSV file is written.

    Attributes:
        separator: Between fields.
        is_separator_given: The user named the separator.
        quote: Around fields; None: nowhere.
        escape: Stands before a quote, or itself, in a quoted field; empty: a quote is written twice.
        types: Column -> pyarrow type name; others are text.
        infers_types: Other columns have the types of their first values; see csv_types.
        names: The names of the columns, and the first line is a row; None: the first line has them.
        nulls: Texts that stand for null in columns that are not text.
        skip_lines: Lines above the column names that are left out.
        comment: Begins lines that are left out; empty: there are none.
    """

    separator: str = ","
    is_separator_given: bool = False
    quote: str | None = '"'
    escape: str = ""
    types: dict[str, str] = field(default_factory=dict)
    infers_types: bool = False
    names: list[str] | None = None
    nulls: list[str] = field(default_factory=lambda: [""])
    skip_lines: int = 0
    comment: bytes = b""


class CsvReader:
    """Reads one CSV file.

    Args:
        source: What to read.
        plan: What becomes of rows.
        options: How it is written.
    """

    def __init__(self, source: Source, plan: RowPlan, options: CsvOptions) -> None:
        self._source = source
        self._plan = plan
        self._options = options
        self._names = options.names
        self._schema: dict[str, Any] = {}  # that pyarrow parses with
        self._inferred: dict[str, Any] = {}  # that text columns are turned into afterwards
        self._cast: dict[str, str] = {}  # the same for types that are given and that pyarrow does not parse
        self._is_raw = plan.value == RAW and not plan.needs_fields

    def blocks(self, row: int, offset: int) -> Iterator[RowBlock]:
        """Read blocks from a row on that begins at `offset`."""
        if not self._is_raw:
            import_pyarrow("CSV")
        start, _ = self._begin()
        lines = LineCounter(self._source)
        for piece in self._pieces(max(offset, start)):
            rows = _without_blank_lines(piece)
            block = self._raw_block(rows, row) if self._is_raw else self._parsed(rows, row)
            yield replace(block, line_of=partial(lines.line_of, rows, row), is_tail=piece.is_tail)
            row += rows.row_count

    def check(self) -> bool:
        """Check the columns without a look at the rows; return whether a line above their names has the separator.

        Raises:
            LoadRefusedError: The first line has no names, or one that is wanted is not among them.
            LoadError, OSError: It cannot be read.
        """
        return self._begin(infers=False)[1]

    def _begin(self, *, infers: bool = True) -> tuple[int, bool]:
        """Learn names and types; return where the first row begins, and whether a line has the separator."""
        has_names = self._options.names is None  # else each line is a row, whatever it has
        start, separator = find_head(
            self._source, text_start(self._source), self._options.skip_lines, looks_for_separator=has_names
        )
        if separator is not None and not self._options.is_separator_given:
            self._options = replace(self._options, separator=separator, is_separator_given=True)
        return self._learn(start, infers=infers and self._options.infers_types), separator is not None

    def _pieces(self, offset: int, *, fills: bool = False) -> Iterator[Piece]:
        return pieces(self._source, offset, self._split, self._plan.max_row_bytes, fills=fills)

    def _split(self, text: TextBytes, is_last: bool, max_rows: int = MOST_ROWS) -> Cut:
        comment = self._options.comment
        if comment:
            return split_without_comments(self._split_rows, text, is_last, max_rows, comment)
        return self._split_rows(text, is_last, max_rows)

    def _split_rows(self, text: TextBytes, is_last: bool, max_rows: int) -> Cut:
        quote = -1 if self._options.quote is None else ord(self._options.quote)
        separator, limit = ord(self._options.separator), self._plan.max_row_bytes
        escape = ord(self._options.escape) if self._options.escape else -1
        views, count, used, malformed = split_csv(text, separator, quote, is_last, limit, max_rows, escape)
        return Cut(views, count, used, malformed=malformed)

    # -- names and types -----------------------------------------------------------------------------------------------

    def _learn(self, start: int, *, infers: bool) -> int:
        """Find column names and types in the first piece; return where the first row begins."""
        if self._names is not None and not self._is_raw:
            self._check_names(self._names)
            self._take_types(b"", infers=False)
            if not infers:
                return start
        for piece in self._pieces(start, fills=infers and not self._is_raw):
            at = 0
            if self._options.names is None:
                header, at = self._first_row(piece)
                if not header.row_count:
                    continue
                if not self._is_raw:
                    self._take_names(header, piece.text[at - header.used : piece.used])
            if not self._is_raw:
                self._take_types(piece.text[at : piece.used], infers=infers)
            return piece.start + at
        return start

    def _first_row(self, piece: Piece) -> tuple[Cut, int]:
        """Return the first row of a piece that is no blank line, and where it ends; one without rows: there is none."""
        at = 0
        while at < piece.used:
            row = self._split(piece.text[at : piece.used], True, 1)
            at += row.used
            if row.row_count and np.frombuffer(row.views, dtype=np.int32)[0]:
                return row, at
        return Cut(b"", 0, 0), at

    def _take_names(self, header: Cut, text: memoryview) -> None:
        if header.malformed:
            raise LoadRefusedError(
                f"{self._source.name}: the first line has no column names: {_MALFORMED[header.malformed[0]]}"
            )
        row = Column.from_views(header.views, [text], name="value")[0] or b""
        check_schema(row.count(self._options.separator.encode()), 1, self._source.name)
        self._names = self._header(row)
        self._check_separator(self._names)
        self._check_width(self._names, text[header.used :])
        self._check_names(self._names)

    def _check_names(self, names: list[str]) -> None:
        """Refuse names of other options that are neither columns of the file nor of its folders."""
        known = [*names, *(name for name, _ in self._source.folder_columns if name not in names)]
        wanted = [*self._plan.fields, *(self._plan.columns or ()), *self._options.types]
        hint = "" if self._options.names is not None else (
            ". If its first line is a row, name all columns with --column-names"
        )  # fmt: skip
        check_fields(wanted, known, self._source.name, hint)

    def _check_separator(self, names: list[str]) -> None:
        """Refuse a single column whose name has what is a separator elsewhere, unless the user gave the separator."""
        found = next((char for char in ";\t|" if char in names[0]), None)
        if found is not None and len(names) == 1 and not self._options.is_separator_given:
            raise LoadRefusedError(
                f"{self._source.name} has one column, {names[0]!r}: use --separator {found!r}, or --separator ',' if "
                "that is its name"
            )

    def _check_width(self, names: list[str], text: memoryview) -> None:
        """Refuse a title above the column names: one column, where most of the first rows have more."""
        if len(names) > 1:
            return
        rows = self._split(text, True, FIRST_ROWS)
        column = Column.from_views(rows.views, [text], name="value")
        widths = Counter(self._width(row) for place in range(rows.row_count) if (row := column[place]))
        width, count = widths.most_common(1)[0] if widths else (1, 0)
        if width > 1 and count >= 2 and 2 * count > widths.total():
            raise LoadRefusedError(
                f"{self._source.name} has one column, {names[0][:60]!r}, and its rows have {width}: leave what is "
                "above the column names out with --skip-lines N or --comment PREFIX, or name them with --column-names"
            )

    def _width(self, row: bytes) -> int:
        import pyarrow as pa
        import pyarrow.csv as pc

        try:
            read = pc.ReadOptions(autogenerate_column_names=True)
            return int(pc.read_csv(pa.py_buffer(self._unescaped(row) + b"\n"), read, self._parse_options()).num_columns)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return 1

    def _take_types(self, text: TextBytes, *, infers: bool) -> None:
        import pyarrow as pa

        assert self._names is not None
        given = {name: type_named(kind) for name, kind in self._options.types.items() if name in self._names}
        folder_names = [name for name, _ in self._source.folder_columns]
        read = names_to_read(self._plan, self._names, self._source.name, folder_names)
        check_forms(pa.schema(given), [name for name in given if name in read], self._source.name)
        texts = dict.fromkeys((name for name, kind in given.items() if not is_parsed(kind)), pa.string())
        self._cast = {name: self._options.types[name] for name in texts if name in read}
        cast_schema(pa.schema(texts), list(self._cast), self._cast, self._source.name)
        given |= texts
        self._schema = {name: pa.string() for name in self._names} | given
        if infers:
            schema, self._schema = self._schema, dict.fromkeys(self._names, pa.string())
            cut = self._split(text, True)
            rows = Piece(memoryview(text), cut.used, cut.views, cut.row_count, 0, cut.malformed)
            table, _, _ = self._sort_out(_without_blank_lines(rows), 0)
            self._inferred = inferred_types(table.drop_columns(list(given)), self._options.nulls)
            self._schema = schema

    def _header(self, line: bytes) -> list[str]:
        import pyarrow as pa
        import pyarrow.csv as pc

        try:
            text = pa.py_buffer(self._unescaped(line) + b"\n")
            names = list(pc.read_csv(text, parse_options=self._parse_options()).schema.names)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            hint = ": use --encoding NAME" if isinstance(error, UnicodeDecodeError) else ""
            raise LoadRefusedError(f"{self._source.name}: the first line has no column names: {error}{hint}") from error
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            skipped = self._options.skip_lines + 1
            raise LoadRefusedError(
                f"{self._source.name} has two columns {twice!r}: name all of them with --column-names A,B,..., and "
                f"leave this line out with --skip-lines {skipped} unless it is a row"
            )
        return names

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _raw_block(self, piece: Piece, row: int) -> RowBlock:
        bad = self._malformed_rows(piece, row)
        good = _only(piece, _places_without(piece.row_count, list(piece.malformed))) if bad else piece
        numbers = np.arange(row, row + piece.row_count, dtype=np.int64)
        if bad:
            numbers = np.delete(numbers, list(piece.malformed))
        return RowBlock(numbers, _column(good), row + piece.row_count, piece.end, bad=bad)

    def _malformed_rows(self, piece: Piece, row: int) -> list[BadRow]:
        column = _column(piece)
        return [
            BadRow(self._source.name, row + place, _MALFORMED[status], column[place] or b"")
            for place, status in sorted(piece.malformed.items())
        ]

    def _parsed(self, piece: Piece, row: int) -> RowBlock:
        text: bytes | memoryview = piece.text[: piece.used]
        has_escape = bool(self._options.escape) and self._options.escape.encode() in bytes(text)
        if has_escape or (self._options.comment and has_comment(text, self._options.comment)):
            column = _column(piece)
            text = b"".join(self._unescaped(column[place] or b"") + b"\n" for place in range(piece.row_count))
        table = "malformed" if piece.malformed else self._parse(text)
        bad: list[BadRow] = []
        places: Places | None = None
        if isinstance(table, str) or table.num_rows != piece.row_count:
            table, bad, places = self._sort_out(piece, row)
        if self._inferred or self._cast:
            table, places, inexact = self._typed(piece, row, table, places)
            bad += inexact
        batches = table.combine_chunks().to_batches()
        bad.sort(key=lambda each: each.row)
        if not batches:
            return RowBlock(np.zeros(0, dtype=np.int64), None, row + piece.row_count, piece.end, bad=bad)
        raw = None
        if self._plan.value == RAW:
            raw = _column(piece if places is None else _only(piece, places))
        block = table_block(self._source, self._plan, batches[0], row, piece.end, raw)
        numbers = block.numbers if places is None else places[block.numbers - row] + row
        own = (
            block.bad
            if places is None
            else [replace(each, row=int(places[each.row - row]) + row) for each in block.bad]
        )
        bad = sorted([*bad, *own], key=lambda each: each.row)
        return replace(block, numbers=numbers, end_row=row + piece.row_count, bad=bad)

    def _typed(
        self, piece: Piece, row: int, table: pa.Table, places: Places | None
    ) -> tuple[pa.Table, Places | None, list[BadRow]]:
        """Give columns of text their types; rows with values that would change, or do not fit, are bad."""
        reasons: dict[int, str] = {}
        for name in (*self._inferred, *self._cast):
            texts = table[name].combine_chunks()
            if name in self._cast:
                kind = self._cast[name]
                values = texts if is_text(type_named(kind)) else with_nulls(texts, self._options.nulls)
                array, why = cast_column(values, name, kind)
            else:
                array, why = exact_column(texts, name, self._inferred[name], self._options.nulls)
            table = table.set_column(table.column_names.index(name), name, array)
            reasons = why | reasons
        if not reasons:
            return table, places, []
        column = _column(piece)
        among = np.arange(piece.row_count, dtype=np.intp) if places is None else places
        bad = [
            BadRow(self._source.name, row + int(among[i]), why, column[int(among[i])] or b"")
            for i, why in reasons.items()
        ]
        keep = _places_without(table.num_rows, list(reasons))
        return table.take(keep), among[keep], bad

    def _unescaped(self, row: bytes) -> bytes:
        """Return a row with quotes that are written twice, as pyarrow reads them without changing other fields.

        Its own option takes an escape out of fields without quotes, too: a path would lose its backslashes.
        """
        escape, quote = self._options.escape.encode(), (self._options.quote or "").encode()
        if not escape or escape not in row:
            return row
        field, escaped = _escapes(self._options.separator.encode(), quote, escape)

        def twice(found: re.Match[bytes]) -> bytes:
            inner = escaped.sub(lambda part: 2 * quote if part[1] == quote else part[1], found[2])
            return found[1] + quote + inner + quote

        return field.sub(twice, row)

    def _parse_options(self) -> Any:
        import pyarrow.csv as pc

        quote = False if self._options.quote is None else self._options.quote
        return pc.ParseOptions(delimiter=self._options.separator, quote_char=quote, newlines_in_values=True)

    def _parse(self, text: bytes | memoryview) -> Any:
        """Return a table, or why there is none."""
        import pyarrow as pa
        import pyarrow.csv as pc

        read = pc.ReadOptions(column_names=self._names, use_threads=False, block_size=1 << 30)
        convert = pc.ConvertOptions(
            column_types=self._schema, strings_can_be_null=False, null_values=self._options.nulls
        )
        try:
            return pc.read_csv(pa.py_buffer(text), read, self._parse_options(), convert)
        except pa.ArrowInvalid as error:
            return _plain(str(error))

    def _sort_out(self, piece: Piece, row: int) -> tuple[pa.Table, list[BadRow], Places]:
        """Find the rows that parse, those that do not, and the places of the good ones among all."""
        import pyarrow as pa

        column = _column(piece)
        lines = [column[i] or b"" for i in range(piece.row_count)]
        bad = self._malformed_rows(piece, row)
        good: list[pa.Table] = []
        places: list[int] = []
        borders = [-1, *sorted(piece.malformed), len(lines)]
        todo = [(first + 1, last) for first, last in pairwise(borders) if first + 1 < last]
        todo.reverse()
        while todo:
            first, last = todo.pop()
            table = self._parse(b"\n".join(map(self._unescaped, lines[first:last])) + b"\n")
            if not isinstance(table, str) and table.num_rows == last - first:
                good.append(table)
                places.extend(range(first, last))
            elif last - first == 1:
                reason = table if isinstance(table, str) else "is not one row"
                bad.append(BadRow(self._source.name, row + first, reason, lines[first]))
            else:
                middle = (first + last) // 2
                todo += [(middle, last), (first, middle)]
        empty = pa.table({name: pa.array([], kind) for name, kind in self._schema.items()})
        found = pa.concat_tables(good, promote_options="permissive") if good else empty
        return found, bad, np.array(places, dtype=np.intp)


@cache
def _escapes(separator: bytes, quote: bytes, escape: bytes) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return what finds quoted fields, and in them what is escaped."""
    q, e = re.escape(quote), re.escape(escape)
    field = rb"(\A|%s)%s((?:[^%s%s]++|%s.|%s%s|%s)*+)%s" % (re.escape(separator), q, q, e, e, q, q, e, q)
    return re.compile(field, re.DOTALL), re.compile(rb"%s([%s%s])" % (e, q, e), re.DOTALL)


def _column(piece: Piece) -> Column:
    return Column.from_views(piece.views, [piece.text], name="value")


def _places_without(count: int, without: Sequence[int]) -> Places:
    keep = np.ones(count, dtype=np.bool_)
    keep[without] = False
    return np.flatnonzero(keep)


def _only(piece: Piece, places: Places) -> Piece:
    """Return some rows of a piece."""
    views = np.frombuffer(piece.views, dtype=np.uint8).reshape(-1, 16)[places]
    kept = {old: new for new, old in enumerate(places.tolist())} if piece.malformed else {}
    malformed = {kept[place]: status for place, status in piece.malformed.items() if place in kept}
    return piece._replace(views=views.tobytes(), row_count=len(views), malformed=malformed)


def _without_blank_lines(piece: Piece) -> Piece:
    lengths = np.frombuffer(piece.views, dtype=np.int32)[::4]
    return piece if lengths.all() else _only(piece, np.flatnonzero(lengths))


def _plain(message: str) -> str:
    """Return pyarrow's message without the numbers of the piece's own rows."""
    if message.startswith(("CSV parse error", "In CSV column")):
        message = message.partition(": ")[2]
    return _OWN_ROW.sub("", message)
