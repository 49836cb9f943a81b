"""Time index: Kafka's bytes, lookups, the slot kept for closing."""

from __future__ import annotations

import struct
from pathlib import Path

from kafkaprod.broker.storage.index.time_index import TimeIndex, TimestampOffset
from kafkaprod.broker.storage.lru_cache import LruCache
from kafkaprod.storage.disk import Disk

BASE = 5_000_000_000


def make_index(path: Path, max_bytes: int = 120) -> TimeIndex:
    index = TimeIndex(Disk(), str(path / "0.timeindex"), BASE, max_bytes, LruCache(4))
    index.file.activate()
    return index


def test_entries_are_timestamp_and_relative_offset(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    index.maybe_append(1000, BASE + 4)
    index.file.close()
    assert (tmp_path / "0.timeindex").read_bytes() == struct.pack(">qi", 1000, 4)


def test_only_larger_timestamps_are_added(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    index.maybe_append(-1, BASE)
    index.maybe_append(1000, BASE + 4)
    index.maybe_append(1000, BASE + 6)
    index.maybe_append(900, BASE + 8)
    assert index.file.count == 1


def test_lookup_finds_the_entry_at_or_below_the_timestamp(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    assert index.lookup(5) == TimestampOffset(-1, BASE)
    index.maybe_append(1000, BASE + 4)
    index.maybe_append(2000, BASE + 7)
    assert index.lookup(999) == TimestampOffset(-1, BASE)
    assert index.lookup(1000) == TimestampOffset(1000, BASE + 4)
    assert index.lookup(1999) == TimestampOffset(1000, BASE + 4)
    assert index.lookup(5000) == TimestampOffset(2000, BASE + 7)


def test_full_index_has_one_slot_left_for_the_entry_added_on_close(tmp_path: Path) -> None:
    index = make_index(tmp_path, max_bytes=24)
    index.maybe_append(1000, BASE + 4)
    assert index.is_full
    index.maybe_append(2000, BASE + 7)
    index.maybe_append(3000, BASE + 9)
    assert index.file.count == 2


def test_truncate_drops_entries_at_or_above_the_offset(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    for step in (1, 2, 3):
        index.maybe_append(step * 1000, BASE + step)
    index.truncate_to(BASE + 2)
    assert index.last == TimestampOffset(1000, BASE + 1)
