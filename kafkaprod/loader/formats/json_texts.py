"""Read JSON that is no lines: the elements of an array, of one that a field of an object has, or whole documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from kafkaprod._core.text.row_splitter import split_documents, split_elements
from kafkaprod.loader.formats.json_documents import check_rest_of_object, find_elements, not_json
from kafkaprod.loader.formats.lines import LineCounter
from kafkaprod.loader.formats.rows import RowBlock
from kafkaprod.loader.formats.text import (
    ONE_DOCUMENT,
    CheckRest,
    Cut,
    Splitter,
    TextBytes,
    block_of,
    pieces,
    room_for,
    text_start,
)
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.loader.opening.opening import open_source
from kafkaprod.loader.opening.source import Source
from kafkaprod.tables.row_plan import RowPlan


def read_array(source: Source, plan: RowPlan, row: int, offset: int, field: str = "") -> Iterator[RowBlock]:
    """Read blocks of a file that is one JSON array; its elements are forwarded unchanged.

    Args:
        source: The input.
        plan: What becomes of rows.
        row: Number of the first row.
        offset: Where it begins; 0: find out.
        field: The file is an object, and this field of it has the array; empty: it is the array.
    """
    if offset == 0:
        offset = elements_start(source, plan, field)

    rest = partial(check_rest_of_object, max_bytes=plan.max_row_bytes) if field else None
    yield from _blocks(source, plan, row, offset, _Elements(source, offset), rest)


class _Elements:
    """Cuts the elements of an array, text after text.

    Args:
        source: The input.
        offset: Where the first text begins.
    """

    def __init__(self, source: Source, offset: int) -> None:
        self._source = source
        self._offset = offset
        self._is_start = True  # no element was cut yet: the array may end

    def __call__(self, text: TextBytes, is_last: bool) -> Cut:
        """Cut whole elements. Raises LoadError: the array is cut off, or no JSON where the first one should be."""
        views, count, used, is_end, wrong = split_elements(text, self._is_start)
        if not count and not is_end:
            if wrong >= 0:
                raise not_json(self._source, text, self._offset, wrong)
            if is_last:
                raise LoadError(f"{self._source.name} is cut off: the JSON array does not end")
        self._is_start = self._is_start and not count
        self._offset += used
        return Cut(views, count, used, is_end)


def read_documents(source: Source, plan: RowPlan, row: int, offset: int) -> Iterator[RowBlock]:
    """Read blocks of a file of JSON documents, one after another; each is forwarded unchanged."""
    offset = offset or text_start(source)
    yield from _blocks(source, plan, row, offset, _Documents(source, offset), None)


class _Documents:
    """Cuts documents, text after text; see `_Elements`."""

    def __init__(self, source: Source, offset: int) -> None:
        self._source = source
        self._offset = offset

    def __call__(self, text: TextBytes, is_last: bool) -> Cut:
        """Cut whole documents. Raises LoadError: one is cut off, or no JSON where the first one should be."""
        views, count, used, wrong = split_documents(text)
        if not count and wrong >= 0:
            raise not_json(self._source, text, self._offset, wrong, "objects and arrays one after another")
        if not count and is_last and used < len(text):
            raise LoadError(f"{self._source.name} is cut off: its last document does not end")
        self._offset += used
        return Cut(views, count, used)


def _blocks(
    source: Source, plan: RowPlan, row: int, offset: int, split: Splitter, check_rest: CheckRest | None
) -> Iterator[RowBlock]:
    lines = LineCounter(source)
    for piece in pieces(source, offset, split, plan.max_row_bytes, check_rest=check_rest):
        yield replace(block_of(source, plan, piece, row), line_of=partial(lines.line_of, piece, row))
        row += piece.row_count


def elements_start(source: Source, plan: RowPlan, field: str) -> int:
    """Return where the first element of the array begins; see `read_array`. Raises LoadRefusedError, LoadError."""
    if not field:
        return array_start(source)
    text_start(source)  # is it UTF-8?
    with open_source(source) as stream:
        return find_elements(stream, source, field, plan.max_row_bytes)


def array_start(source: Source) -> int:
    """Return where the first element of an array begins. Raises LoadRefusedError if there is no array, LoadError."""
    text_start(source)  # is it UTF-8?
    room = memoryview(bytearray(room_for(source, 0)))
    filled = 0
    with open_source(source) as stream:
        while read := stream.readinto(room[filled:]):
            filled += read
            text = bytes(room[:filled]).lstrip(b"\xef\xbb\xbf \t\r\n")
            if text.startswith(b"["):
                return filled - len(text) + 1
            if text:
                break
    if filled:
        raise LoadRefusedError(f"{source.name} is not a JSON array. {_advice(text)}")
    raise LoadError(f"{source.name} is cut off: it is empty, and not even an empty JSON array")


def _advice(text: bytes) -> str:
    """Return what to do with a text that is no array, by its first line."""
    line, _, rest = text.partition(b"\n")
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return ONE_DOCUMENT
    fields = document.items() if isinstance(document, dict) else ()
    arrays = [name for name, value in fields if isinstance(value, list)]
    if arrays and not rest.strip():
        return (
            f"It is one object: --elements {arrays[0]} sends the elements of its array, --format documents the whole "
            "as a record"
        )
    return (
        "Its first line is a whole document: if each line is, say --format jsonl; --format documents sends each "
        "document, however many lines it has"
    )
