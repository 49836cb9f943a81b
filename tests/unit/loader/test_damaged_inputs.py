"""An input that is cut off or damaged never passes for a shorter one."""

from __future__ import annotations

import bz2
import gzip
import io
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import lz4.frame
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats import text
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.opening.decompression import DecompressedStream
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.tables.row_plan import RowPlan

LINES = b"".join(b"line %d %s\n" % (i, random.Random(i).randbytes(9).hex().encode()) for i in range(2000))


def zipped(data: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", data)
    return sink.getvalue()


def count(path: Path) -> int:
    (source,) = find_sources([str(path)], "lines")
    return sum(block.row_count for block in read_rows(source, ReadOptions(RowPlan(""))))


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        ("gz", gzip.compress),
        ("bz2", bz2.compress),
        ("lz4", lz4.frame.compress),
        ("zst", zstandard.ZstdCompressor().compress),
        ("zip", zipped),
    ],
)
def test_compressed_file_that_is_cut_off_is_refused(
    suffix: str, compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / f"a.txt.{suffix}"
    data = compress(LINES)
    path.write_bytes(data)
    assert count(path) == 2000
    for length in (len(data) - 1, len(data) - 9, len(data) // 2, 20):
        path.write_bytes(data[:length])
        with pytest.raises(LoadError, match=r"is cut off: it ends at byte [\d,]+, within the|not a whole zip"):
            count(path)


@pytest.mark.parametrize("suffix", ["gz", "bz2", "lz4", "zst", "xz"])
def test_a_text_with_the_name_of_a_codec_is_no_damage(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.txt.{suffix}"
    path.write_bytes(LINES)
    with pytest.raises(LoadRefusedError, match=r"does not begin as [a-z0-9]+ does: .* --compression none"):
        count(path)
    (source,) = find_sources([str(path)], "lines", "none")
    assert sum(block.row_count for block in read_rows(source, ReadOptions(RowPlan("")))) == 2000


@pytest.mark.parametrize("frame", [b"\x50\x2a\x4d\x18\x04\0\0\0skip", b""])
@pytest.mark.parametrize(
    ("suffix", "compress"), [("lz4", lz4.frame.compress), ("zst", zstandard.ZstdCompressor().compress)]
)
def test_a_frame_to_skip_begins_a_file_that_the_name_explains(
    suffix: str, compress: Callable[[bytes], bytes], frame: bytes, tmp_path: Path
) -> None:
    path = tmp_path / f"a.txt.{suffix}"
    path.write_bytes(frame + compress(LINES))
    assert count(path) == 2000


def test_zip_archive_with_a_wrong_byte_is_refused(tmp_path: Path) -> None:
    data = bytearray(zipped(LINES))
    data[len(data) // 2] ^= 0x10
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(LoadError, match="damaged or cut off"):
        count(tmp_path / "a.zip")


def test_file_that_is_cut_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "PIECE_BYTES", 4096)
    path = tmp_path / "a.txt"
    path.write_bytes(LINES)
    (source,) = find_sources([str(path)])
    blocks = read_rows(source, ReadOptions(RowPlan("")))
    next(blocks)
    with open(path, "r+b") as file:
        file.truncate(len(LINES) // 2)
    with pytest.raises(
        LoadError, match=f"was cut to {len(LINES) // 2:,} bytes while it was read; it had {len(LINES):,}"
    ):
        list(blocks)


def zstd(data: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


NOISE = random.Random(1).randbytes(300)
STREAMS = {
    "plain": zstd(b"some text " * 40),
    "checksum": zstd(b"some text " * 40, write_checksum=True),
    "without content size": zstd(b"some text " * 40, write_content_size=False),
    "streamed": (streamed := zstandard.ZstdCompressor().compressobj()).compress(b"x" * 999) + streamed.flush(),
    "nothing": zstd(b""),
    "repeated byte": zstd(bytes(400_000)),
    "noise": zstd(NOISE),
    "two-byte content size": zstd(NOISE * 10),
    "several blocks": zstd(random.Random(2).randbytes(300_000)),
    "frames and something else between": zstd(b"a") + b"\x5a\x2a\x4d\x18\x05\0\0\0inner" + zstd(b"b" * 5000),
    "nothing to skip": b"\x50\x2a\x4d\x18\0\0\0\0" + zstd(b"a"),
}


def read_all(data: bytes, size: int) -> None:
    stream = DecompressedStream(cast(io.RawIOBase, io.BytesIO(data)), "zstd", "a.zst")
    while stream.read(size):
        pass


@pytest.mark.parametrize("name", STREAMS)
def test_zstd_frames_are_followed_to_their_end(name: str) -> None:
    data = STREAMS[name]
    for size in (1, 7, 1 << 20):
        read_all(data, size)
    complete = set()  # cuts between frames are none
    if name == "frames and something else between":
        first = len(zstd(b"a"))
        complete |= {first, first + 13}
    elif name == "nothing to skip":
        complete |= {8}
    for length in {
        *range(min(len(data), 200)),
        *range(max(len(data) - 20, 0), len(data)),
        len(data) // 2,
    } - complete:
        with pytest.raises(LoadError, match=r"a.zst is cut off: it (ends at byte|is empty)"):
            read_all(data[:length], 64)


@pytest.mark.parametrize("kind", ["arrow stream", "arrow", "parquet"])
def test_a_column_name_that_is_no_text_is_damage(kind: str, tmp_path: Path) -> None:
    table = pa.table({"surname": ["a"]})
    sink = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink, store_schema=False)
    else:
        with (pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream)(sink, table.schema) as writer:
            writer.write_table(table)
    path = tmp_path / "a"
    path.write_bytes(sink.getvalue().replace(b"surname", b"\xf5urname"))
    (source,) = find_sources([str(path)], kind.partition(" ")[0])
    with pytest.raises(LoadError, match="damaged: 'utf-8' codec can't decode byte 0xf5"):
        list(read_rows(source, ReadOptions(RowPlan(""))))
