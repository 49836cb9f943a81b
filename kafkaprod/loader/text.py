"""Text formats that are cut into rows and forwarded without being parsed: lines, JSON lines, JSON arrays."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, Final, NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.text.row_splitter import (
    FIELD_BROKEN,
    FIELD_ESCAPED,
    FIELD_FOUND,
    find_fields,
    split_elements,
    split_lines,
)
from kafkaprod.loader.errors import BadRow, LoadError
from kafkaprod.loader.inputs import Source, open_source
from kafkaprod.loader.plan import RowPlan, parse_timestamps
from kafkaprod.loader.rows import RowBlock

PIECE_BYTES: Final = 4 << 20
MAX_ROW_BYTES: Final = 256 << 20
NEWLINE: Final = 10

# What a splitter answers: views of the rows, their number, bytes used, whether nothing may follow.
Cut = tuple[bytes, int, int, bool]
Text = bytes | memoryview
Splitter = Callable[[Text, bool], Cut]


class Piece(NamedTuple):
    """Some whole rows of a text.

    Attributes:
        text: Bytes of the input, the first `used` of which are the rows.
        views: Of the rows, into `text`.
        row_count: How many they are.
        end: Offset in the input of the first byte behind them.
    """

    text: memoryview
    used: int
    views: bytes
    row_count: int
    end: int


def read_lines(source: Source, plan: RowPlan, row: int, offset: int) -> Iterator[RowBlock]:
    """Blocks of a file of lines or JSON lines, from a row on that begins at `offset`."""
    delimiter = plan.delimiter

    def split(text: Text, is_last: bool) -> Cut:
        return (*split_lines(text, delimiter, -1, delimiter == NEWLINE, is_last), False)

    for piece in pieces(source, offset, split):
        yield _block(source, plan, piece, row)
        row += piece.row_count


def read_array(source: Source, plan: RowPlan, row: int, offset: int) -> Iterator[RowBlock]:
    """Blocks of a file that is one JSON array; its elements are forwarded as they are written."""
    if offset == 0:
        offset = _array_start(source)
        if offset == 0:
            return

    def split(text: Text, is_last: bool) -> Cut:
        views, count, used, is_end = split_elements(text)
        if is_last and not is_end:
            raise LoadError(f"{source.name}: the JSON array does not end")
        return views, count, used, is_end

    for piece in pieces(source, offset, split):
        yield _block(source, plan, piece, row)
        row += piece.row_count


def _array_start(source: Source) -> int:
    room = memoryview(bytearray(PIECE_BYTES))
    filled = 0
    with open_source(source) as stream:
        while read := _read_into(stream, source, room[filled:]):
            filled += read
            text = bytes(room[:filled]).lstrip(b"\xef\xbb\xbf \t\r\n")
            if text.startswith(b"["):
                return filled - len(text) + 1
            if text:
                break
    if filled:
        raise LoadError(f"{source.name} is not a JSON array; if each line is a document, say --format jsonl")
    return 0


def pieces(source: Source, offset: int, split: Splitter, *, fills: bool = False) -> Iterator[Piece]:
    """Cut an input, from a byte on, into rows; memory is bounded by two pieces and the longest row.

    A piece is good until the next one is asked for: all are read into the same memory. `fills`: where a pipe gives less
    than a piece, wait for more, so that the same bytes are always cut in the same places.
    """
    with open_source(source) as stream:
        _skip(stream, source, offset)
        buffer = bytearray(PIECE_BYTES)
        filled = 0
        is_last = False
        while not is_last:
            read = (_fill if fills else _read_into)(stream, source, memoryview(buffer)[filled:])
            is_last = not read
            filled += read
            if is_last:
                _check_end(source, offset + filled)
            if not filled:
                split(b"", True)
                return
            text = memoryview(buffer)[:filled]
            views, count, used, is_end = split(text, is_last)
            offset += used
            if count:
                yield Piece(text, used, views, count, offset - is_end)  # from there on the end is found again
            if is_end:
                rest = bytearray(text[used:])
                more = memoryview(bytearray(PIECE_BYTES))
                if (rest + more[: _read_into(stream, source, more)]).strip():
                    raise LoadError(f"{source.name}: more text follows the end of the JSON array")
                return
            filled -= used
            if filled > MAX_ROW_BYTES:
                raise LoadError(f"{source.name}: no row ends within {MAX_ROW_BYTES} bytes from byte {offset} on")
            if filled > len(buffer) // 2:  # a long row: more room for the rest of it
                buffer = _grown(text[used:], len(buffer))
            elif used:
                buffer[:filled] = text[used:]


def _grown(rest: memoryview, size: int) -> bytearray:
    """Memory twice as large that begins with `rest`."""
    buffer = bytearray(2 * size)
    buffer[: len(rest)] = rest
    return buffer


def _read_into(stream: IO[bytes], source: Source, room: memoryview) -> int:
    """Read some bytes; return how many, 0 at the end."""
    try:
        return stream.readinto(room)  # type: ignore[attr-defined,no-any-return]
    except (EOFError, zlib.error, zstandard.ZstdError, RuntimeError, zipfile.BadZipFile) as error:
        raise LoadError(f"{source.name} is damaged or cut off: {error}") from error
    except OSError as error:
        raise LoadError(f"{source.name} cannot be read: {error}") from error


def _fill(stream: IO[bytes], source: Source, room: memoryview) -> int:
    """Read until the room is full or the input ends."""
    filled = 0
    while filled < len(room) and (read := _read_into(stream, source, room[filled:])):
        filled += read
    return filled


def _check_end(source: Source, end: int) -> None:
    """Somebody who cuts a file while it is read, to begin it anew, must not get a load that seems complete."""
    if source.compression == "none" and end < (source.size or 0):
        raise LoadError(f"{source.name} was cut to {end} bytes while it was read; it had {source.size}")


def _skip(stream: IO[bytes], source: Source, offset: int) -> None:
    if offset == 0:
        return
    if source.compression == "none" and stream.seekable():
        stream.seek(offset)
        return
    room = memoryview(bytearray(PIECE_BYTES))
    while offset > 0:
        read = _read_into(stream, source, room[: min(offset, PIECE_BYTES)])
        if not read:
            raise LoadError(f"{source.name} is shorter than when it was loaded before")
        offset -= read


def _block(source: Source, plan: RowPlan, piece: Piece, row: int) -> RowBlock:
    numbers = np.arange(row, row + piece.row_count, dtype=np.int64)
    value = Column.from_views(piece.views, [piece.text], name="value")
    block = RowBlock(numbers, value, row + piece.row_count, piece.end)
    if plan.skips_blank_rows or plan.needs_fields:
        block = _with_fields(block, source, plan, piece.text, piece.views)
    return block


def _with_fields(block: RowBlock, source: Source, plan: RowPlan, text: Text, views: bytes) -> RowBlock:
    """Add what comes from fields of JSON rows, leave out rows without content, sort out broken ones."""
    lengths = np.frombuffer(views, dtype=np.int32)[::4]
    keep = lengths > 0 if plan.skips_blank_rows else np.ones(block.row_count, dtype=np.bool_)
    reasons: dict[int, str] = {}
    found = {name: _Field(name, text, views, keep, reasons) for name in plan.fields}
    timestamps = None
    if plan.timestamp is not None:
        texts = found[plan.timestamp].column
        timestamps = parse_timestamps([texts[i] for i in range(block.row_count)], plan, reasons, keep)
    columns = {name: field.column for name, field in found.items()}
    partitions = plan.partition_column(columns, block.row_count, reasons, keep)
    assert block.value is not None
    whole = RowBlock(
        block.numbers,
        plan.value_from(columns, block.value),
        block.end_row,
        block.end_offset,
        plan.key_from(columns, block.row_count),
        plan.headers_from(columns, block.row_count),
        timestamps,
        partitions,
        [BadRow(source.name, int(block.numbers[i]), why, block.value[i] or b"") for i, why in sorted(reasons.items())],
    )
    for i in reasons:
        keep[i] = False
    return whole if keep.all() else whole.select(keep)


class _Field:
    """A field of a block of JSON objects, as a column."""

    def __init__(self, name: str, text: Text, views: bytes, keep: NDArray[np.bool_], reasons: dict[int, str]) -> None:
        found, statuses = find_fields(text, views, json.dumps(name, ensure_ascii=False)[1:-1].encode())
        status = np.frombuffer(statuses, dtype=np.uint8)
        for i in np.flatnonzero((status == FIELD_BROKEN) & keep):
            reasons[int(i)] = "is not a JSON object"
        is_there = (status == FIELD_FOUND) | (status == FIELD_ESCAPED)
        validity = np.packbits(is_there, bitorder="little")
        self.column = Column.from_views(found, [text], validity.data, row_count=len(status), name=name)
        if (status == FIELD_ESCAPED).any():
            self.column = Column.from_list([self._unescaped(i, status, reasons) for i in range(len(status))])

    def _unescaped(self, i: int, status: NDArray[np.uint8], reasons: dict[int, str]) -> bytes | None:
        raw = self.column[i]
        if status[i] != FIELD_ESCAPED or raw is None:
            return raw
        try:
            text: Any = json.loads(b'"' + raw + b'"')
            return str(text).encode()
        except ValueError as error:
            reasons[i] = f"has a broken string: {error}"
            return None
