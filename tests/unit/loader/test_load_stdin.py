"""Stdin is looked at twice, for names and types and then for the rows; no row may be missing for it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkaprod.loader import stdin, text
from kafkaprod.loader.errors import LoadError
from kafkaprod.loader.inputs import Source, find_sources
from kafkaprod.loader.plan import RowPlan
from kafkaprod.loader.readers import ReadOptions, read_rows
from kafkaprod.loader.stdin import is_stdin_a_file, open_stdin

COUNT = 5_000
CSV = "id,name\n" + "".join(f"{i},name {i}\n" for i in range(COUNT))
AS_JSON = [b'{"id":%d,"name":"name %d"}' % (i, i) for i in range(COUNT)]

SetStdin = Callable[[str, bytes], None]


@pytest.fixture
def set_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SetStdin]:
    """Give this process another stdin: a pipe that bytes come through in pieces, or a file."""
    monkeypatch.setattr(text, "PIECE_BYTES", 1_000)
    monkeypatch.setattr(stdin, "KEPT_BYTES", 2_000)
    with contextlib.ExitStack() as stack:

        def set_it(kind: str, data: bytes) -> None:
            stdin.is_stdin_a_file.cache_clear()
            stdin._pipe.cache_clear()
            if kind == "file":
                (tmp_path / "stdin").write_bytes(data)
                file = stack.enter_context(open(tmp_path / "stdin", "rb"))
            else:
                reading, writing = os.pipe()
                file = stack.enter_context(os.fdopen(reading, "rb", buffering=0))
                writer = threading.Thread(target=write, args=(writing, data))
                writer.start()
                stack.callback(writer.join)
            monkeypatch.setattr(sys, "stdin", file)

        yield set_it
    stdin.is_stdin_a_file.cache_clear()
    stdin._pipe.cache_clear()


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


@pytest.mark.parametrize("kind", ["pipe", "file"])
@pytest.mark.parametrize("format_name", ["csv", "json", "jsonl"])
def test_every_row_of_stdin_is_read(set_stdin: SetStdin, kind: str, format_name: str) -> None:
    as_array = b" [\n" + b",\n".join(AS_JSON) + b"]\n"
    data = {"csv": CSV.encode(), "json": as_array, "jsonl": b"\n".join(AS_JSON)}[format_name]
    set_stdin(kind, data)
    assert values(Source("-", format_name)) == AS_JSON
    assert is_stdin_a_file() == (kind == "file")


def test_columns_of_a_pipe_have_the_types_of_as_many_rows_as_those_of_a_file(set_stdin: SetStdin) -> None:
    data = b"id\n" + b"1\n" * 300 + b"1.5\n"
    set_stdin("pipe", data)
    assert json.loads(values(Source("-", "csv"))[0] or b"") == {"id": 1.0}


def test_the_rest_of_a_pipe_is_read_from_a_position_on(set_stdin: SetStdin) -> None:
    set_stdin("pipe", CSV.encode())
    offset = CSV.index("\n4000,") + 1
    assert values(Source("-", "csv"), 4_000, offset) == AS_JSON[4_000:]


def test_what_a_pipe_does_not_keep_is_not_passed_over_in_silence(set_stdin: SetStdin) -> None:
    set_stdin("pipe", CSV.encode())
    io.BufferedReader(open_stdin()).read()
    with pytest.raises(LoadError, match="gives nothing twice"):
        io.BufferedReader(open_stdin()).read()


def test_stdin_named_twice_is_refused() -> None:
    with pytest.raises(LoadError, match="named twice"):
        find_sources(["-", "-"])
