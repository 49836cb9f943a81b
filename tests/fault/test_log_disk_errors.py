"""Full disks, failing syncs, short writes: the client hears of it, nothing unsynced is acknowledged, reads go on."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkaprod.broker.storage.errors import LogError, PartitionFencedError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.group_commit import each, never
from kafkaprod.broker.storage.log.log_dir import CLEAN_SHUTDOWN, open_log_dir
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.structs import TopicPartition
from tests.support.broker.fixtures_log import (
    ORDERS,
    TOPIC_ID,
    FaultyDisk,
    failing,
    make_batch,
    make_environment,
    open_log,
    read_all,
)

SMALL = LogConfig(segment_bytes=700, index_interval_bytes=100)


def append_acknowledged(log: PartitionLog, count: int) -> list[int]:
    """Append and commit up to `count` batches; the offsets that were acknowledged."""
    acknowledged = []
    for _ in range(count):
        try:
            result = log.append(make_batch([b"v" * 50]), 0)
            log.commit(result.last_offset + 1)
        except LogError:
            continue
        acknowledged.append(result.base_offset)
    return acknowledged


def test_full_disk_is_told_the_client_and_space_freed_is_used_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path, environment=make_environment(disk))
    log.append(make_batch(), 0)
    disk.capacity = 30
    with pytest.raises(LogError) as caught:
        log.append(make_batch([b"v" * 100]), 0)
    assert caught.value.code == 56
    assert [batch.base_offset for batch in read_all(log)] == [0]
    disk.capacity = None
    assert log.append(make_batch(), 0).base_offset == 1
    assert log.fence_reason is None
    assert not log.close()  # the next start must check the log
    assert open_log(tmp_path, is_clean=False).log_end_offset == 2


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_error_at_any_write_loses_nothing_acknowledged(tmp_path: Path, code: int) -> None:
    calls = count_calls(tmp_path / "count", "pwrite")
    assert calls > 50
    for failed in range(calls):
        directory = tmp_path / str(failed)
        directory.mkdir()
        disk = FaultyDisk(failing_once("pwrite", failed, code))
        log = open_log_or_none(directory, disk)
        acknowledged = append_acknowledged(log, 25) if log else []
        if log:
            log.close()
        survivor = open_log(directory, SMALL, is_clean=False)
        found = [batch.base_offset for batch in read_all(survivor)]
        assert found == list(range(len(found))), failed
        assert set(acknowledged) <= set(found), failed
        survivor.close()


@pytest.mark.parametrize("name", ["create", "truncate", "rename", "sync_dir", "unlink", "fdatasync"])
def test_error_at_any_other_call_loses_nothing_acknowledged(tmp_path: Path, name: str) -> None:
    for failed in range(count_calls(tmp_path / "count", name)):
        directory = tmp_path / str(failed)
        directory.mkdir()
        log = open_log_or_none(directory, FaultyDisk(failing_once(name, failed, errno.EIO)))
        acknowledged = append_acknowledged(log, 25) if log else []
        if log:
            log.close()
        survivor = open_log(directory, SMALL, is_clean=False)
        found = [batch.base_offset for batch in read_all(survivor)]
        assert found == list(range(len(found))), failed
        assert set(acknowledged) <= set(found), failed
        assert survivor.damage is None
        survivor.close()


def test_failed_sync_fences_and_acknowledges_nothing_and_is_not_repeated(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path, environment=make_environment(disk, each()))
    assert append_acknowledged(log, 2) == [0, 1]
    disk.fail = failing("fdatasync", ".log")
    result = log.append(make_batch(), 0)
    with pytest.raises(PartitionFencedError):
        log.commit(result.last_offset + 1)
    syncs = len(disk.names("fdatasync"))
    disk.fail = None
    for _ in range(2):
        with pytest.raises(PartitionFencedError):
            log.commit(result.last_offset + 1)
        with pytest.raises(PartitionFencedError):
            log.append(make_batch(), 0)
    assert log.high_watermark == 2  # the record that was not synced is not shown either
    assert [batch.base_offset for batch in read_all(log)] == [0, 1]
    assert log.recovery_point == 2
    assert not log.close()
    assert len(disk.names("fdatasync")) == syncs
    assert open_log(tmp_path, is_clean=False, recovery_point=2).log_end_offset == 3


def test_failed_sync_at_a_roll_fences(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path, SMALL, make_environment(disk))
    disk.fail = failing("fdatasync", ".log")
    for _ in range(20):
        try:
            log.append(make_batch([b"v" * 50]), 0)
        except PartitionFencedError:
            break
    assert log.fence_reason is not None
    assert not log.close()


def test_waiting_appends_share_syncs(tmp_path: Path) -> None:
    disk = SlowSyncDisk()
    log = open_log(tmp_path, environment=make_environment(disk, each()))
    threads = [threading.Thread(target=append_acknowledged, args=(log, 1)) for _ in range(10)]
    for thread in threads:
        thread.start()
    assert disk.first_sync_began.wait(30)
    disk.wait_until_appended(log, 10)
    disk.may_sync.set()
    for thread in threads:
        thread.join(30)
    assert log.high_watermark == 10
    assert 1 <= disk.names("fdatasync").count("00000000000000000000.log") <= 2


def test_failed_group_sync_acknowledges_none_of_its_members(tmp_path: Path) -> None:
    disk = SlowSyncDisk(failing("fdatasync", ".log"))
    log = open_log(tmp_path, environment=make_environment(disk, each()))
    acknowledged: list[int] = []
    threads = [threading.Thread(target=lambda: acknowledged.extend(append_acknowledged(log, 1))) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert disk.first_sync_began.wait(30)
    disk.wait_until_appended(log, 5)
    disk.may_sync.set()
    for thread in threads:
        thread.join(30)
    assert acknowledged == []
    assert log.fence_reason is not None


def test_write_error_leaves_no_clean_shutdown_marker(tmp_path: Path) -> None:
    disk = FaultyDisk()
    directory = open_log_dir(str(tmp_path / "data"), make_environment(disk))
    log = directory.create(ORDERS, TOPIC_ID)
    other = directory.create(TopicPartition("other", 0), TOPIC_ID)
    other.append(make_batch(), 0)
    disk.capacity = 0
    with pytest.raises(LogError):
        log.append(make_batch(), 0)
    disk.capacity = None
    assert not directory.close()
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN).exists()


def test_disk_that_fills_up_during_shutdown_leaves_no_clean_shutdown_marker(tmp_path: Path) -> None:
    disk = FaultyDisk()
    directory = open_log_dir(str(tmp_path / "data"), make_environment(disk, never()))
    directory.create(ORDERS, TOPIC_ID).append(make_batch(), 0)
    disk.capacity = 0
    assert not directory.close()
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN).exists()
    disk.capacity = None
    reopened = open_log_dir(str(tmp_path / "data"), make_environment())
    assert reopened.partitions[ORDERS].log_end_offset == 1


class SlowSyncDisk(FaultyDisk):
    """A disk whose syncs of a log wait until they may."""

    def __init__(self, fail: Callable[[str, str], int | None] | None = None) -> None:
        super().__init__()
        self._inner_fail = fail
        self.first_sync_began = threading.Event()
        self.may_sync = threading.Event()
        self.fail = self._wait_or_fail

    def wait_until_appended(self, log: PartitionLog, count: int) -> None:
        """Return when `count` batches are in the log."""
        for _ in range(30_000):
            if log.log_end_offset >= count:
                return
            threading.Event().wait(0.001)
        raise AssertionError(f"only {log.log_end_offset} of {count} appends")

    def _wait_or_fail(self, name: str, path: str) -> int | None:
        if name == "fdatasync" and path.endswith(".log"):
            self.first_sync_began.set()
            assert self.may_sync.wait(60)
        return self._inner_fail(name, path) if self._inner_fail else None


def open_log_or_none(directory: Path, disk: FaultyDisk) -> PartitionLog | None:
    """A log on a faulty disk, None if the fault hits while it opens."""
    try:
        return open_log(directory, SMALL, make_environment(disk, each()), is_clean=False)
    except OSError:
        return None


def count_calls(directory: Path, name: str) -> int:
    """How many calls of a kind the workload makes when nothing fails."""
    directory.mkdir()
    disk = FaultyDisk()
    log = open_log_or_none(directory, disk)
    assert log is not None
    append_acknowledged(log, 25)
    log.close()
    return len(disk.names(name))


def failing_once(name: str, number: int, code: int) -> Callable[[str, str], int | None]:
    """Fail the call number `number` of a kind, from 0, with `code`."""
    seen = -1

    def fail(called: str, path: str) -> int | None:
        nonlocal seen
        seen += called == name
        return code if called == name and seen == number else None

    return fail
