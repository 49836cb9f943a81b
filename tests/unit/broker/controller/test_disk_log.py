"""The metadata log on disk: what was appended is read again, by the next controller too."""

from __future__ import annotations

import contextlib
import errno
import shutil
import threading
import uuid
from pathlib import Path

import pytest

from kafkaprod.broker.controller.controller import Controller
from kafkaprod.broker.controller.disk_log import DiskMetadataLog
from kafkaprod.broker.metadata.log import MetadataBatch
from kafkaprod.broker.metadata.records import ConfigRecord, NoOpRecord, PartitionRecord, TopicRecord, encode
from kafkaprod.broker.storage.errors import LogError
from kafkaprod.broker.storage.log.group_commit import interval, never
from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.disk import Disk
from tests.support.broker.fixtures_log import FaultyDisk, UnsyncedDisk
from tests.support.clock import ManualClock

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
TOPIC_ID = uuid.UUID(int=5)
BATCHES = [
    MetadataBatch(0, 0, (NoOpRecord(),)),
    MetadataBatch(
        1,
        0,
        (
            TopicRecord(name="t", topic_id=TOPIC_ID),
            PartitionRecord(topic_id=TOPIC_ID, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=0),
        ),
    ),
    MetadataBatch(3, 1, (NoOpRecord(),)),
]


def open_log(path: Path) -> DiskMetadataLog:
    return DiskMetadataLog(str(path), CLUSTER_ID, interval(1_000), Disk(), ManualClock())


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_is_read_as_it_was_written(tmp_path: Path, is_clean: bool) -> None:
    log = open_log(tmp_path / "c")
    for batch in BATCHES:
        assert log.append(batch) == [encode(record) for record in batch.records]
    assert list(log.batches()) == BATCHES
    if is_clean:
        log.close()
    del log
    assert list(open_log(tmp_path / "c").batches()) == BATCHES


def test_a_batch_must_follow_the_end(tmp_path: Path) -> None:
    log = open_log(tmp_path / "c")
    with pytest.raises(CorruptDataError, match="batch at 1 does not follow the end 0"):
        log.append(BATCHES[1])


class Starts:
    """Controllers one after the other on one directory, which take snapshots often."""

    def __init__(self, path: Path, snapshot_bytes: int = 1_500) -> None:
        self.path = path
        self.snapshot_bytes = snapshot_bytes
        self.log: DiskMetadataLog | None = None

    def start(self, disk: Disk | None = None) -> Controller:
        clock = ManualClock()
        self.log = DiskMetadataLog(
            str(self.path), CLUSTER_ID, never(), disk or UnsyncedDisk(), clock, self.snapshot_bytes
        )
        return Controller(
            CLUSTER_ID,
            session_timeout_ms=1_000,
            seed=0,
            now_ms=0,
            batches=tuple(self.log.batches()),
            snapshot=self.log.snapshot,
            persist=lambda batch, _: self.log and self.log.append(batch),
        )

    def grow(self, controller: Controller, count: int, prefix: str = "t") -> None:
        """Set options one by one, of few topics, and write the snapshots that are due."""
        assert self.log is not None
        for number in range(count):
            record = ConfigRecord(resource_type=2, resource_name=f"{prefix}{number % 7}", name="n", value=str(number))
            with contextlib.suppress(LogError):
                controller._append([record], 0)
            self.log.maybe_snapshot(controller.context.image, controller.log.last_epoch, controller.cut_log)
            self.log.await_snapshot()

    def snapshots(self) -> list[Path]:
        """The snapshots, the newest first."""
        return sorted(self.path.glob("__cluster_metadata-0/*.checkpoint"), reverse=True)

    def stop(self) -> None:
        assert self.log is not None
        self.log.close()


def content(controller: Controller) -> dict[str, object]:
    """The image, without what each start adds."""
    image = dict(vars(controller.context.image))
    return {name: value for name, value in image.items() if name not in ("end_offset", "settings_offset")}


@pytest.mark.parametrize("is_clean", [True, False])
def test_log_is_cut_by_snapshots_and_a_start_reads_the_newest(tmp_path: Path, is_clean: bool) -> None:
    starts = Starts(tmp_path / "c")
    controller = starts.start()
    starts.grow(controller, 300)
    newest, older = (int(path.name[:20]) for path in starts.snapshots())
    assert 0 < older < newest < controller.log.end_offset
    assert controller.log.start_offset == newest
    segments = sorted(int(path.stem) for path in starts.path.glob("__cluster_metadata-0/*.log"))
    assert segments == [older, newest]
    expected, end_offset, epoch = content(controller), controller.log.end_offset, controller.epoch
    if is_clean:
        starts.stop()
    del controller
    starts.log = None
    again = starts.start()
    assert content(again) == expected
    assert (again.log.start_offset, again.log.end_offset, again.epoch) == (newest, end_offset + 1, epoch + 1)
    starts.grow(again, 300, "u")
    assert int(starts.snapshots()[0].name[:20]) > newest


def test_no_snapshot_is_taken_of_a_log_that_has_not_grown(tmp_path: Path) -> None:
    starts = Starts(tmp_path / "c", 1 << 20)
    starts.grow(starts.start(), 100)
    assert starts.snapshots() == []


def test_log_grows_while_the_system_gives_no_thread_for_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    starts = Starts(tmp_path / "c")
    controller = starts.start()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        starts.grow(controller, 300)
    assert "no snapshot of the metadata is taken: can't start new thread" in caplog.text
    assert starts.snapshots() == []
    starts.grow(controller, 300, "u")
    assert starts.snapshots() != []
    starts.stop()


def test_damaged_snapshot_is_named_and_the_one_before_serves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    starts = Starts(tmp_path / "c")
    controller = starts.start()
    starts.grow(controller, 300)
    expected = content(controller)
    starts.stop()
    newest, _ = starts.snapshots()
    newest.write_bytes(newest.read_bytes()[:-1])
    again = starts.start()
    assert content(again) == expected
    assert f"snapshot {newest} of the metadata" in caplog.text
    starts.grow(again, 300, "u")
    expected = content(again)
    starts.stop()
    assert content(starts.start()) == expected


def test_start_without_a_readable_snapshot_is_refused(tmp_path: Path) -> None:
    starts = Starts(tmp_path / "c")
    starts.grow(starts.start(), 300)
    starts.stop()
    for path in starts.snapshots():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptDataError, match=f"no snapshot of what was before: snapshot {starts.snapshots()[0]}"):
        starts.start()
    for path in starts.snapshots():
        path.unlink()
    with pytest.raises(CorruptDataError, match="Restore the directory from a copy"):
        starts.start()


def test_log_that_a_power_cut_left_shorter_than_the_snapshot_continues_at_its_end(tmp_path: Path) -> None:
    starts = Starts(tmp_path / "c")
    controller = starts.start()
    starts.grow(controller, 300)
    starts.stop()
    newest = int(starts.snapshots()[0].name[:20])
    for path in starts.path.glob("__cluster_metadata-0/*.log"):
        if int(path.stem) == newest:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:100])
    again = starts.start()
    assert (again.log.start_offset, again.log.end_offset) == (newest, newest + 1)
    starts.grow(again, 300, "u")
    expected = content(again)
    starts.stop()
    assert content(starts.start()) == expected


def grown(path: Path, calls: int | None = None) -> tuple[Starts, dict[str, object], int]:
    """A log that grew by many snapshots on a disk that takes so many calls; what it says, and how many there were."""
    starts, disk = Starts(path, 600), FaultyDisk()
    controller = starts.start(disk)
    first = len(disk.calls)
    if calls is not None:
        disk.fail = lambda _name, _path: errno.EIO if len(disk.calls) > first + calls else None
    starts.grow(controller, 100)
    return starts, content(controller), len(disk.calls) - first


def test_disk_that_fails_at_any_call_loses_nothing_that_was_written(tmp_path: Path) -> None:
    """As a crash there would: all later calls fail, too."""
    whole, _, count = grown(tmp_path / "whole")
    assert len(whole.snapshots()) == 2
    for calls in range(0, count, 31):
        starts, expected, _ = grown(tmp_path / str(calls), calls)
        found = Starts(tmp_path / f"{calls} found", 600)
        shutil.copytree(starts.path, found.path)
        assert content(found.start()) == expected, calls
        found.stop()
