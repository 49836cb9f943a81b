"""Snapshots of the metadata on the disk: their layout, and what of a damaged one is noticed."""

from __future__ import annotations

import errno
import uuid
from pathlib import Path

import pytest

from kafkaprod.broker.controller.snapshot_file import SnapshotFile, find_snapshots, read_snapshot, write_snapshot
from kafkaprod.broker.metadata.log import MetadataSnapshot
from kafkaprod.broker.metadata.records import TopicRecord
from kafkaprod.broker.storage.format.records import iterate_records
from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.batch_header import parse_header
from tests.support.broker.fixtures_log import NOW_MS, FaultyDisk, failing

NAME = "00000000000000000042-0000000007.checkpoint"


def snapshot(count: int = 3) -> MetadataSnapshot:
    topics = [TopicRecord(name=f"topic-{number}", topic_id=uuid.UUID(int=number)) for number in range(1, count + 1)]
    return MetadataSnapshot(42, 7, tuple(topics))


def test_snapshot_has_kafkas_layout(tmp_path: Path) -> None:
    disk = FaultyDisk()
    file = write_snapshot(disk, str(tmp_path), snapshot(1_500), NOW_MS)
    assert file == SnapshotFile(42, 7, str(tmp_path / NAME))
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    view, batches = memoryview((tmp_path / NAME).read_bytes()), []
    while len(view):
        header = parse_header(view)
        batches.append((header, list(iterate_records(view[: header.size_bytes]))))
        view = view[header.size_bytes :]
    assert [header.is_control for header, _ in batches] == [True, False, False, True]
    assert [header.base_offset for header, _ in batches] == [0, 1, 1_001, 1_501]
    assert {header.partition_leader_epoch for header, _ in batches} == {7}
    (first,), (last,) = batches[0][1], batches[-1][1]
    assert (first.key, first.value) == (b"\0\0\0\3", b"\0\0" + NOW_MS.to_bytes(8, "big") + b"\0")
    assert (last.key, last.value) == (b"\0\0\0\4", b"\0\0\0")
    assert read_snapshot(file) == snapshot(1_500)


@pytest.mark.parametrize("count", [0, 1, 999, 1_000, 1_001, 2_000, 2_001, 3_500])
def test_snapshots_of_any_number_of_records_are_read_back(tmp_path: Path, count: int) -> None:
    assert read_snapshot(write_snapshot(FaultyDisk(), str(tmp_path), snapshot(count), NOW_MS)) == snapshot(count)


def test_file_is_synced_before_it_has_its_name(tmp_path: Path) -> None:
    disk = FaultyDisk()
    write_snapshot(disk, str(tmp_path), snapshot(), NOW_MS)
    kinds = [name for name, _ in disk.calls if name in ("fdatasync", "rename", "sync_dir")]
    assert kinds == ["fdatasync", "rename", "sync_dir"]


@pytest.mark.parametrize("call", ["pwrite", "fdatasync", "rename"])
def test_what_a_failure_leaves_is_no_snapshot_and_goes_at_the_next_start(tmp_path: Path, call: str) -> None:
    with pytest.raises(OSError):
        write_snapshot(FaultyDisk(failing(call, code=errno.ENOSPC)), str(tmp_path), snapshot(), NOW_MS)
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.part"]
    assert find_snapshots(FaultyDisk(), str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_newest_snapshot_comes_first(tmp_path: Path) -> None:
    for end_offset, epoch in ((9, 1), (100, 2), (100, 3)):
        write_snapshot(FaultyDisk(), str(tmp_path), MetadataSnapshot(end_offset, epoch, ()), NOW_MS)
    (tmp_path / "00000000000000000000.log").touch()
    (tmp_path / "bootstrap.checkpoint").touch()
    found = find_snapshots(FaultyDisk(), str(tmp_path))
    assert [(file.end_offset, file.epoch) for file in found] == [(100, 3), (100, 2), (9, 1)]


def damage_of(file: SnapshotFile) -> str:
    """What is said of a snapshot that cannot be read; nothing of one that says what was written."""
    try:
        found = read_snapshot(file)
    except CorruptDataError as error:
        return str(error)
    return "" if found == snapshot() else "it says something else"


def test_damage_anywhere_is_noticed_and_named(tmp_path: Path) -> None:
    file = write_snapshot(FaultyDisk(), str(tmp_path), snapshot(), NOW_MS)
    data = Path(file.path).read_bytes()
    unnoticed = []
    for position in range(len(data)):
        Path(file.path).write_bytes(data[:position])
        assert file.path in damage_of(file)
        Path(file.path).write_bytes(data[:position] + bytes([data[position] ^ 0x55]) + data[position + 1 :])
        said = damage_of(file)
        assert not said or file.path in said
        unnoticed += [] if said else [position]
    assert len(unnoticed) == 3 * 4, "the leader epoch of each batch, which nothing reads, is outside of its checksum"
    Path(file.path).write_bytes(data + data[-20:])
    assert "damaged at byte" in damage_of(file)
