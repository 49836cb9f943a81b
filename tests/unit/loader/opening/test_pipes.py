"""An input that can be read only once is opened several times, for its first bytes, names, types and rows."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import io
import json
import os
import select
import shutil
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lz4.frame
import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard

from kafkaprod.cli.main import build_parser
from kafkaprod.cli.produce import _Settings
from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats import text
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.opening import pipes
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.loader.opening.pipes import Pipe
from kafkaprod.loader.opening.prefix import DIGEST_DIGITS
from kafkaprod.loader.opening.source import Source
from kafkaprod.loader.positions.manifest_file import ManifestFile
from kafkaprod.tables.row_plan import RowPlan

COUNT = 5_000
CSV = "id,name\n" + "".join(f"{i},name {i}\n" for i in range(COUNT))
AS_JSON = [b'{"id":"%d","name":"name %d"}' % (i, i) for i in range(COUNT)]

SetStdin = Callable[[str, bytes], None]


@pytest.fixture
def set_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SetStdin]:
    """Give this process another stdin: a pipe that bytes come through in pieces, or a file."""
    monkeypatch.setattr(text, "PIECE_BYTES", 1_000)
    monkeypatch.setattr(pipes, "KEPT_BYTES", 2_000)
    with contextlib.ExitStack() as stack:

        def set_it(kind: str, data: bytes) -> None:
            if kind == "file":
                (tmp_path / "stdin").write_bytes(data)
                file: Any = stack.enter_context(open(tmp_path / "stdin", "rb"))
            else:
                reading, writing = os.pipe()
                file = stack.enter_context(os.fdopen(reading, "rb", buffering=0))
                writer = threading.Thread(target=write, args=(writing, data))
                writer.start()
                stack.callback(writer.join)
            monkeypatch.setattr(sys, "stdin", file)

        yield set_it


def write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "wb", buffering=0) as file:
        for start in range(0, len(data), 317):
            file.write(data[start : start + 317])


def values(source: Source, row: int = 0, offset: int = 0) -> list[bytes | None]:
    return [
        None if block.value is None else block.value[place]
        for block in read_rows(source, ReadOptions(RowPlan("")), row, offset)
        for place in range(block.row_count)
    ]


def source_of(name: str, format_name: str | None = None) -> Source:
    (source,) = find_sources([name], format_name)
    return source


@pytest.mark.parametrize("kind", ["pipe", "file"])
@pytest.mark.parametrize("format_name", ["csv", "json", "jsonl"])
def test_every_row_of_stdin_is_read(set_stdin: SetStdin, kind: str, format_name: str) -> None:
    as_array = b" [\n" + b",\n".join(AS_JSON) + b"]\n"
    data = {"csv": CSV.encode(), "json": as_array, "jsonl": b"\n".join(AS_JSON)}[format_name]
    set_stdin(kind, data)
    source = source_of("-", format_name)
    assert values(source) == AS_JSON
    assert (source.pipe is None) == (kind == "file")


SUFFIXES = {"gzip": "gz", "bz2": "bz2", "lz4": "lz4", "zstd": "zst"}
COMPRESSED = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "lz4": lz4.frame.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("kind", ["pipe", "file"])
@pytest.mark.parametrize("codec", COMPRESSED)
def test_compressed_stdin_is_recognized_by_its_first_bytes(
    set_stdin: SetStdin, kind: str, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "KEPT_BYTES", 1 << 20)  # decompressors read ahead
    set_stdin(kind, COMPRESSED[codec](CSV.encode()))
    source = source_of("-", "csv")
    assert source.compression == codec
    assert values(source) == AS_JSON


def tarred(data: bytes) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        info = tarfile.TarInfo("rows.csv")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return sink.getvalue()


@pytest.mark.parametrize("kind", ["pipe", "file"])
@pytest.mark.parametrize("codec", ["none", *COMPRESSED])
@pytest.mark.parametrize("format_name", [None, "csv"])
def test_a_tar_archive_is_not_read_as_rows(
    set_stdin: SetStdin,
    kind: str,
    codec: str,
    format_name: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipes, "KEPT_BYTES", 1 << 20)
    data = (COMPRESSED | {"none": bytes})[codec](tarred(CSV.encode()))
    set_stdin(kind, data)
    with pytest.raises(LoadRefusedError, match="stdin is a tar archive, which a load cannot read: unpack it"):
        find_sources(["-"], format_name)
    names = ["a.tar", "a.txt"] if codec == "none" else [f"a.tar.{SUFFIXES[codec]}", "a.tgz"]
    for name in names:
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(LoadRefusedError, match="is a tar archive"):
            find_sources([str(path)], format_name)


def test_lines_that_have_the_word_of_tar_are_lines(set_stdin: SetStdin) -> None:
    line = b"x" * 257 + b"ustar"
    set_stdin("pipe", line + b"\n")
    assert values(source_of("-")) == [line]


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_all_members_of_a_zip_archive_in_stdin_are_read(set_stdin: SetStdin, kind: str) -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", "1\n2\n")
        archive.writestr("b.csv", CSV)
    set_stdin(kind, sink.getvalue())
    first, second = find_sources(["-"])
    assert [first.name, second.name] == ["stdin:a.txt", "stdin:b.csv"]
    assert values(first) == [b"1", b"2"]
    assert values(second) == AS_JSON


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_tables_in_stdin_are_recognized_by_their_first_bytes(set_stdin: SetStdin, kind: str) -> None:
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(pa.table({"id": range(3)}), sink)
    set_stdin(kind, sink.getvalue().to_pybytes())
    assert values(source_of("-")) == [b'{"id":0}', b'{"id":1}', b'{"id":2}']


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Callable[[str, bytes], str]]:
    """Make a FIFO that another thread writes to; it can be opened once."""
    with contextlib.ExitStack() as stack:

        def make(name: str, data: bytes) -> str:
            path = tmp_path / name
            os.mkfifo(path)
            writer = threading.Thread(target=lambda: write(os.open(path, os.O_WRONLY), data))
            writer.start()
            stack.callback(writer.join)
            return str(path)

        yield make


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt"])
def test_a_fifo_is_opened_once_and_loses_no_byte(
    fifo: Callable[[str, bytes], str], name: str, compress: Callable[[bytes], bytes]
) -> None:
    data = CSV.encode() if name == "a.csv" else b"\n".join(AS_JSON) + b"\n"
    source = source_of(fifo(name, compress(data)))
    assert source.pipe is not None
    assert values(source) == AS_JSON


def test_a_descriptor_of_a_pipe_is_opened_once() -> None:
    reading, writing = os.pipe()
    writer = threading.Thread(target=write, args=(writing, b"\n".join(AS_JSON)))
    writer.start()
    source = source_of(f"/dev/fd/{reading}", "lines")
    os.close(reading)
    assert values(source) == AS_JSON
    writer.join()


def test_a_pipe_named_twice_is_refused(tmp_path: Path, set_stdin: SetStdin) -> None:
    set_stdin("pipe", b"1\n")
    with pytest.raises(LoadError, match=r"stdin .* is named twice"):
        find_sources(["-", "-"])
    assert pipes.input_name("/dev/stdin") == pipes.input_name("/dev/fd/0") == "-"


def test_a_pipe_has_no_manifest_beside_it(fifo: Callable[[str, bytes], str], tmp_path: Path) -> None:
    path = fifo("a.txt", b"1\n")
    for name in (path, "-"):
        with pytest.raises(LoadError, match="--state DIR"):
            ManifestFile.for_load([name], "t", None)
        ManifestFile.for_load([name], "t", str(tmp_path))
    assert values(source_of(path)) == [b"1"]


def test_columns_of_a_pipe_have_the_types_of_as_many_rows_as_those_of_a_file(set_stdin: SetStdin) -> None:
    set_stdin("pipe", b"id\n" + b"1\n" * 300 + b"1.5\n")
    (block, *_) = read_rows(source_of("-", "csv"), ReadOptions(RowPlan(""), infer_types=True))
    assert block.value is not None
    assert json.loads(block.value[0] or b"") == {"id": 1.0}


def test_the_rest_of_a_pipe_is_read_from_a_position_on(set_stdin: SetStdin) -> None:
    set_stdin("pipe", CSV.encode())
    offset = CSV.index("\n4000,") + 1
    assert values(source_of("-", "csv"), 4_000, offset) == AS_JSON[4_000:]


def test_what_a_pipe_does_not_keep_is_not_skipped_silently(set_stdin: SetStdin) -> None:
    set_stdin("pipe", CSV.encode())
    pipe = source_of("-", "csv").pipe
    assert pipe is not None
    shutil.copyfileobj(pipe.open(), io.BytesIO(), 1_000)  # more at once would all be kept
    with pytest.raises(LoadError, match="cannot be read twice"):
        io.BufferedReader(pipe.open()).read()


def test_a_pipe_is_read_where_its_size_cannot_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr("fcntl.F_SETPIPE_SZ", raising=False)
    reading, writing = os.pipe()
    os.write(writing, b"id\n1\n")
    os.close(writing)
    assert pipes.Pipe(reading, "a pipe").open().read(100) == b"id\n1\n"


def read_by_the_loader(descriptor: int) -> bytes:
    return io.BufferedReader(pipes.Pipe(os.dup(descriptor), "a pipe").open()).read()


def read_by_produce(descriptor: int) -> bytes:
    """What `kafkaprod produce` sends of its stdin."""
    options = build_parser(["produce"]).parse_args(["produce", "-t", "t"])
    with open(descriptor, "rb", closefd=False) as file, pytest.MonkeyPatch.context() as patch:
        text = io.TextIOWrapper(file)
        patch.setattr(sys, "stdin", text)
        blocks = list(_Settings(options).blocks())
        text.detach()
    return b"".join((rows.value[place] or b"") + b"\n" for rows in blocks for place in range(rows.row_count))


@pytest.mark.parametrize("read", [read_by_the_loader, read_by_produce])
def test_a_pipe_that_has_nothing_now_is_waited_for(read: Callable[[int], bytes]) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)  # as another program that has the same end may have set it
    is_waiting = threading.Event()
    poll = select.poll

    def noting_poll() -> Any:
        is_waiting.set()
        return poll()

    def write_later() -> None:
        is_waiting.wait(10)
        os.write(writing, b"3\n")
        os.close(writing)

    os.write(writing, b"1\n2\n")
    writer = threading.Thread(target=write_later)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(select, "poll", noting_poll)
        writer.start()
        assert read(reading) == b"1\n2\n3\n"
    writer.join()
    assert is_waiting.is_set()
    assert not os.get_blocking(reading)
    os.close(reading)


def open_with(content: bytes) -> Pipe:
    """A pipe that has this content and has ended."""
    ours, theirs = os.pipe()
    os.write(theirs, content)
    os.close(theirs)
    return Pipe(ours, "stdin")


@pytest.mark.parametrize("kept", [0, 10, 1000])
@pytest.mark.parametrize("count", [1, 9, 10, 11, 300])
def test_a_pipe_is_compared_with_what_was_read_of_it_before(
    kept: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * 2
    first = open_with(content)
    first.keep_digest()
    assert first.head(count, count) == content[:count]
    assert first.prefix()[0] == count
    monkeypatch.setattr(pipes, "KEPT_BYTES", kept)
    for other in (content, content[: count - 1] + b"\xff" + content[count:], content[: count - 1]):
        pipe = open_with(other)
        pipe.head(min(kept, 5), min(kept, 5))
        pipe.keep_digest()
        said = (
            contextlib.nullcontext() if other == content else pytest.raises(LoadError, match="earlier run of the load")
        )
        with said:
            pipe.expect_prefix(*first.prefix())
            pipe.check_prefix()
        if other == content and kept == 1000:
            assert pipe.open().readall() == content


def test_bytes_that_were_read_ahead_come_in_their_order() -> None:
    content = bytes(range(256)) * 4
    pipe = open_with(content)
    pipe.keep_digest()
    stream = pipe.open()
    assert stream.read(3) == content[:3]
    pipe.expect_prefix(500, hashlib.sha256(content[:500]).hexdigest()[:DIGEST_DIGITS])
    pipe.check_prefix()
    assert pipe.prefix()[0] == 500
    assert stream.read(100) == content[3:103]
    assert stream.readall() == content[103:]
    assert pipe.prefix() == (len(content), hashlib.sha256(content).hexdigest()[:DIGEST_DIGITS])
