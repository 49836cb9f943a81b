"""Look at the head of each page of a Parquet file before its library decompresses it: a page may become any size.

pyarrow takes the memory that a head names. So the file watches what is read of it: where a head of a page comes by,
it is looked at first. Nothing is read twice.
Source: parquet.thrift 2.12, "PageHeader".
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Any, Final

from kafkaprod.loader.formats.parquet_footer import CompactReader, Wanted
from kafkaprod.loader.opening.errors import LoadError

ROWS: Final = 8  # of the longest ones, that a page may have in any case
RATIO: Final = 32  # of a page's bytes to those of it in the file: some writers make one page of millions of rows
_WORD_BYTES: Final = 2 << 20  # of all different texts of a chunk, by most writers
_PLAIN_BYTES: Final = 5  # of the number of a text; one itself is longer
_LONG_BYTES: Final = 1 << 10
_MOST_HEAD_BYTES: Final = 16 << 20  # as pyarrow has it
_BYTES, _PACKED_BYTES, _DATA, _DICTIONARY, _DATA_2 = 2, 3, 5, 7, 8
_COUNT: Final = 1
_HEAD: Final[Wanted] = {
    _BYTES: None,
    _PACKED_BYTES: None,
    **{kind: {_COUNT: None} for kind in (_DATA, _DICTIONARY, _DATA_2)},
}
_BROKEN: Final = (KeyError, TypeError, AttributeError, ValueError)


def columns_of_words(file: Any, names: Collection[str]) -> list[str]:
    """Return the columns that have few texts, which rows repeat, by what the footer says.

    Written out, a text of 20 KB is 1.3 GB in 65,536 rows. pyarrow keeps such a column as it is in the file; where a
    chunk has other pages behind those, that costs more than their bytes, unless they are long.

    Args:
        file: The file, as pyarrow has it.
        names: The columns to read.
    """
    metadata = file.metadata
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    return [
        column.path
        for number, column in enumerate(columns)
        if (column.physical_type, str(column.logical_type)) == ("BYTE_ARRAY", "String")
        and column.path in names
        and any(_has_words(group.column(number)) for group in groups)
    ]


def _has_words(chunk: Any) -> bool:
    plain_bytes, long_bytes = _PLAIN_BYTES * chunk.num_values + _WORD_BYTES, _LONG_BYTES * chunk.num_values
    return bool(chunk.has_dictionary_page and not plain_bytes < chunk.total_uncompressed_size < long_bytes)


class _Chunk:
    """The pages of a column in a row group, as far as they were read."""

    def __init__(self, end: int, first: int) -> None:
        self.end = end
        self.next_head = first
        self.part = b""  # of a head that was not read to its end, up to `part_end`
        self.part_end = 0


class WatchedPages(io.RawIOBase):
    """Passes the reads of a Parquet file on, and refuses pages that become too large.

    Args:
        stream: The file.
        name: The name of the input.
        max_row_bytes: The size of the longest row.
    """

    def __init__(self, stream: Any, name: str, max_row_bytes: int) -> None:
        self._stream = stream
        self._name = name
        self._max_row_bytes = max_row_bytes
        self._starts: list[int] = []
        self._chunks: list[_Chunk] = []

    def watch(self, metadata: Any, groups: Sequence[int]) -> None:
        """Look at what is read of these row groups from now on.

        Args:
            metadata: The footer, as pyarrow has it.
            groups: Their numbers.
        """
        chunks: dict[int, _Chunk] = {}
        for group in groups:
            row_group = metadata.row_group(group)
            for number in range(metadata.num_columns):
                column = row_group.column(number)
                first = min((at for at in (column.dictionary_page_offset, column.data_page_offset) if at), default=0)
                chunks[first] = _Chunk(first + column.total_compressed_size, first)
        self._starts = sorted(chunks)
        self._chunks = [chunks[start] for start in self._starts]

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        return int(self._stream.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return int(self._stream.seek(offset, whence))

    def read(self, size: int = -1, /) -> bytes:
        """Read; look at the heads of pages in it. Raises LoadError."""
        start = self._stream.tell()
        data: bytes = self._stream.read(size)
        place = bisect_right(self._starts, start) - 1
        if place >= 0 and start < self._chunks[place].end:
            self._look(self._chunks[place], start, data)
        return data

    def _look(self, chunk: _Chunk, start: int, data: bytes) -> None:
        if chunk.part and chunk.part_end == start:
            data, start = chunk.part + data, start - len(chunk.part)
        chunk.part = b""
        end = start + len(data)
        while start <= chunk.next_head < end:
            head = CompactReader(data, chunk.next_head - start)
            try:
                found = head.struct(_HEAD)
                packed, size = found[_PACKED_BYTES], found[_BYTES]
            except IndexError:
                if end - chunk.next_head < _MOST_HEAD_BYTES and end < chunk.end:
                    chunk.part, chunk.part_end = data[chunk.next_head - start :], end
                return
            except _BROKEN:  # which the library says better
                return
            self._check(found, size, packed)
            if packed < 0:
                return
            chunk.next_head = start + head.at + packed

    def _check(self, found: dict[int, Any], size: int, packed: int) -> None:
        longest = self._max_row_bytes
        count = next((found[kind].get(_COUNT, 0) for kind in (_DATA, _DICTIONARY, _DATA_2) if kind in found), 0)
        if size > longest and size > count * longest:
            raise LoadError(
                f"{self._name} has a value of more than {longest:,} bytes: a page of it has {size:,} bytes and "
                f"{count:,} values. Raise --max-row-bytes if rows are that long"
            )
        if size > ROWS * longest and size > RATIO * packed:
            raise LoadError(
                f"{self._name} has a page of {size:,} bytes that are {packed:,} in the file, and {ROWS * longest:,} "
                "may be in one that is packed so closely: raise --max-row-bytes, or write smaller pages"
            )
