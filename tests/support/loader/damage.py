"""Small inputs of every format, codec and archive, and what a load makes of them when they are cut or damaged."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import struct
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import fastavro
import lz4.frame
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import zstandard

from kafkaprod.errors import KafkaError
from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.tables.row_plan import RowPlan

ROWS: Final = 30
WAYS: Final = ("file", "pipe", "stdin")
REFUSED: Final = "refused"
PLAIN: Final = ReadOptions(RowPlan(""))

Rows = list[bytes | None]


def _names() -> list[str]:
    rng = random.Random(5)
    return [f"name {rng.randrange(10**9)}" for _ in range(ROWS)]


def _table() -> pa.Table:
    return pa.table({"id": list(range(ROWS)), "name": _names()})


def _json_lines() -> list[bytes]:
    return [b'{"id":%d,"name":"%s"}' % (i, name.encode()) for i, name in enumerate(_names())]


def _parquet(codec: str = "none") -> bytes:
    sink = io.BytesIO()
    pq.write_table(_table(), sink, row_group_size=10, write_page_checksum=True, compression=codec)
    return sink.getvalue()


def _arrow(new: Callable[..., Any], codec: str | None = None) -> bytes:
    sink = io.BytesIO()
    with new(sink, _table().schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        for batch in _table().to_batches(10):
            writer.write_batch(batch)
    return sink.getvalue()


def _orc() -> bytes:
    sink = io.BytesIO()
    pyarrow.orc.write_table(_table(), sink, compression="zlib")
    return sink.getvalue()


def _avro() -> bytes:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]
    sink = io.BytesIO()
    schema = {"type": "record", "name": "row", "fields": fields}
    fastavro.writer(
        sink, schema, _table().to_pylist(), sync_interval=200, sync_marker=b"the mark of file", codec="deflate"
    )
    return sink.getvalue()


FORMATS: Final[dict[str, Callable[[], bytes]]] = {
    "lines": lambda: b"".join(name.encode() + b"\n" for name in _names()),
    "jsonl": lambda: b"\n".join(_json_lines()) + b"\n",
    "json": lambda: b"[" + b",\n".join(_json_lines()) + b"]",
    "csv": lambda: b"id,name\n" + b"".join(b'%d,"%s"\n' % (i, name.encode()) for i, name in enumerate(_names())),
    "parquet": _parquet,
    "arrow": lambda: _arrow(pa.ipc.new_file),
    "arrow stream": lambda: _arrow(pa.ipc.new_stream),
    "orc": _orc,
    "avro": _avro,
}


INNER: Final[dict[str, Callable[[], bytes]]] = {  # compressed by the format itself
    **{f"parquet {codec}": partial(_parquet, codec) for codec in ("snappy", "gzip", "brotli", "lz4", "zstd")},
    **{f"arrow {codec}": partial(_arrow, pa.ipc.new_file, codec) for codec in ("lz4", "zstd")},
    **{f"arrow stream {codec}": partial(_arrow, pa.ipc.new_stream, codec) for codec in ("lz4", "zstd")},
}


def _zipped(data: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("member", data)
    return sink.getvalue()


CODECS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "none": bytes,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lz4": lambda data: lz4.frame.compress(data, content_checksum=True),
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "zip": _zipped,
}
STREAMED: Final = ("gzip", "bz2", "xz", "lz4", "zstd")
LONGEST_MAGIC: Final = 6
TEXTS: Final = ("lines", "jsonl", "json", "csv")
# Without a codec nothing tells that a byte has another value, or that a text of rows is cut at the end of one.
WITHOUT_CHECKSUM: Final = (
    *TEXTS,
    "arrow",
    "arrow stream",
    "orc",
    "avro",
    *(name for name in INNER if name.startswith("arrow")),
)
AVRO_MARK_BYTES: Final = 16  # at the end of the header and of each block
WITHOUT_END: Final = ("lines", "jsonl", "csv")


@dataclass(frozen=True)
class Sample:
    """An input of a format behind a codec, and how it is given to the load."""

    format: str
    codec: str
    way: str

    @property
    def streams(self) -> list[bytes]:
        """The whole input; of a codec two streams, because what damages the second one must be noticed, too."""
        text, compress = (FORMATS | INNER)[self.format](), CODECS[self.codec]
        if self.codec not in STREAMED:
            return [compress(text)]
        return [compress(text[: len(text) // 2]), compress(text[len(text) // 2 :])]

    def silent_cut(self, length: int) -> bool:
        """Whether nothing tells that the input ends too early; the places are in docs/loading.md."""
        if self.codec in STREAMED and length == len(self.streams[0]):
            return self.format not in (
                "json",
                "parquet",
                "arrow",
                "arrow stream",
                "orc",
                "avro",
            )  # these have an end of their own
        if self.way != "file" and self.codec != "none" and length < LONGEST_MAGIC:
            return True  # no --compression, and too little to recognize it by
        if self.codec == "none" and self.format == "avro":  # between two blocks
            data = self.streams[0]
            return length > AVRO_MARK_BYTES and data[length - AVRO_MARK_BYTES : length] == data[-AVRO_MARK_BYTES:]
        return self.codec == "none" and self.format in WITHOUT_END

    @property
    def has_checksum(self) -> bool:
        """Whether every other byte can be told."""
        return self.codec != "none" or self.format not in WITHOUT_CHECKSUM

    def rows(self, data: bytes, directory: Path, options: ReadOptions = PLAIN) -> Rows | str:
        """The rows that a load would send without a complaint, or REFUSED."""
        try:
            return list(self._read(data, directory, options))
        except KafkaError:
            return REFUSED

    def _read(self, data: bytes, directory: Path, options: ReadOptions) -> Iterator[bytes | None]:
        kind = self.format.partition(" ")[0]
        if self.way == "file":
            path = directory / f"a.{self.codec}"
            path.write_bytes(data)
            yield from _values(str(path), kind, None if self.codec == "none" else self.codec, options)
            return
        reading, writing = os.pipe()
        os.write(writing, data)
        os.close(writing)
        before = sys.stdin
        with os.fdopen(reading, "rb", buffering=0) as file:
            try:
                if self.way == "stdin":
                    sys.stdin = file  # type: ignore[assignment]
                yield from _values("-" if self.way == "stdin" else f"/dev/fd/{reading}", kind, None)
            finally:
                sys.stdin = before


def _values(name: str, kind: str, codec: str | None, options: ReadOptions = PLAIN) -> Iterator[bytes | None]:
    for source in find_sources([name], kind, codec):
        for block in read_rows(source, options):
            if block.bad:
                raise LoadError(str(block.bad[0]))
            for place in range(block.row_count):
                yield None if block.value is None else block.value[place]


def samples() -> list[Sample]:
    """Every format behind every codec, and with every codec of its own, in every way."""
    behind = [Sample(kind, codec, way) for kind in FORMATS for codec in CODECS for way in WAYS]
    return behind + [Sample(kind, "none", way) for kind in INNER for way in WAYS]


@dataclass
class Count:
    """What a load made of damaged copies of an input: all rows, a refusal, or others that nobody can tell."""

    right: int = 0
    refused: int = 0
    untold: int = 0

    def __str__(self) -> str:
        return f"{self.right:,} right, {self.refused:,} refused, {self.untold:,} not told"


@dataclass
class Verdict:
    """What a load made of an input that was damaged again and again.

    Attributes:
        cuts: Of copies that were cut.
        flips: Of copies with one bit changed.
        found: What it took for whole, and could have told.
    """

    cuts: Count = field(default_factory=Count)
    flips: Count = field(default_factory=Count)
    found: list[str] = field(default_factory=list)


def _always(_: Rows) -> bool:
    return True


def _never(_: Rows) -> bool:
    return False


def judge(sample: Sample, cuts: Iterable[int], flips: int, directory: Path) -> Verdict:
    """Damage an input and look at what a load takes for whole.

    Args:
        sample: The input.
        cuts: Lengths to cut it to.
        flips: How many single bits to change, one at a time.
        directory: For files.
    """
    data = b"".join(sample.streams)
    whole = sample.rows(data, directory)
    verdict = Verdict()
    if whole == REFUSED or len(whole) != ROWS:
        verdict.found.append(f"{sample} as it is: {whole}")
        return verdict

    def add(to: Count, damaged: bytes, what: str, can_tell: Callable[[Rows], bool]) -> None:
        rows = sample.rows(damaged, directory)
        to.refused += rows == REFUSED
        to.right += rows == whole
        if isinstance(rows, str) or rows == whole:
            return
        if can_tell(rows):
            verdict.found.append(f"{sample} {what}: {len(rows)} rows, {_size(rows)} bytes")
        else:
            to.untold += 1

    for length in cuts:
        can_tell = _always if not sample.silent_cut(length) else _never
        add(verdict.cuts, data[:length], f"cut to {length} of {len(data)} bytes", can_tell)
    rng = random.Random(f"{sample}")
    footer = footer_start(data) if sample.format.startswith("parquet") and sample.codec == "none" else len(data)
    for number in range(flips):  # those without a checksum may have other bytes of the input, and of nothing else
        damaged = flipped(data, rng)
        is_checked = sample.has_checksum and damaged[footer:] == data[footer:]
        add(
            verdict.flips,
            damaged,
            f"with flip {number}",
            _always if is_checked else lambda rows: _size(rows) > 20 * len(data),
        )
    return verdict


def _size(rows: Rows) -> int:
    return sum(len(row or b"") for row in rows)


def footer_start(data: bytes) -> int:
    """Where the footer of a Parquet file begins, which has no checksum."""
    return len(data) - 8 - int(struct.unpack_from("<i", data, len(data) - 8)[0])


def flipped(data: bytes, rng: random.Random) -> bytes:
    """The data with one bit changed."""
    damaged = bytearray(data)
    bit = rng.randrange(8 * len(data))
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)
