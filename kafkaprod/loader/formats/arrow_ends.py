"""Prove that an Arrow or ORC input ends where it seems to end: libraries read less than there is without an error.

pyarrow takes a stream that is cut between two batches for a shorter one, reads the first of two concatenated streams,
and of concatenated files the parts that the last one's footer happens to point to.
Source: Arrow Columnar Format 1.5 (IPC), Footer in File.fbs.
"""

from __future__ import annotations

import io
import struct
from typing import Any, Final

from kafkaprod.loader.formats.limits import most_content_bytes
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.opening.source import Source

ARROW_MAGIC: Final = b"ARROW1"
ORC_MAGIC: Final = b"ORC"
_GAP_BYTES: Final = 64 + 8  # between the last block and the footer of an Arrow file: filling, and the end mark
_BLOCK: Final = struct.Struct("<qi4xq")  # offset, bytes of its metadata, bytes of its body


class NotedReads(io.RawIOBase):
    """Passes a stream on to a library, and notes whether it wanted more bytes than there were.

    Args:
        stream: What is in the input.
        source: The input.
    """

    def __init__(self, stream: Any, source: Source) -> None:
        self._stream = stream
        self._most = None if source.compression == "none" else most_content_bytes(source.size)
        self._name = source.name
        self._is_short = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        if self._most is not None and (size or 0) > self._most:
            raise LoadError(
                f"{self._name} has a batch of {size:,} bytes, more than {self._most:,}: decompress it first"
            )
        data: bytes = self._stream.read(size)
        self._is_short = self._is_short or (size is not None and len(data) < size)
        return data

    def check_end(self, name: str, row_count: int) -> None:
        """Refuse an Arrow stream that has ended without its mark, or that more follows.

        Args:
            name: The name of the input.
            row_count: How many rows were read.

        Raises:
            LoadError: It is cut off, or several streams were joined.
        """
        if self._is_short:
            raise LoadError(
                f"{name} is cut off: the Arrow stream has no end mark behind its {row_count:,} rows. If its writer "
                "closes no stream, write it as a file"
            )
        if self._stream.read(1):
            raise LoadError(
                f"{name} has more behind the end mark of its Arrow stream of {row_count:,} rows: load joined streams "
                "one by one"
            )


def check_one_arrow_file(stream: Any, name: str) -> None:
    """Refuse an Arrow file that has something between its last batch and its footer: joined files are no file.

    Args:
        stream: The file; is left at its beginning.
        name: The name of the input.

    Raises:
        LoadError: There is more in it than the footer has.
        struct.error, OverflowError, ValueError: The footer is damaged.
    """
    size = stream.seek(0, io.SEEK_END)
    stream.seek(max(size - 10, 0))
    length, magic = struct.unpack("<i6s", stream.read(10))
    start = size - 10 - length
    if magic != ARROW_MAGIC or not 0 < length <= size - 18:
        raise LoadError(f"{name} is cut off: it ends at byte {size:,} without the footer of an Arrow file")
    stream.seek(start)
    end = max((offset + head + body for offset, head, body in _blocks(stream.read(length))), default=None)
    if end is None:  # no batches: behind the schema
        stream.seek(8)
        (mark, schema_bytes) = struct.unpack("<ii", stream.read(8))
        end = 16 + schema_bytes if mark == -1 else 12 + mark
    stream.seek(0)
    if not 0 <= start - end <= _GAP_BYTES:
        raise LoadError(
            f"{name} is damaged, or several Arrow files were joined: its footer is at byte {start:,}, its last batch "
            f"ends at byte {end:,}"
        )


def _blocks(footer: bytes) -> list[tuple[int, int, int]]:
    """Return offset and lengths of dictionaries and batches, by the flatbuffer of the footer."""
    (table,) = struct.unpack_from("<I", footer)
    vtable = table - struct.unpack_from("<i", footer, table)[0]
    (vtable_bytes,) = struct.unpack_from("<H", footer, vtable)
    blocks = []
    for field in (2, 3):  # dictionaries, recordBatches
        place = 4 + 2 * field
        shift = struct.unpack_from("<H", footer, vtable + place)[0] if place < vtable_bytes else 0
        if shift:
            vector = table + shift + struct.unpack_from("<I", footer, table + shift)[0]
            (count,) = struct.unpack_from("<I", footer, vector)
            blocks += [_BLOCK.unpack_from(footer, vector + 4 + _BLOCK.size * i) for i in range(count)]
    return blocks


def check_one_orc_file(file: Any, size: int, name: str) -> None:
    """Refuse joined ORC files, of which only the last one's footer is looked at, and bytes that no part of it has.

    Args:
        file: A pyarrow ORCFile.
        size: The bytes of the whole input.
        name: The name of the input.

    Raises:
        LoadError: The parts of the file are not all of it.
    """
    parts = file.content_length + file.stripe_statistics_length + file.file_footer_length + file.file_postscript_length
    # The last byte is the length of the postscript. Some writers count the first three as content, others do not.
    if abs(size - parts - 1) > len(ORC_MAGIC):
        raise LoadError(
            f"{name} is damaged, or several ORC files were joined: its footer speaks of {parts + 1:,} bytes, and there "
            f"are {size:,}"
        )
