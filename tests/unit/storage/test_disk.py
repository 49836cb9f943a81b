"""The journal of a disk that does not sync, what a power cut makes of it, and derived files that stay as they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkaprod.broker.embedding.power_cut import cut_power
from kafkaprod.storage.disk import UnsyncedDisk, read_file, update_file, write_at


def test_a_power_cut_leaves_at_least_what_was_synced(tmp_path: Path) -> None:
    journal, path = str(tmp_path / "synced"), str(tmp_path / "00.log")
    disk = UnsyncedDisk(journal)
    file = disk.create(path)
    write_at(disk, file, b"a" * 100, 0)
    disk.fdatasync(file)
    write_at(disk, file, b"b" * 100, 100)
    sizes = set()
    for seed in range(30):
        write_at(disk, file, b"b" * 100, 100)
        lost = cut_power(str(tmp_path), journal, seed)
        sizes.add(os.path.getsize(path))
        assert os.path.getsize(path) == 200 - lost.get(path, 0)
    assert min(sizes) >= 100
    assert len(sizes) > 10


def test_a_log_that_was_never_synced_may_go_wholly(tmp_path: Path) -> None:
    path = tmp_path / "00.log"
    sizes = set()
    for seed in range(50):
        path.write_bytes(b"ab")
        cut_power(str(tmp_path), str(tmp_path / "missing"), seed)
        sizes.add(path.stat().st_size)
    assert sizes == {0, 1, 2}


def test_an_exchanged_log_is_whole(tmp_path: Path) -> None:
    journal, path = str(tmp_path / "synced"), str(tmp_path / "00.log")
    disk = UnsyncedDisk(journal)
    write_at(disk, disk.create(path + ".swap"), b"a" * 100, 0)
    disk.rename(path + ".swap", path)
    assert [cut_power(str(tmp_path), journal, seed) for seed in range(10)] == [{}] * 10


def test_a_file_with_the_same_content_is_not_written(tmp_path: Path) -> None:
    path = str(tmp_path / "00.index")
    for content, is_written in ((b"one", True), (b"one", False), (b"two", True)):
        before = os.stat(path).st_ino if os.path.exists(path) else None
        update_file(UnsyncedDisk(), path, content)
        assert (os.stat(path).st_ino != before) is is_written
        assert Path(path).read_bytes() == content


def test_a_file_of_another_size_is_not_read(tmp_path: Path) -> None:
    """Indexes of a process that was killed are 10 MiB of zeros each: reading them took most of a restart."""
    path = tmp_path / "00.index"
    path.write_bytes(b"one")
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # a hole; reading it would need more memory than there is
    before = path.stat().st_ino
    update_file(UnsyncedDisk(), str(path), b"one")
    assert path.read_bytes() == b"one"
    assert path.stat().st_ino == before  # cut, not written again


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 10_000])
def test_files_of_all_sizes_are_read_whole(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    assert read_file(str(tmp_path / "file")) == content
