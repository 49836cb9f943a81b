"""Read texts that are cut into rows and forwarded without parsing, in pieces: lines and JSON lines."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
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
from kafkaprod.loader.formats.rows import RowBlock, make_block
from kafkaprod.loader.opening.encodings import HEAD_BYTES, UTF8, byte_order_mark
from kafkaprod.loader.opening.errors import BadRow, LoadError, LoadRefusedError
from kafkaprod.loader.opening.opening import WholeInput, open_source
from kafkaprod.loader.opening.source import Source
from kafkaprod.tables.row_plan import ByteRows, RowPlan

PIECE_BYTES: Final = 4 << 20
LEAST_BYTES: Final = 64 << 10  # where a file says it is smaller, which those of /proc do
NEWLINE: Final = 10
ONE_DOCUMENT: Final = (
    "--format documents sends each document as a record, over however many lines it is written; --elements NAME sends "
    "the elements of the array that its field NAME has"
)

_CODECS: Final = (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"\xfd7zX", b"PK\x03\x04")

TextBytes = bytes | memoryview


class Cut(NamedTuple):
    """Is what a splitter returns.

    Attributes:
        views: The views of the rows, in Arrow's binary_view layout: a row of up to 12 bytes lies in its view.
        row_count: How many they are.
        used: Bytes of the text that they take.
        is_end: Nothing may follow.
        malformed: Place of a row that is bad already -> status of the splitter.
    """

    views: bytes
    row_count: int
    used: int
    is_end: bool = False
    malformed: Mapping[int, int] = MappingProxyType({})


Splitter = Callable[[TextBytes, bool], Cut]
CheckRest = Callable[[WholeInput, Source, bytes], None]


class Piece(NamedTuple):
    """Holds some whole rows of a text.

    Attributes:
        text: Bytes of the input, the first `used` of which are the rows.
        views: The views of the rows, into `text`.
        row_count: How many they are.
        end: Offset in the input of the first byte behind them.
        malformed: See Cut.
        start: Offset in the input of the first byte.
        is_tail: See RowBlock.
    """

    text: memoryview
    used: int
    views: bytes
    row_count: int
    end: int
    malformed: Mapping[int, int] = MappingProxyType({})
    start: int = 0
    is_tail: bool = False


def read_lines(source: Source, plan: RowPlan, row: int, offset: int) -> Iterator[RowBlock]:
    """Read blocks of a file of lines or JSON lines, from a row on that begins at `offset`."""
    delimiter = plan.delimiter
    if offset == 0:
        mark = text_start(source) if delimiter == NEWLINE else 0
        offset = 0 if source.format == "lines" else mark  # lines are forwarded byte for byte

    def split(text: TextBytes, is_last: bool) -> Cut:
        return Cut(*split_lines(text, delimiter, delimiter == NEWLINE, is_last))

    is_start = source.format == "jsonl" and row == 0
    for piece in pieces(source, offset, split, plan.max_row_bytes):
        if is_start:
            _check_line(source, bytes(piece.text[: piece.used]).lstrip().partition(b"\n")[0].rstrip())
            is_start = False
        block = block_of(source, plan, piece, row)
        row += piece.row_count
        is_open = source.format == "jsonl" and piece.text[piece.used - 1] != delimiter
        yield _without_cut_row(block, source, piece, row - 1) if is_open else block


def check_first_line(source: Source) -> None:
    """Refuse text in another encoding, and a document that is written over several lines. Raises LoadError, OSError."""
    start = text_start(source)
    with open_source(source) as stream:
        line, end, _ = stream.head(LEAST_BYTES, LEAST_BYTES)[start:].lstrip().partition(b"\n")
    if end:  # else it is a long line, or the only one, which is looked at when it is read
        _check_line(source, line.rstrip())


def _check_line(source: Source, line: bytes) -> None:
    """Refuse a document that is written over several lines; lines that are no JSON at all are forwarded."""
    if line[:1] in (b"{", b"[") and line[-1:] in (b"{", b"[", b",", b":"):
        raise LoadRefusedError(
            f"{source.name}: its first line begins a JSON document, and does not end it. {ONE_DOCUMENT}"
        )


def _without_cut_row(block: RowBlock, source: Source, piece: Piece, row: int) -> RowBlock:
    """Sort out the last row of the input, which has no line end, if it is not a whole document."""
    data = Column.from_views(piece.views[-16:], [piece.text], name="value")[0] or b""
    try:
        if data.strip():
            json.loads(data)
    except (ValueError, RecursionError) as error:
        views, _, used, is_end, _ = split_elements(data + b"]", False)
        if is_end and len(views) == 16 and used == len(data) + 1:  # deeper, or with more digits, than Python reads
            return block
        why = f"the last line has no line end and is no JSON ({error}): the input is cut off"
        return replace(block.select(block.numbers != row), bad=[*block.bad, BadRow(source.name, row, why, data)])
    return block


def text_start(source: Source) -> int:
    """Return where the text begins: behind a byte order mark. Raises LoadError if it is UTF-16 or UTF-32."""
    with open_source(source) as stream:
        room = memoryview(bytearray(HEAD_BYTES))
        head = bytes(room[: _fill(stream, room)])
    if source.compression != "none" and head.startswith(_CODECS):
        raise LoadRefusedError(
            f"{source.name} is compressed twice: decompress it once, and name what is in it with --compression"
        )
    if source.encoding == UTF8:  # the user insists
        return len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
    return byte_order_mark(head, source.name, is_structured=source.format != "lines")


def pieces(
    source: Source,
    offset: int,
    split: Splitter,
    max_row_bytes: int,
    *,
    fills: bool = False,
    check_rest: CheckRest | None = None,
) -> Iterator[Piece]:
    """Cut an input, from a byte on, into rows; memory is bounded by two pieces and the longest row.

    Args:
        source: The input.
        offset: Where to begin.
        split: Cuts rows; its second argument is True at the end of the input.
        max_row_bytes: The size of the longest row.
        fills: Where a pipe gives less than a piece, wait for more, so that the same bytes are always cut in the same
            places.
        check_rest: Reads what follows the end that `split` finds; None: nothing may follow.

    Yields:
        Pieces; each is valid until the next one is read, because all are read into the same memory.

    Raises:
        LoadError: A row is too long, or the input is damaged.
        OSError: It cannot be read.
    """
    with open_source(source) as stream:
        skip_to(stream, source, offset)
        buffer = bytearray(room_for(source, offset))
        filled = seen = count = 0
        is_last = False
        while count or not is_last:  # an error behind the last rows comes after them
            read = 0 if is_last else (_fill if fills else WholeInput.readinto)(stream, memoryview(buffer)[filled:])
            is_last = not read
            filled += read
            if not filled:
                split(b"", True)
                return
            if read and filled < _enough(source, seen) and filled < len(buffer):
                continue
            text = memoryview(buffer)[:filled]
            views, count, used, is_end, malformed = split(text, is_last)
            if max(used, filled - used) > max_row_bytes:
                _check_rows(source, offset, views, filled - used, max_row_bytes)
            offset += used
            if count:
                # For a JSON array leave the closing bracket unread, so that a resumed load finds it again.
                yield Piece(text, used, views, count, offset - is_end, malformed, offset - used, is_last and not is_end)
            if is_end:
                (check_rest or _check_nothing_follows)(stream, source, bytes(text[used:]))
                return
            filled -= used
            seen = filled
            if filled > len(buffer) // 2:  # a long row: more room for the rest of it
                buffer = _grown(text[used:], len(buffer))
            elif used:
                buffer[:filled] = text[used:]


def _enough(source: Source, seen: int) -> int:
    """Return with how many bytes it is worth to look again for the end of a row, where `seen` bytes do not have it.

    With each read, the work for a long row would grow with the square of its length. From a pipe a row may come slowly,
    and its end must not wait for the next one.
    """
    is_slow = source.pipe is not None and source.compression == "none"
    return seen if is_slow or seen < LEAST_BYTES else seen + seen // 2


def _check_nothing_follows(stream: WholeInput, source: Source, rest: bytes) -> None:
    """Read behind the end of a JSON array up to the end of the input, where a codec compares checksums."""
    while not rest.strip():
        rest = stream.read(LEAST_BYTES)
        if not rest:
            return
    raise LoadError(f"{source.name}: more text follows the end of the JSON array")


def _check_rows(source: Source, offset: int, views: bytes, rest: int, max_row_bytes: int) -> None:
    longest = int(np.frombuffer(views, dtype=np.int32)[::4].max(initial=0))
    if max(longest, rest) > max_row_bytes:
        raise LoadError(
            f"{source.name}: behind byte {offset:,} is a row of more than {max_row_bytes:,} bytes. If rows are that "
            "long, raise --max-row-bytes; else check --format"
        )


def room_for(source: Source, offset: int) -> int:
    """Return the bytes of a piece: not many more than the input has, because a load of small files would clear them."""
    if source.size is None or not source.has_text_offsets:
        return PIECE_BYTES
    return min(PIECE_BYTES, max(source.size - offset + 1, LEAST_BYTES))  # + 1: the end is a read with room


def _grown(rest: memoryview, size: int) -> bytearray:
    """Return memory twice as large that begins with `rest`."""
    buffer = bytearray(2 * size)
    buffer[: len(rest)] = rest
    return buffer


def _fill(stream: WholeInput, room: memoryview) -> int:
    """Read until the room is full or the input ends."""
    filled = 0
    while filled < len(room) and (read := stream.readinto(room[filled:])):
        filled += read
    return filled


def skip_to(stream: WholeInput, source: Source, offset: int) -> None:
    """Continue at a byte of the text. Raises LoadError if there is none."""
    if offset == 0:
        return
    if source.has_text_offsets and stream.seekable():
        stream.seek(offset)
        return
    room = memoryview(bytearray(PIECE_BYTES))
    while offset > 0:
        read = stream.readinto(room[: min(offset, PIECE_BYTES)])
        if not read:
            raise LoadError(f"{source.name} is shorter than when it was loaded before")
        offset -= read


def block_of(source: Source, plan: RowPlan, piece: Piece, row: int) -> RowBlock:
    """Return the rows of a piece as a block; `row` is the number of the first one."""
    numbers = np.arange(row, row + piece.row_count, dtype=np.int64)
    value = Column.from_views(piece.views, [piece.text], name="value")
    block = RowBlock(numbers, value, row + piece.row_count, piece.end)
    if plan.skips_blank_rows or plan.needs_fields:
        block = _with_fields(block, source, plan, piece.text, piece.views)
    return replace(block, is_tail=True) if piece.is_tail else block


def _with_fields(block: RowBlock, source: Source, plan: RowPlan, text: TextBytes, views: bytes) -> RowBlock:
    """Add what comes from fields of JSON rows, leave out rows without content, sort out broken ones."""
    lengths = np.frombuffer(views, dtype=np.int32)[::4]
    keep = lengths > 0 if plan.skips_blank_rows else np.ones(block.row_count, dtype=np.bool_)
    reasons: dict[int, str] = {}
    columns = {name: Column.constant(data) for name, data in _folder_texts(source).items()}
    columns |= {name: _Field(name, text, views, keep, reasons).column for name in plan.fields if name not in columns}
    mapped = plan.map(ByteRows(columns, block.row_count), block.value, reasons, keep)
    row, count = int(block.numbers[0]), block.row_count
    return make_block(source.name, mapped, reasons, row, block.end_offset, count, shown=block.value, keep=keep)


def _folder_texts(source: Source) -> dict[str, bytes | None]:
    return {name: None if value is None else str(value).encode() for name, value in source.folder_columns}


class _Field:
    """Finds a field in a block of JSON objects, as a column."""

    def __init__(
        self, name: str, text: TextBytes, views: bytes, keep: NDArray[np.bool_], reasons: dict[int, str]
    ) -> None:
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
