"""Find what is no row in a CSV file: lines above the column names, Excel's `sep=;`, and lines of comments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np

from kafkaprod._core.columns.columns import Column
from kafkaprod.loader.formats.text import Cut, TextBytes, skip_to
from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.loader.opening.opening import WholeInput, open_source
from kafkaprod.loader.opening.source import Source

READ_BYTES: Final = 64 << 10
FEW_ROWS: Final = 64
_LONGEST_INLINE: Final = 12  # bytes of a row that a view has itself
_LINE_END: Final = re.compile(rb"\r\n|\n|\r(?=[^\n])")  # behind a last "\r" a "\n" may follow
_SEPARATOR_LINE: Final = re.compile(rb'"?sep=([\t !#-~])"?[\r\n]*')  # what --separator takes
_SEPARATOR_LINE_BYTES: Final = 10  # of the longest one, and a byte behind it

SplitRows = Callable[[TextBytes, bool, int], Cut]


def find_head(
    source: Source, start: int, skip_lines: int, *, looks_for_separator: bool = True
) -> tuple[int, str | None]:
    """Return where the line of column names begins, and the separator that a line above it names, if there is one.

    Args:
        source: The input.
        start: Where its text begins.
        skip_lines: Lines that are left out.
        looks_for_separator: A line such as `sep=;` names the separator; False: it is a row.

    Raises:
        LoadRefusedError: It does not have so many lines.
        LoadError, OSError: It cannot be read.
    """
    with open_source(source) as stream:
        skip_to(stream, source, start)
        lines = _FirstLines(stream)
        at = start
        for number in range(skip_lines):
            length = lines.skip()
            if not length:
                raise LoadRefusedError(f"{source.name} has {number} lines: --skip-lines {skip_lines} leaves nothing")
            at += length
        line = lines.separator_line() if looks_for_separator else None
        return (at, None) if line is None else (at + line.end(), line[1].decode("latin-1"))


class _FirstLines:
    """Reads the first lines of a text, of which it holds one read at most, however long they are.

    Args:
        stream: The text.
    """

    def __init__(self, stream: WholeInput) -> None:
        self._stream = stream
        self._data = b""
        self._is_end = False

    def skip(self) -> int:
        """Return the length of the next line, with its end; 0: there is none."""
        length = 0
        while (found := _LINE_END.search(self._data)) is None and not self._is_end:
            known = len(self._data) - self._data.endswith(b"\r")  # behind it a "\n" may follow
            length += known
            self._data = self._data[known:]
            self._fill()
        end = len(self._data) if found is None else found.end()
        self._data = self._data[end:]
        return length + end

    def separator_line(self) -> re.Match[bytes] | None:
        """Return the next line if it names the separator; reads no more than shows it."""
        while not self._is_end and len(self._data) < _SEPARATOR_LINE_BYTES:
            if not b"sep=".startswith(self._data[:5].lstrip(b'"')[:4]) or _LINE_END.search(self._data):
                break
            self._fill()
        found = _LINE_END.search(self._data)
        return _SEPARATOR_LINE.fullmatch(self._data, 0, len(self._data) if found is None else found.end())

    def _fill(self) -> None:
        data = self._stream.head(1, READ_BYTES)
        self._is_end = not data
        self._data += data


def split_without_comments(split: SplitRows, text: TextBytes, is_last: bool, max_rows: int, prefix: bytes) -> Cut:
    """Split a text, and leave out lines that begin with a prefix where a row may begin.

    A comment may have quotes that a row must close: so it is cut off before the rows behind it are looked at.

    Args:
        split: Splits a text into rows.
        text: The text.
        is_last: The input ends with it.
        max_rows: The most rows to return.
        prefix: Begins a comment.
    """
    view = memoryview(text)
    views: list[bytes] = []
    malformed: dict[int, int] = {}
    count, at, step = 0, 0, FEW_ROWS
    while count < max_rows and at < len(view):
        begin = bytes(view[at : at + len(prefix)])
        if begin == prefix:
            end = _end_of_line(view, at, is_last)
            if end is None:
                break
            at = end
            continue
        if prefix.startswith(begin) and not is_last:
            break
        cut = split(view[at:], is_last, min(step, max_rows - count))
        first = _first_comment(cut, view[at:], prefix)
        step = 2 * step if first is None else FEW_ROWS
        if first is not None:
            cut = split(view[at:], is_last, first)
        if not cut.used:
            break
        views.append(_moved(cut.views, at))
        malformed |= {count + place: status for place, status in cut.malformed.items()}
        count, at = count + cut.row_count, at + cut.used
    return Cut(b"".join(views), count, at, malformed=malformed)


def has_comment(text: TextBytes, prefix: bytes) -> bool:
    """Return whether a line of a text begins with a prefix."""
    return re.search(rb"(?:\A|[\r\n])" + re.escape(prefix), text) is not None


def _end_of_line(view: memoryview, at: int, is_last: bool) -> int | None:
    """Return where the line behind a place begins; None: it is not known yet."""
    found = _LINE_END.search(view, at)
    if found is not None:
        return found.end()
    return len(view) if is_last else None


def _first_comment(cut: Cut, view: memoryview, prefix: bytes) -> int | None:
    """Return the place of the first row that begins with a prefix."""
    rows = np.frombuffer(cut.views, dtype=np.uint8).reshape(-1, 16)
    head = np.frombuffer(prefix[:4], dtype=np.uint8)
    is_long = np.frombuffer(cut.views, dtype=np.int32)[::4] >= len(prefix)
    places = np.flatnonzero(is_long & (rows[:, 4 : 4 + len(head)] == head).all(axis=1)).tolist()
    if len(prefix) > len(head) and places:
        column = Column.from_views(cut.views, [view], name="value")
        places = [place for place in places if (column[place] or b"").startswith(prefix)]
    return places[0] if places else None


def _moved(views: bytes, by: int) -> bytes:
    """Return views of a part of a text as views of the whole text."""
    numbers = np.frombuffer(views, dtype=np.int32).reshape(-1, 4).copy()
    numbers[numbers[:, 0] > _LONGEST_INLINE, 3] += by
    return numbers.tobytes()
