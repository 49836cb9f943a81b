"""Offset index: Kafka's bytes, lookups, preallocation."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from kafkaprod.broker.storage.index.offset_index import OffsetIndex, OffsetPosition
from kafkaprod.broker.storage.lru_cache import LruCache
from kafkaprod.storage.disk import Disk
from tests.support.broker.fixtures_log import FaultyDisk, failing

BASE = 5_000_000_000  # offsets above int32: entries must be relative


def make_index(path: Path, disk: Disk | None = None, max_bytes: int = 83) -> OffsetIndex:
    index = OffsetIndex(disk or Disk(), str(path / "0.index"), BASE, max_bytes, LruCache(4))
    index.file.activate()
    return index


def test_active_file_is_preallocated_to_whole_entries_and_trimmed_on_close(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    assert os.path.getsize(index.file.path) == 80
    index.append(BASE + 3, 100)
    index.append(BASE + 9, 300)
    index.file.close()
    assert (tmp_path / "0.index").read_bytes() == struct.pack(">iiii", 3, 100, 9, 300)


def test_lookup_finds_the_entry_at_or_below_the_offset(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    assert index.lookup(BASE + 5) == OffsetPosition(BASE, 0)
    for relative, position in ((3, 100), (9, 300), (20, 900)):
        index.append(BASE + relative, position)
    expected = {0: (0, 0), 2: (0, 0), 3: (3, 100), 8: (3, 100), 9: (9, 300), 19: (9, 300), 20: (20, 900), 99: (20, 900)}
    for relative, (entry, position) in expected.items():
        assert index.lookup(BASE + relative) == OffsetPosition(BASE + entry, position)


def test_lookup_by_position_finds_the_first_entry_at_or_after_it(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    for relative, position in ((3, 100), (9, 300)):
        index.append(BASE + relative, position)
    assert index.first_at_or_after_position(0) == OffsetPosition(BASE + 3, 100)
    assert index.first_at_or_after_position(101) == OffsetPosition(BASE + 9, 300)
    assert index.first_at_or_after_position(301) is None


def test_truncate_drops_entries_at_or_above_the_offset(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    for relative in (3, 9, 20):
        index.append(BASE + relative, relative * 10)
    index.truncate_to(BASE + 9)
    assert index.last == OffsetPosition(BASE + 3, 30)
    index.append(BASE + 5, 50)
    assert index.last == OffsetPosition(BASE + 5, 50)


def test_offsets_must_increase(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    index.append(BASE + 3, 100)
    with pytest.raises(ValueError, match="not above"):
        index.append(BASE + 3, 200)


def test_index_is_full_when_its_preallocated_file_is(tmp_path: Path) -> None:
    index = make_index(tmp_path, max_bytes=16)
    index.append(BASE + 1, 1)
    assert not index.is_full
    index.append(BASE + 2, 2)
    assert index.is_full


def test_reopened_index_keeps_its_entries_and_takes_more(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    index.append(BASE + 3, 100)
    index.file.close()
    index = make_index(tmp_path)
    index.append(BASE + 9, 300)
    assert [index.entry(number).offset for number in range(index.file.count)] == [BASE + 3, BASE + 9]


def test_failed_write_adds_no_entry(tmp_path: Path) -> None:
    index = make_index(tmp_path, FaultyDisk(failing("pwrite", after=1)))
    index.append(BASE + 3, 100)
    with pytest.raises(OSError, match="Errno 5"):
        index.append(BASE + 9, 300)
    assert index.file.count == 1
