"""The first bytes of a pipe, compared with those of an earlier run."""

from __future__ import annotations

import contextlib
import hashlib
import io
from pathlib import Path

import pytest

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.opening import prefix
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.opening.prefix import DIGEST_DIGITS, END_MARK, Archive, Content, Prefix
from kafkaprod.tables.row_plan import RowPlan

DATA = bytes(range(256)) * 4
FOREIGN = b"\xff" + DATA[1:]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGEST_DIGITS]


@pytest.mark.parametrize("count", [0, 1, 255, 256, 1000, 1024])
@pytest.mark.parametrize("step", [1, 7, 256, 5000])
def test_bytes_are_compared_where_an_earlier_run_stopped_however_they_come(count: int, step: int) -> None:
    taken = Prefix("stdin")
    taken.expect(count, digest(DATA[:count]))
    for place in range(0, len(DATA), step):
        assert taken.missing == max(count - place, 0)
        taken.take(memoryview(DATA)[place : place + step])
    assert taken.missing == 0
    assert taken.value() == (len(DATA), digest(DATA))


@pytest.mark.parametrize("step", [1, 300, 5000])
def test_other_bytes_are_refused_when_the_last_of_them_comes(step: int) -> None:
    taken = Prefix("stdin")
    taken.expect(600, digest(DATA[:600]))
    last = 599 // step * step
    for place in range(0, last, step):
        taken.take(memoryview(FOREIGN)[place : place + step])
    with pytest.raises(LoadError, match="the first 600 bytes of stdin are not those that an earlier run"):
        taken.take(memoryview(FOREIGN)[last : last + step])


@pytest.mark.parametrize("looks", [[], [10], [400], [10, 400, 600]])  # opened before, to see what it is
def test_content_that_is_opened_several_times_is_compared_once(
    looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix, "AHEAD_BYTES", 100)
    for data in (DATA, FOREIGN):
        content = Content("stdin")
        content.expect(500, digest(DATA[:500]))
        with contextlib.nullcontext() if data == DATA else pytest.raises(LoadError, match="500 decompressed bytes"):
            for count in looks:
                assert content.open(io.BytesIO(data)).read(count) == data[:count]  # type: ignore[arg-type]
            stream = content.open(io.BytesIO(data))  # type: ignore[arg-type]
            assert stream.read(50) == data[:50]
            content.check()
            assert stream.readall() == data[50:]  # what was read ahead, too
            assert content.value() == (len(data), digest(data))


@pytest.mark.parametrize("has_read", [False, True])
def test_content_that_ends_too_early_is_refused(has_read: bool) -> None:
    content = Content("stdin")
    content.expect(500, digest(DATA[:500]))
    stream = content.open(io.BytesIO(DATA[:499]))  # type: ignore[arg-type]
    if has_read:
        assert stream.readall() == DATA[:499]
    with pytest.raises(LoadError, match="ends after 499 decompressed bytes, and an earlier run of the load read 500"):
        content.check()


def test_archives_are_the_same_if_their_files_are() -> None:
    first = Archive("stdin", [("a", 1, 2)]).value()
    Archive("stdin", [("a", 1, 2)]).expect(*first)
    for files in ([("a", 1, 3)], [("b", 1, 2)], [("a", 1, 2), ("b", 0, 0)], []):
        with pytest.raises(LoadError, match="the files in the archive stdin are not those"):
            Archive("stdin", files).expect(*first)


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("step", [1, 300, 5000])
def test_what_ended_within_a_row_must_end_there_again(step: int, is_read: bool) -> None:
    first = Prefix("stdin", DATA[:600])
    assert first.value(is_end=True) == (600, digest(DATA[:600]) + END_MARK)
    for data in (DATA[:600], DATA[:601]):
        taken = Prefix("stdin", data if is_read else b"")
        refused = pytest.raises(LoadError, match="continues behind the 600")
        with contextlib.nullcontext() if len(data) == 600 else refused:
            if is_read:
                taken.expect_read(memoryview(data)[:600], first.value(is_end=True)[1])
            else:
                taken.expect(*first.value(is_end=True))
                for place in range(0, len(data), step):
                    taken.take(memoryview(data)[place : place + step])
            assert taken.missing == 0
    with pytest.raises(LoadError, match="the first 600 bytes of stdin are not those"):
        Prefix("stdin", FOREIGN).expect_read(memoryview(FOREIGN)[:600], first.value(is_end=True)[1])


@pytest.mark.parametrize(("name", "rows"), [("a.txt", b"1\n2\n3"), ("a.jsonl", b"1\n2\n3"), ("a.csv", b"x\n1\n2\n3")])
def test_a_last_row_without_an_end_is_a_block_of_its_own(tmp_path: Path, name: str, rows: bytes) -> None:
    for end, tails in ((b"", [False, True]), (b"\n", [False])):
        (tmp_path / name).write_bytes(rows + end)
        (source,) = find_sources([str(tmp_path / name)])
        blocks = list(read_rows(source, ReadOptions(RowPlan("raw"))))
        assert [block.is_tail for block in blocks] == tails
        assert sum(block.row_count for block in blocks) == 3
