"""What is loaded is the whole input: all files below a directory, all streams of one, and what it was when it began."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard

from kafkaprod.loader.bad_rows import DeadLetterFile
from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.finding.paths import Listing
from kafkaprod.loader.formats import text
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.opening.errors import BadRow, LoadError, LoadRefusedError
from kafkaprod.loader.opening.source import Source
from kafkaprod.tables.row_plan import RowPlan

ROWS = [b"row %d" % i for i in range(3000)]
TEXT = b"\n".join(ROWS) + b"\n"
CODECS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    "lz4": lambda data: lz4.frame.compress(data, content_checksum=True),
}


def rows_of(source: Source) -> Iterator[bytes | None]:
    """The rows of an input."""
    for block in read_rows(source, ReadOptions(RowPlan(""))):
        assert block.value is not None
        yield from (block.value[i] for i in range(block.row_count))


def load(*names: object) -> list[bytes | None]:
    """The rows of all inputs."""
    return [row for source in find_sources([str(name) for name in names]) for row in rows_of(source)]


def test_files_of_all_directories_and_links_are_loaded_once(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    folder = tmp_path / "folder"
    (folder / "deep" / "deeper").mkdir(parents=True)
    elsewhere.mkdir()
    for number, path in enumerate((folder / "a.txt", folder / "deep" / "deeper" / "b.txt", elsewhere / "c.txt")):
        path.write_bytes(b"%d\n" % number)
    (folder / "link").symlink_to(elsewhere)
    (folder / "d.txt").symlink_to(folder / "a.txt")
    wanted = [b"0", b"0", b"1", b"2"]
    assert sorted(map(str, load(folder))) == sorted(map(str, wanted))
    assert sorted(map(str, load(folder / "**" / "*.txt"))) == sorted(map(str, wanted))


@pytest.mark.parametrize("pattern", ["", "*", "**/*.txt"])
def test_a_link_to_nothing_is_refused(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "a.txt").write_bytes(b"1\n")
    (tmp_path / "b.txt").symlink_to(tmp_path / "missing" / "b.txt")
    with pytest.raises(LoadRefusedError, match="which cannot be found: is a disk missing"):
        load(tmp_path / pattern)


def test_a_link_to_a_directory_above_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"1\n")
    (tmp_path / "again").symlink_to(tmp_path)
    with pytest.raises(LoadRefusedError, match="a link to a directory above it"):
        load(tmp_path)


@pytest.mark.parametrize("pattern", ["", "**/*.txt", "*/*.txt"])
def test_a_directory_that_cannot_be_listed_is_refused(
    tmp_path: Path, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "a.txt").write_bytes(b"1\n")
    listed = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(LoadRefusedError, match="closed cannot be listed: Permission denied"):
        load(tmp_path / pattern)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("mode", ["w", "a"])
def test_a_name_that_an_archive_has_twice_is_refused(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "a.zip"
    for number in range(2):
        with zipfile.ZipFile(path, "a" if number else "w") as archive:
            archive.writestr("a.txt", b"%d\n" % number)
            if mode == "w":
                archive.writestr("b.txt", b"%d\n" % number)
    with pytest.raises(LoadRefusedError, match=r"has 2 files named 'a\.txt'"):
        load(path)


def test_a_file_without_a_name_in_an_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", b"1\n")
    path.write_bytes(path.read_bytes().replace(b"a1\n", b"\x001\n").replace(b"aPK", b"\0PK"))  # names end at a zero
    with pytest.raises(LoadRefusedError, match="one of its files has no name"):
        load(path)


@pytest.mark.parametrize("suffix", CODECS)
def test_joined_streams_are_read_to_the_end_of_the_last_one(tmp_path: Path, suffix: str) -> None:
    path, compress = tmp_path / f"a.txt.{suffix}", CODECS[suffix]
    parts = [compress(TEXT[:9000]), compress(b""), compress(TEXT[9000:9001]), compress(TEXT[9001:])]
    path.write_bytes(b"".join(parts))
    assert load(path) == ROWS
    path.write_bytes(b"".join(parts)[:-1])
    with pytest.raises(LoadError, match="is cut off"):
        load(path)
    path.write_bytes(b"".join(parts) + b"garbage")
    with pytest.raises(LoadError, match=r"is damaged|is cut off"):
        load(path)


@pytest.mark.parametrize("suffix", CODECS)
def test_damage_in_a_later_stream_is_not_the_end(tmp_path: Path, suffix: str) -> None:
    compress = CODECS[suffix]
    first, second = compress(TEXT[:9000]), bytearray(compress(TEXT[9000:]))
    for place in (0, 2, 20, len(second) // 2, len(second) - 2):
        damaged = bytearray(second)
        damaged[place] ^= 1
        path = tmp_path / f"a.txt.{suffix}"
        path.write_bytes(first + damaged)
        try:
            rows = load(path)
        except LoadError:
            continue
        assert rows == ROWS, f"byte {place} of {len(second)}"  # a bit that nothing depends on


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "shift_jis", "gb18030", "euc_kr", "big5"])
def test_a_text_that_ends_within_a_character_is_cut_off(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.txt"
    data = "a\n日本\n日".encode(encoding)
    path.write_bytes(data)
    (source,) = find_sources([str(path)], encoding=encoding)
    assert list(rows_of(source)) == [b"a", "日本".encode(), "日".encode()]
    path.write_bytes(data[:-1])
    (source,) = find_sources([str(path)], encoding=encoding)
    with pytest.raises(LoadError, match="is cut off: it ends within a character"):
        list(rows_of(source))


def test_the_file_of_bad_rows_is_named_where_it_cannot_be_written() -> None:
    sink = DeadLetterFile("/dev/full")
    sink.put(BadRow("a.txt", 0, "is bad", b"x"))
    for write in (sink.sync, sink.close):  # what is not written yet is tried again at the end
        with pytest.raises(LoadError, match=r"dead-letter file /dev/full cannot be written: .* --on-error dead-letter"):
            write()


def grow(path: Path) -> None:
    """Add a row."""
    with open(path, "ab") as file:
        file.write(b"more\n")


def replace_file(path: Path) -> None:
    """Put another file of the same size in its place."""
    status = path.stat()
    beside = path.with_name("beside")
    beside.write_bytes(TEXT.swapcase())
    os.utime(beside, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    beside.replace(path)


def write_to(path: Path) -> None:
    """Change a byte in the middle."""
    before = path.stat().st_mtime_ns
    with open(path, "r+b") as file:
        file.seek(len(TEXT) // 2)
        file.write(b"x")
    os.utime(path, ns=(0, before + 1_000_000))


@pytest.mark.parametrize(("change", "why"), [(grow, "grew to"), (write_to, "was written to")])
def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, change: Callable[[Path], None], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "PIECE_BYTES", 4096)
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT)
    rows = rows_of(*find_sources([str(path)]))
    assert next(rows) == ROWS[0]
    change(path)
    with pytest.raises(LoadError, match=why):
        list(rows)


@pytest.mark.parametrize("change", [grow, write_to, replace_file])
def test_a_file_of_a_list_that_changed_before_its_turn_is_refused(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_bytes(TEXT)
    first, second = find_sources([str(tmp_path)])
    assert list(rows_of(first)) == ROWS
    change(tmp_path / "b.txt")
    with pytest.raises(LoadError, match="while it was read"):
        list(rows_of(second))


@pytest.mark.parametrize("name", ["", "*.txt", "**/*.txt"])
def test_a_file_that_comes_into_a_folder_is_noticed_at_the_end(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    for place in ("b.txt", "deep/c.txt"):
        (folder / place).write_bytes(TEXT)
    listing = Listing.of([str(folder / name), "-"])
    listing.check()
    for place in (".hidden.txt", "deep/.a.txt", "a.csv" if name else "_started.txt"):
        (folder / place).write_bytes(TEXT)
    listing.check()
    came = folder / "a.txt"
    came.write_bytes(TEXT)
    with pytest.raises(LoadError, match=f"1 file came while the input was read, {came} first"):
        listing.check()
    listing.check([str(came)])
    listing.with_files([str(came)]).check()
    for path in sorted(folder.rglob("*.*")):  # what is gone was read
        path.unlink()
        (listing.with_files([str(came)])).check()
    (folder / "deep").rmdir()
    folder.rmdir()
    listing.check()


def test_files_that_are_named_may_have_new_neighbours(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_bytes(TEXT)
    listing = Listing.of([str(tmp_path / "a[1].txt")])
    (tmp_path / "a1.txt").write_bytes(TEXT)
    listing.check()
