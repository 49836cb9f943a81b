"""One segment: index entries by Kafka's rule, rolling rules, reads, checks of bytes at rest."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from kafkaprod.broker.storage.errors import PartitionFencedError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.index.index_rule import IndexRule
from kafkaprod.broker.storage.log.segment import Segment
from kafkaprod.broker.storage.lru_cache import LruCache
from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.batch_header import parse_header
from kafkaprod.storage.disk import Disk
from kafkaprod.structs import INT32_MAX
from tests.campaigns.images_log import place
from tests.support.broker.fixtures_log import NOW_MS, FaultyDisk, failing, make_batch, split_batches
from tests.support.processes import open_descriptors

CONFIG = LogConfig(segment_bytes=1000, segment_ms=500, index_interval_bytes=200, segment_index_bytes=96)


def make_segment(path: Path, disk: Disk | None = None, config: LogConfig = CONFIG, base: int = 0) -> Segment:
    segment = Segment(disk or Disk(), str(path), base, 0, True, LruCache(4))
    segment.activate(config, IndexRule(base, config.index_interval_bytes), NOW_MS)
    return segment


def append(segment: Segment, offset: int, timestamp: int = NOW_MS, size: int = 31, count: int = 1) -> int:
    """Append a batch of 100 bytes (for size 31) and return the next offset."""
    batch, following = place(make_batch([b"v" * size] * count, timestamps=[timestamp] * count), offset)
    segment.append(memoryview(batch), parse_header(batch))
    return following


def test_batch_is_indexed_when_more_than_the_interval_lies_before_it(tmp_path: Path) -> None:
    segment = make_segment(tmp_path)
    for offset in range(8):
        append(segment, offset, NOW_MS + offset)
    assert segment.size_bytes == 800
    assert segment.active_indexes is not None
    offsets = segment.active_indexes.offsets
    # batches 0..2 are 300 bytes: batch 3 is the first with more than 200 bytes since the start
    assert [offsets.entry(index) for index in range(offsets.file.count)] == [(3, 300), (6, 600)]
    times = segment.active_indexes.times
    assert [times.entry(index) for index in range(times.file.count)] == [(NOW_MS + 3, 3), (NOW_MS + 6, 6)]


def test_closed_segment_gets_a_last_time_entry(tmp_path: Path) -> None:
    segment = make_segment(tmp_path)
    append(segment, 0, NOW_MS + 5)
    append(segment, 1, NOW_MS)
    segment.close()
    assert (tmp_path / "00000000000000000000.timeindex").read_bytes() == struct.pack(">qi", NOW_MS + 5, 0)
    assert (tmp_path / "00000000000000000000.index").read_bytes() == b""


def test_segment_rolls_when_the_batch_would_exceed_its_size(tmp_path: Path) -> None:
    segment = make_segment(tmp_path)
    for offset in range(5):
        append(segment, offset)
    assert not segment.should_roll(CONFIG, 500, 5, NOW_MS, NOW_MS)
    assert segment.should_roll(CONFIG, 501, 5, NOW_MS, NOW_MS)


def test_segment_rolls_by_record_time_and_never_because_the_clock_jumped(tmp_path: Path) -> None:
    segment = make_segment(tmp_path)
    append(segment, 0, NOW_MS)
    assert not segment.should_roll(CONFIG, 10, 1, NOW_MS + 500, NOW_MS + 10_000_000)
    assert segment.should_roll(CONFIG, 10, 1, NOW_MS + 501, NOW_MS)
    assert not segment.should_roll(CONFIG, 10, 1, NOW_MS - 10_000, NOW_MS - 10_000)


def test_segment_rolls_by_wall_time_where_records_have_none(tmp_path: Path) -> None:
    segment = make_segment(tmp_path)
    assert not segment.should_roll(CONFIG, 10, 0, -1, NOW_MS + 501)
    append(segment, 0, -1)
    assert not segment.should_roll(CONFIG, 10, 1, -1, NOW_MS + 500)
    assert segment.should_roll(CONFIG, 10, 1, -1, NOW_MS + 501)


def test_segment_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    config = replace(CONFIG, segment_bytes=1 << 20, index_interval_bytes=0, segment_index_bytes=24)
    segment = make_segment(tmp_path, config=config)
    append(segment, 0, NOW_MS)
    assert not segment.should_roll(config, 100, 1, NOW_MS, NOW_MS)
    append(segment, 1, NOW_MS + 1)  # one entry: the time index has only its reserved slot left
    assert segment.should_roll(config, 100, 2, NOW_MS, NOW_MS)


def test_segment_rolls_before_a_relative_offset_overflows(tmp_path: Path) -> None:
    segment = make_segment(tmp_path, base=7)
    assert not segment.should_roll(CONFIG, 10, 7 + INT32_MAX, NOW_MS, NOW_MS)
    assert segment.should_roll(CONFIG, 10, 8 + INT32_MAX, NOW_MS, NOW_MS)


def test_slice_outlives_the_deletion_of_its_file(tmp_path: Path) -> None:
    segment = make_segment(tmp_path)
    append(segment, 0)
    segment.close()
    records = segment.read(0, 0, 100)
    segment.forget_files()
    os.unlink(tmp_path / "00000000000000000000.log")
    other = (tmp_path / "other").open("wb")  # would get the descriptor's number if it were free
    assert split_batches(records.read())[0].base_offset == 0
    other.close()


def test_descriptor_is_closed_with_its_last_reference(tmp_path: Path) -> None:
    segment = make_segment(tmp_path)
    append(segment, 0)
    before = len(open_descriptors())
    segment.close()
    segment.forget_files()
    assert len(open_descriptors()) < before


def test_flipped_bit_in_a_record_at_rest_is_never_served(tmp_path: Path) -> None:
    segment = make_segment(tmp_path)
    for offset in range(4):
        append(segment, offset)
    segment.close()
    with (tmp_path / "00000000000000000000.log").open("r+b") as file:
        file.seek(250)
        file.write(b"!")
    cold = Segment(Disk(), str(tmp_path), 0, 400, True, LruCache(4))
    assert cold.read(0, 0, 400).length == 200
    with pytest.raises(CorruptDataError, match="byte 200"):
        cold.read(200, 2, 100)
    assert cold.read(300, 3, 100).length == 100


def test_short_writes_leave_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for path, disk in ((tmp_path / "a", Disk()), (tmp_path / "b", FaultyDisk(bytes_per_write=1))):
        segment = make_segment(path, disk)
        for offset in range(8):
            append(segment, offset)
        segment.close()
    for name in os.listdir(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_partial_batch_is_cut_off_after_a_failed_write(tmp_path: Path) -> None:
    disk = FaultyDisk(capacity=150)
    segment = make_segment(tmp_path, disk)
    append(segment, 0)
    with pytest.raises(OSError, match="No space"):
        append(segment, 1)
    assert os.path.getsize(tmp_path / "00000000000000000000.log") == 100 == segment.size_bytes


def test_partial_batch_that_cannot_be_cut_off_fences(tmp_path: Path) -> None:
    disk = FaultyDisk(capacity=150)
    segment = make_segment(tmp_path, disk)
    append(segment, 0)
    disk.fail = failing("truncate", ".log")
    with pytest.raises(PartitionFencedError, match="cannot cut"):
        append(segment, 1)


def test_failed_index_write_loses_no_record(tmp_path: Path) -> None:
    segment = make_segment(tmp_path, FaultyDisk(failing("pwrite", ".index")))
    for offset in range(8):
        append(segment, offset)
    assert not segment.has_whole_indexes
    assert segment.active_indexes is not None
    located = segment.locate(7, segment.active_indexes)
    assert located is not None
    assert located[0] == 700
