"""Reading a .log file in windows: batches across their ends, and files that are cut meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.log_files import file_name
from kafkaprod.broker.storage.producers.producer_state import ProducerState
from kafkaprod.broker.storage.recovery.recovery import DiskImage, recover
from kafkaprod.broker.storage.recovery.segment_scan import scan_segment, start_scan
from kafkaprod.storage.batch_checks import find_batch_from
from kafkaprod.storage.disk import open_for_read
from kafkaprod.storage.segment_bytes import FileBytes, SegmentBytes
from tests.campaigns.images_log import place
from tests.support.broker.fixtures_log import make_batch
from tests.support.broker.memory_bytes import MemoryBytes

CONFIG = LogConfig()
BATCHES = 40


def log_of(directory: Path, *, value_bytes: int = 300) -> tuple[Path, list[int]]:
    """Write a .log file; return it and where its batches end."""
    data, ends, offset = bytearray(), [], 0
    for _ in range(BATCHES):
        batch, offset = place(make_batch([b"v" * value_bytes]), offset)
        data += batch
        ends.append(len(data))
    path = directory / file_name(0, ".log")
    path.write_bytes(data)
    return path, ends


def file_bytes(path: Path, window_bytes: int) -> FileBytes:
    return FileBytes(open_for_read(str(path)), window_bytes)


def valid_bytes(data: SegmentBytes) -> int:
    scan = start_scan(0, CONFIG)
    scan_segment(data, scan, ProducerState())
    return scan.valid_bytes


@pytest.mark.parametrize("window_bytes", [61, 100, 371, 5000, 1 << 20])
def test_batches_larger_than_a_window_are_read(tmp_path: Path, window_bytes: int) -> None:
    path, ends = log_of(tmp_path)
    assert valid_bytes(file_bytes(path, window_bytes)) == ends[-1]
    content = path.read_bytes()
    spoiled = bytearray(content)
    spoiled[ends[6] - 1] ^= 1
    path.write_bytes(spoiled)
    assert valid_bytes(file_bytes(path, window_bytes)) == valid_bytes(MemoryBytes(spoiled)) == ends[5]
    for position in range(ends[5], ends[5] + 80):
        found = find_batch_from(file_bytes(path, window_bytes), position, 6, 0)
        assert found is not None
        assert found.base_offset == 7
    assert find_batch_from(file_bytes(path, window_bytes), ends[-2] + 1, 0, 0) is None


class CutImage(DiskImage):
    """Another program cuts each .log file as soon as the first bytes were read."""

    def __init__(self, directory: Path, size: int) -> None:
        super().__init__(str(directory))
        self._directory_path = directory
        self._size = size

    def read_log(self, name: str) -> SegmentBytes:
        path = self._directory_path / name
        data = file_bytes(path, 1000)
        data.at(0, 1)
        os.truncate(path, self._size)
        return data


@pytest.mark.parametrize("whole", [0, 3, 25])
def test_a_file_that_is_cut_while_it_is_read_is_a_torn_one(tmp_path: Path, whole: int) -> None:
    path, ends = log_of(tmp_path)
    image = CutImage(tmp_path, ends[whole] - 1)
    found = recover(image, CONFIG, is_clean=False, recovery_point=0, log_start_offset=0)
    in_first_window = sum(end <= 1000 for end in ends)
    kept = max(whole, in_first_window)
    assert found.log_end_offset == kept
    assert found.truncations == {path.name: ends[kept - 1]}
    assert found.damage is None


def test_a_clean_log_that_is_cut_while_it_is_read_is_checked_as_a_whole(tmp_path: Path) -> None:
    path, ends = log_of(tmp_path)
    image = CutImage(tmp_path, ends[9] + 5)
    assert recover(image, CONFIG, is_clean=True, recovery_point=0, log_start_offset=0).log_end_offset == 10
    assert path.stat().st_size == ends[9] + 5


def test_the_size_of_a_window_bounds_the_memory_for_a_damaged_length(tmp_path: Path) -> None:
    path = tmp_path / file_name(0, ".log")
    batch, _ = place(make_batch([b"v"]), 0)
    length = 200 << 20
    path.write_bytes(batch[:8] + (length - 12).to_bytes(4, "big") + batch[12:])
    os.truncate(path, length)
    asked = []

    class Watched(FileBytes):
        def at(self, position: int, length: int) -> memoryview:
            asked.append(length)
            return super().at(position, length)

    assert valid_bytes(Watched(open_for_read(str(path)))) == 0
    assert max(asked) <= 61
