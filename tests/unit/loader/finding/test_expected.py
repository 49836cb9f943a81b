"""What a script knows of an input: files are compared at once, pipes at their end, rows whenever some were read."""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod.loader.finding.expected import Expected
from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError, UnexpectedInputError
from kafkaprod.loader.opening.opening import open_source
from kafkaprod.loader.opening.source import Source

CONTENT = b"1\n2\n3\n"


@contextlib.contextmanager
def pipe_of(content: bytes, format_name: str = "lines") -> Iterator[list[Source]]:
    """The sources of a pipe that has this content."""
    ours, theirs = os.pipe()
    os.write(theirs, content)
    os.close(theirs)
    try:
        yield find_sources([f"/dev/fd/{ours}"], format_name)
    finally:
        os.close(ours)


def expected_of(content: bytes) -> list[Expected]:
    """What is known of a content."""
    return [Expected(byte_count=len(content)), Expected(sha256=hashlib.sha256(content).hexdigest().upper())]


def test_rows_are_too_many_at_once_and_too_few_at_the_end() -> None:
    Expected(rows=3).check_rows(2, is_end=False)
    Expected(rows=3).check_rows(3, is_end=True)
    Expected().check_rows(3, is_end=True)
    with pytest.raises(UnexpectedInputError, match="more rows than --expect-rows 3"):
        Expected(rows=3).check_rows(4, is_end=False)
    with pytest.raises(UnexpectedInputError, match="ends after 2 rows, but --expect-rows is 3"):
        Expected(rows=3).check_rows(2, is_end=True)


def test_files_are_compared_one_behind_the_other(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(CONTENT[:2])
    (tmp_path / "b.txt").write_bytes(CONTENT[2:])
    for expected in expected_of(CONTENT):
        expected.watch(find_sources([str(tmp_path)]))
    for expected in expected_of(CONTENT + b"4\n"):
        with pytest.raises(LoadRefusedError, match=r"2 files together have .*Nothing was sent"):
            expected.watch(find_sources([str(tmp_path)]))


def test_an_archive_counts_once(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", CONTENT)
        archive.writestr("b.txt", CONTENT)
    for expected in expected_of((tmp_path / "a.zip").read_bytes()):
        expected.watch(find_sources([str(tmp_path / "a.zip")]))


@pytest.mark.parametrize("place", [0, 1])
def test_a_pipe_is_compared_at_its_end(place: int) -> None:
    with pipe_of(CONTENT) as sources:
        expected_of(CONTENT)[place].watch(sources)
        with open_source(sources[0]) as stream:
            assert stream.readall() == CONTENT
    with pipe_of(CONTENT[:-2]) as sources:
        expected_of(CONTENT)[place].watch(sources)
        with open_source(sources[0]) as stream, pytest.raises(UnexpectedInputError, match="but --expect-"):
            stream.readall()


def test_an_archive_from_a_pipe_is_compared_when_its_directory_was_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", CONTENT)
    data = (tmp_path / "a.zip").read_bytes()
    for expected in expected_of(data):
        with pipe_of(data) as sources:
            expected.watch(sources)
    for expected in expected_of(data + b"x"):
        with pipe_of(data) as sources, pytest.raises(UnexpectedInputError):
            expected.watch(sources)


def test_a_pipe_beside_other_inputs_cannot_be_compared(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(CONTENT)
    with pipe_of(CONTENT) as sources, pytest.raises(LoadRefusedError, match="load the pipe by itself"):
        Expected(byte_count=6).watch([*sources, *find_sources([str(tmp_path)])])


def test_what_was_read_of_a_pipe_and_is_not_kept_cannot_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkaprod.loader.opening.pipes.KEPT_BYTES", 0)
    with pipe_of(CONTENT) as sources, pytest.raises(LoadError, match="already read"):
        Expected(byte_count=6).watch(sources)
