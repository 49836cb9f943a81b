"""Find the line of a text on which a row begins, for messages about rows where numbers of rows are not lines."""

from __future__ import annotations

from typing import Final, Protocol

from kafkaprod._core.columns.columns import Column
from kafkaprod.loader.opening.opening import open_source
from kafkaprod.loader.opening.source import Source

READ_BYTES: Final = 1 << 20


class TextPiece(Protocol):
    """Is a piece of a text; see `text.Piece`."""

    @property
    def text(self) -> memoryview: ...

    @property
    def used(self) -> int: ...

    @property
    def views(self) -> bytes: ...

    @property
    def start(self) -> int: ...


class LineCounter:
    """Counts lines of an input, from the first bad row on only: good rows cost nothing.

    Args:
        source: The input. One that is read only once, a pipe, has no lines.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._offset = 0
        self._newlines = 0
        self._start = -1  # of the piece whose rows are in `_lines`
        self._lines: list[int] = []

    def line_of(self, piece: TextPiece, first_row: int, row: int) -> int | None:
        """Return the line of a row, from 1; None if it is not known.

        Args:
            piece: The rows around it.
            first_row: Number of the first of them.
            row: Its number.
        """
        if self._source.pipe is not None:
            return None
        if piece.start != self._start:
            before = self._newlines_before(piece.start)
            self._lines = [before + 1 + count for count in _newlines_before_rows(piece)]
            self._start = piece.start
        place = row - first_row
        return self._lines[place] if 0 <= place < len(self._lines) else None

    def _newlines_before(self, offset: int) -> int:
        with open_source(self._source) as stream:
            if self._source.has_text_offsets and stream.seekable():
                stream.seek(self._offset)
            else:
                self._offset = self._newlines = 0
            while self._offset < offset:
                data = stream.read(min(READ_BYTES, offset - self._offset))
                if not data:
                    break
                self._offset += len(data)
                self._newlines += data.count(b"\n")
        return self._newlines


def _newlines_before_rows(piece: TextPiece) -> list[int]:
    """Return how many line ends of the piece are before each of its rows."""
    text = bytes(piece.text[: piece.used])
    rows = Column.from_views(piece.views, [piece.text], name="value")
    counts, position, newlines = [], 0, 0
    for place in range(len(piece.views) // 16):
        row = rows[place] or b""
        start = text.find(row, position)
        newlines += text.count(b"\n", position, start)
        counts.append(newlines)
        newlines += row.count(b"\n")
        position = start + len(row)
    return counts
