"""Several log directories: where partitions are, how they move, and what a directory that fails takes with it."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkaprod.broker.storage.errors import DirectoryLockedError, LogDirectoryFailedError, LogError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.log_dirs import LogDirs
from kafkaprod.broker.storage.log.opening import open_log_dirs
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.log.watermark import WatermarkRule
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.storage.disk import Disk
from kafkaprod.structs import TopicPartition
from tests.support.broker.fixtures_log import (
    ORDERS,
    TOPIC_ID,
    FaultyDisk,
    make_batch,
    make_environment,
    read_all,
)

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100, segment_index_bytes=4096)
COMPACTED = LogConfig(
    segment_bytes=400, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, segment_index_bytes=4096
)


MEMORY = Path("/dev/shm")


class Crash(BaseException):
    """The process ends here."""


def crash_at(number: int) -> Callable[[str, str], int | None]:
    """End the process before the call of a number."""
    calls = itertools.count()

    def fail(_name: str, _path: str) -> int | None:
        if next(calls) >= number:
            raise Crash
        return None

    return fail


def failing_in(path: Path, code: int = errno.EIO, after: int = 0) -> Callable[[str, str], int | None]:
    """Fail the calls in a directory, but for some at first."""
    calls = itertools.count()
    return lambda _, called: code if called.startswith(str(path)) and next(calls) >= after else None


class Rig:
    """Two directories that can be opened again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.paths = [str(path / "a"), str(path / "b")]

    def open(self, disk: Disk | None = None, *, count: int = 2) -> LogDirs:
        return open_log_dirs(self.paths[:count], make_environment(disk), defaults=SMALL)

    def take_away(self, number: int) -> None:
        """Leave something in a directory's place that is none."""
        shutil.move(self.paths[number], self.paths[number] + "-away")
        Path(self.paths[number]).write_text("no directory")

    def bring_back(self, number: int) -> None:
        """Undo `take_away`."""
        Path(self.paths[number]).unlink()
        shutil.move(self.paths[number] + "-away", self.paths[number])

    def names(self, number: int) -> list[str]:
        """The partition directories in one of them, without their random parts."""
        found = Path(self.paths[number]).glob("orders-0*")
        return sorted(
            name.partition(".")[0] + name[name.rfind("-") :] if "." in name else name for name in map(_name, found)
        )


def _name(path: Path) -> str:
    return path.name


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.fixture
def fast_path() -> Iterator[Path]:
    """A directory in memory, where there is one: a hundred starts remove thousands of files."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as path:
        yield Path(path)


def fill(log: PartitionLog, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        log.append(make_batch((b"%d" % number, b"x" * 40), producer_id=7, epoch=0, sequence=2 * number), 0)


def content(log: PartitionLog) -> list[tuple[int, bytes]]:
    return [(batch.base_offset, batch.data) for batch in read_all(log)]


def run_moves(log_dirs: LogDirs, max_bytes: int = 300) -> None:
    for _ in range(200):
        if not log_dirs.moves:
            return
        log_dirs.step(max_bytes)
    raise AssertionError("the move does not end")


def test_new_partitions_go_where_the_fewest_are_and_internal_ones_to_the_first(rig: Rig) -> None:
    log_dirs = rig.open()
    for number in range(5):
        log_dirs.create(TopicPartition("orders", number), TOPIC_ID)
    log_dirs.create(TopicPartition("inner", 0), TOPIC_ID, is_internal=True)
    log_dirs.create(TopicPartition("inner", 1), TOPIC_ID, is_internal=True)
    assert [directory.log_count for directory in log_dirs.online] == [5, 2]
    assert log_dirs.partition_count("orders") == 5
    assert set(log_dirs.partitions) == {*(TopicPartition("orders", n) for n in range(5)), *log_dirs.first.partitions}
    assert log_dirs.close()
    again = rig.open()
    assert [directory.log_count for directory in again.online] == [5, 2]
    assert again.close()


def test_partition_moves_while_it_is_written_and_read(rig: Rig) -> None:
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID)
    fill(log, 20)
    assert log.directory.startswith(rig.paths[0])
    assert log_dirs.move(log, rig.paths[1]) == ErrorCode.NONE
    (move,) = log_dirs.moves
    assert move.lag == log.log_end_offset
    written = 20
    while log_dirs.moves:
        before = content(log)
        fill(log, 1, written)
        written += 1
        log_dirs.step(1_000)
        assert content(log)[: len(before)] == before
        assert written < 100
    assert rig.names(0) == ["orders-0-delete"]
    assert rig.names(1) == ["orders-0"]
    assert log.directory == str(Path(rig.paths[1]) / "orders-0")
    assert log_dirs.get(ORDERS) is log
    assert (log.log_end_offset, len(content(log))) == (2 * written, written)
    with pytest.raises(LogError):  # the producer's sequence is known: this is neither the next one nor a repetition
        fill(log, 1, written + 5)
    fill(log, 1, written)
    log_dirs.purge_deleted()
    assert rig.names(0) == []
    expected = content(log)
    assert log_dirs.close()
    again = rig.open()
    assert content(again.partitions[ORDERS]) == expected
    fill(again.partitions[ORDERS], 1, written + 1)
    assert again.close()


def test_log_start_and_epochs_move_with_the_records(rig: Rig) -> None:
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID)
    fill(log, 6)
    log.begin_leader_epoch(3)
    log.append(make_batch(), 5)
    log.begin_leader_epoch(7)
    log.delete_records(3)  # within the second batch
    expected, epochs = content(log), [log.end_offset_for_epoch(epoch) for epoch in range(9)]
    log_dirs.move(log, rig.paths[1])
    run_moves(log_dirs)
    assert (log.log_start_offset, content(log)) == (3, expected)
    assert [log.end_offset_for_epoch(epoch) for epoch in range(9)] == epochs
    del log_dirs, log  # a crash
    again = rig.open().partitions[ORDERS]
    assert (again.log_start_offset, content(again)) == (3, expected)


def test_records_that_go_while_their_copy_is_made_are_gone_there(rig: Rig) -> None:
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID)
    fill(log, 20)
    log_dirs.move(log, rig.paths[1])
    log_dirs.step(100)
    log.delete_records(30)
    log.config = LogConfig(segment_bytes=400, retention_bytes=0)
    log.delete_old_segments()
    expected = content(log)
    run_moves(log_dirs)
    assert log.log_start_offset >= 30
    assert content(log) == expected
    assert log.config.retention_bytes == 0


@pytest.mark.parametrize("is_cut", [False, True])
def test_compacted_partition_moves_with_its_gaps(rig: Rig, is_cut: bool) -> None:
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID, COMPACTED)
    for number in range(20):
        log.append(make_batch((b"x" * 90,), keys=(b"%d" % (number % 3),)), 0)
    assert log.compact(is_forced=True)
    expected = content(log)
    assert len(expected) < 20
    log.config = SMALL  # no longer compacted, but with gaps
    log_dirs.move(log, rig.paths[1])
    log_dirs.step(100)
    if is_cut:
        log_dirs.close()
        log_dirs = rig.open()
        log = log_dirs.partitions[ORDERS]
    run_moves(log_dirs, 100)
    assert log.directory.startswith(rig.paths[1])
    assert content(log) == expected
    assert log.log_end_offset == 20


def test_partition_that_moves_is_not_compacted(rig: Rig) -> None:
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID, COMPACTED)
    for number in range(20):
        log.append(make_batch((b"x" * 90,), keys=(b"%d" % (number % 3),)), 0)
    log_dirs.move(log, rig.paths[1])
    log_dirs.step(100)
    assert log_dirs.compact(lambda: False) == 0
    run_moves(log_dirs)
    assert log_dirs.compact(lambda: False) > 0


def test_no_move_is_made_while_a_compaction_runs(rig: Rig) -> None:
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID)
    fill(log, 3)
    log_dirs.move(log, rig.paths[1])
    with log.compaction:
        log_dirs.step(10_000)
        assert log_dirs.step(10_000) == 0
        assert log_dirs.moves
    log_dirs.step(10_000)
    assert not log_dirs.moves


class Moving:
    """A partition of two segments that moves on a disk whose calls can fail, from the same files each time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        kept = Rig(path / "kept")
        kept.path.mkdir()
        log_dirs = kept.open()
        log = log_dirs.create(ORDERS, TOPIC_ID)
        fill(log, 4)
        log.delete_records(1)
        self.expected = content(log)
        assert log_dirs.close()

    def begin(self, number: int) -> tuple[Rig, LogDirs, FaultyDisk]:
        rig, disk = Rig(self.path / str(number)), FaultyDisk()
        shutil.copytree(self.path / "kept", rig.path)
        return rig, rig.open(disk), disk

    def after_crash(self, rig: Rig) -> Rig:
        """What another process finds; this one still has its locks."""
        found = Rig(rig.path / "found")
        for name in "ab":
            shutil.copytree(rig.path / name, found.path / name)
        return found

    def check(self, rig: Rig, more: int = 0) -> int:
        """Check the records, also when the moves are over; return how many moves continue."""
        log_dirs = rig.open()
        log = log_dirs.partitions[ORDERS]
        count = len(log_dirs.moves)
        for _ in range(2):
            assert content(log)[: len(self.expected)] == self.expected
            assert (len(content(log)), log.log_start_offset) == (len(self.expected) + more, 1)
            run_moves(log_dirs)
        assert sorted(name for place in (0, 1) for name in rig.names(place) if name == "orders-0") == ["orders-0"]
        fill(log, 1, 4 + more)
        assert log_dirs.close()
        return count


def move_on(log_dirs: LogDirs, path: str) -> bool:
    """Move the partition; whether it got there."""
    log = log_dirs.partitions[ORDERS]
    try:
        log_dirs.move(log, path)
        run_moves(log_dirs, 200)
    except (Crash, LogError):
        return False
    return log.directory.startswith(path)


def test_crash_anywhere_in_a_move_loses_nothing_and_doubles_nothing(fast_path: Path) -> None:
    moving, counts, is_done, number = Moving(fast_path), set(), False, 0
    while not is_done:
        rig, log_dirs, disk = moving.begin(number)
        disk.fail = crash_at(number)
        is_done = move_on(log_dirs, rig.paths[1]) and not log_dirs.moves
        counts.add(moving.check(moving.after_crash(rig)))
        number += 1
    assert number > 30
    assert counts == {0, 1}


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_error_anywhere_in_the_target_leaves_the_partition_where_it_is(fast_path: Path, code: int) -> None:
    moving, is_done, number = Moving(fast_path), False, 0
    while not is_done:
        rig, log_dirs, disk = moving.begin(number)
        disk.fail = failing_in(rig.path / "b", code, number)
        is_done = move_on(log_dirs, rig.paths[1])
        disk.fail = None
        assert bool(log_dirs.offline_paths) == (code == errno.EIO and not is_done)
        fill(log_dirs.partitions[ORDERS], 1, 4)
        assert log_dirs.close() != bool(log_dirs.offline_paths)
        moving.check(rig, 1)
        number += 2
    assert number > 30


def test_move_back_or_to_the_same_place_ends_the_move(rig: Rig) -> None:
    rig.paths.append(str(rig.path / "c"))
    log_dirs = rig.open(count=3)
    log = log_dirs.create(ORDERS, TOPIC_ID)
    fill(log, 10)
    assert log_dirs.move(log, rig.paths[1]) == ErrorCode.NONE
    log_dirs.step(100)
    (first,) = log_dirs.moves
    assert log_dirs.move(log, rig.paths[1]) == ErrorCode.NONE
    assert list(log_dirs.moves) == [first]
    assert log_dirs.move(log, rig.paths[2]) == ErrorCode.NONE
    (second,) = log_dirs.moves
    assert second.target.path == rig.paths[2]
    assert rig.names(1) == ["orders-0-delete"]
    assert log_dirs.move(log, rig.paths[0]) == ErrorCode.NONE
    assert not log_dirs.moves
    log_dirs.purge_deleted()
    assert (rig.names(1), rig.names(2)) == ([], [])
    assert log_dirs.move(log, str(rig.path / "d")) == ErrorCode.LOG_DIR_NOT_FOUND
    long = log_dirs.create(TopicPartition("t" * 240, 0), TOPIC_ID)
    assert log_dirs.move(long, rig.paths[0]) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_no_move_begins_without_room(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID)
    monkeypatch.setattr(type(log), "size_bytes", 1 << 60)
    assert log_dirs.move(log, rig.paths[1]) == ErrorCode.KAFKA_STORAGE_ERROR
    assert rig.names(1) == []


def test_deleted_partition_takes_its_copy_along(rig: Rig) -> None:
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID)
    fill(log, 10)
    log_dirs.move(log, rig.paths[1])
    log_dirs.step(100)
    log_dirs.delete(ORDERS)
    assert (list(log_dirs.moves), rig.names(0), rig.names(1)) == ([], ["orders-0-delete"], ["orders-0-delete"])
    assert log_dirs.close()
    again = rig.open()
    assert (again.partitions, list(again.moves), rig.names(0), rig.names(1)) == ({}, [], [], [])


def test_directory_of_a_partition_to_come_is_remembered(rig: Rig) -> None:
    log_dirs = rig.open()
    assert log_dirs.wish(TopicPartition("orders", 0), rig.paths[1]) == ErrorCode.NONE
    assert log_dirs.wish(TopicPartition("orders", 1), "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
    assert log_dirs.create(ORDERS, TOPIC_ID).directory.startswith(rig.paths[1])


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_wish_counts_for_the_partition_that_comes_next_and_no_later_one(rig: Rig, times: int) -> None:
    rig.paths.append(str(rig.path / "c"))
    log_dirs = rig.open(count=3)
    for number in range(times):
        wished, emptiest = rig.paths[1 + number % 2], rig.paths[0]
        log_dirs.wish(ORDERS, wished)
        assert log_dirs.create(ORDERS, TOPIC_ID).directory.startswith(wished)
        log_dirs.delete(ORDERS)
        assert log_dirs.create(ORDERS, TOPIC_ID).directory.startswith(emptiest)
        log_dirs.delete(ORDERS)
    log_dirs.close()


def test_copy_that_a_power_cut_left_longer_than_the_log_is_cut(rig: Rig) -> None:
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID)
    fill(log, 10)
    log_dirs.move(log, rig.paths[1])
    for _ in range(5):
        log_dirs.step(200)
    assert log_dirs.close()
    shutil.rmtree(Path(rig.paths[0]) / "orders-0")
    shorter = rig.open(count=1)
    fill(shorter.create(ORDERS, TOPIC_ID), 2)
    assert shorter.close()
    again = rig.open()
    log = again.partitions[ORDERS]
    for number in range(8):  # as many as the copy had
        log.append(make_batch((b"other %d" % number, b"y" * 40)), 0)
    expected = content(log)
    run_moves(again)
    assert log.directory.startswith(rig.paths[1])
    assert content(log) == expected


def test_damaged_copy_begins_again(rig: Rig) -> None:
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID)
    fill(log, 10)
    log_dirs.move(log, rig.paths[1])
    for _ in range(5):
        log_dirs.step(200)
    assert log_dirs.close()
    (file,) = Path(rig.paths[1]).glob("orders-0.*-future/00000000000000000000.log")
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    again = rig.open()
    run_moves(again)
    assert len(content(again.partitions[ORDERS])) == 10
    assert again.partitions[ORDERS].directory.startswith(rig.paths[1])


def test_copy_of_another_topic_or_in_the_same_directory_goes(rig: Rig) -> None:
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID)
    fill(log, 3)
    log_dirs.move(log, rig.paths[1])
    (copy,) = Path(rig.paths[1]).glob("orders-0.*")
    shutil.copytree(copy, Path(rig.paths[0]) / copy.name)
    (copy / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    del log_dirs, log
    again = rig.open()
    assert not again.moves
    again.purge_deleted()
    assert (rig.names(0), rig.names(1)) == (["orders-0"], [])


def test_copy_without_a_partition_is_left_alone(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID)
    log_dirs.move(log, rig.paths[1])
    assert log_dirs.close()
    shutil.rmtree(Path(rig.paths[0]) / "orders-0")
    assert not rig.open().moves
    assert rig.names(1) == ["orders-0-future"]
    assert "left as it is" in caplog.text


def test_of_two_directories_of_a_partition_the_whole_one_is_kept(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    log_dirs = rig.open()
    fill(log_dirs.create(ORDERS, TOPIC_ID), 3)
    assert log_dirs.close()
    shutil.copytree(Path(rig.paths[0]) / "orders-0", Path(rig.paths[1]) / "orders-0")
    longer = rig.open(count=1)
    fill(longer.partitions[ORDERS], 1, 3)
    assert longer.close()
    again = rig.open()
    assert again.partitions[ORDERS].log_end_offset == 8
    assert rig.names(1) == ["orders-0-stray"]
    assert "set aside" in caplog.text


def test_partitions_of_an_older_topic_of_the_name_are_set_aside(rig: Rig) -> None:
    log_dirs = rig.open()
    log_dirs.create(TopicPartition("orders", 1), TOPIC_ID)
    log_dirs.create(ORDERS, TOPIC_ID)
    assert log_dirs.close()
    metadata = Path(rig.paths[1]) / "orders-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    os.utime(metadata, (1, 1))
    again = rig.open()
    assert again.topic_ids == {"orders": TOPIC_ID}
    assert rig.names(1) == ["orders-0-stray"]


def test_directory_that_fails_takes_only_its_own_partitions_along(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    rig.paths.append(str(rig.path / "c"))
    log_dirs = rig.open(disk, count=3)
    kept, lost = (log_dirs.create(TopicPartition("orders", number), TOPIC_ID) for number in (0, 1))
    fill(kept, 2)
    fill(lost, 2)
    disk.fail = failing_in(rig.path / "b")
    with pytest.raises(LogError):
        fill(lost, 1, 2)
    disk.fail = None  # given up is given up
    assert log_dirs.offline_paths == [rig.paths[1]]
    assert "KAFKA_STORAGE_ERROR until the broker starts again" in caplog.text
    for use in (
        lambda: fill(lost, 1, 2),
        lambda: lost.read(0, 100),
        lambda: lost.read(lost.log_end_offset, 100),
        lambda: lost.find_timestamp(0),
    ):
        with pytest.raises(LogDirectoryFailedError, match="offline"):
            use()
    fill(kept, 1, 2)
    assert len(content(kept)) == 3
    for path in rig.paths[1:]:  # with one offline, no partition moves to any
        assert log_dirs.move(kept, path) == ErrorCode.KAFKA_STORAGE_ERROR
    assert not log_dirs.create(TopicPartition("orders", 2), TOPIC_ID).directory.startswith(rig.paths[1])
    log_dirs.flush_due()
    log_dirs.checkpoint()
    log_dirs.apply_retention()
    log_dirs.purge_deleted()
    assert not log_dirs.close()
    again = rig.open(count=3)
    assert (again.offline_paths, len(content(again.partitions[TopicPartition("orders", 1)]))) == ([], 2)


def test_full_disk_fails_no_directory(rig: Rig) -> None:
    disk = FaultyDisk()
    log_dirs = rig.open(disk)
    _, log = (log_dirs.create(TopicPartition("orders", number), TOPIC_ID) for number in (0, 1))
    disk.capacity = 0
    with pytest.raises(LogError):
        fill(log, 1)
    disk.capacity = None
    fill(log, 1)
    assert log_dirs.offline_paths == []


def test_broker_starts_without_a_directory_that_cannot_be_opened(rig: Rig) -> None:
    log_dirs = rig.open()
    keys = [TopicPartition("orders", number) for number in range(2)]
    for key in keys:
        fill(log_dirs.create(key, TOPIC_ID), 1)
    assert log_dirs.close()
    Path(rig.paths[1]).rename(rig.path / "elsewhere")
    Path(rig.paths[1]).write_text("no directory")
    without = rig.open()
    assert (without.offline_paths, set(without.partitions)) == ([rig.paths[1]], {keys[0]})
    assert [without.may_be_unopened(key) for key in keys] == [False, True]
    assert not without.close()
    Path(rig.paths[1]).unlink()
    (rig.path / "elsewhere").rename(rig.paths[1])
    again = rig.open()
    assert [again.may_be_unopened(key) for key in keys] == [False, False]
    assert len(content(again.partitions[keys[1]])) == 1


def test_first_directory_cannot_be_missed(rig: Rig) -> None:
    Path(rig.paths[0]).write_text("no directory")
    with pytest.raises(OSError):
        rig.open()


def test_directories_of_others_and_repeated_ones_are_refused(rig: Rig) -> None:
    with pytest.raises(ConfigError, match="named twice"):
        open_log_dirs([rig.paths[0], rig.paths[0]], make_environment())
    log_dirs = rig.open()
    with pytest.raises(DirectoryLockedError):
        open_log_dirs([str(rig.path / "c"), rig.paths[1]], make_environment())
    log_dirs.close()
    with pytest.raises(ConfigError, match="belongs to"):
        open_log_dirs([str(rig.path / "c"), rig.paths[1]], make_environment())


def append_in_epoch(log: PartitionLog, epoch: int, count: int) -> None:
    for number in range(count):
        log.append(make_batch((b"%d of epoch %d" % (number, epoch), b"y" * 40)), epoch)


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("copied", [8, 20])
@pytest.mark.parametrize("kept", [0, 3, 14, 20])
@pytest.mark.parametrize("added", [0, 30])
def test_a_copy_follows_a_log_that_is_cut(rig: Rig, kept: int, copied: int, added: int, *, restarts: bool) -> None:
    """As a follower's is by a new leader: what comes in place of the old records is of another epoch."""
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID)
    append_in_epoch(log, 0, 5)
    append_in_epoch(log, 3, 5)
    assert log_dirs.move(log, rig.paths[1]) == ErrorCode.NONE
    log_dirs.moves.may_complete = lambda _, __: False
    while next(iter(log_dirs.moves)).lag > 20 - copied:
        log_dirs.step(100)
    log.truncate_to(kept)
    append_in_epoch(log, 5, added)
    if restarts:
        log_dirs.close()
        log_dirs = rig.open()
        log = log_dirs.partitions[ORDERS]
    expected = content(log)
    log_dirs.moves.may_complete = lambda _, __: True
    run_moves(log_dirs)
    assert log.directory.startswith(rig.paths[1])
    append_in_epoch(log, 7, 1)
    assert content(log)[: len(expected)] == expected
    whole = content(log)
    assert log_dirs.close()
    again = rig.open()
    assert content(again.partitions[ORDERS]) == whole
    assert [again.partitions[ORDERS].end_offset_for_epoch(epoch) for epoch in (0, 3)] == [
        log.end_offset_for_epoch(epoch) for epoch in (0, 3)
    ]
    assert again.close()


@pytest.mark.parametrize("offset", [3, 60])
def test_a_copy_follows_a_log_that_begins_again(rig: Rig, offset: int) -> None:
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID)
    append_in_epoch(log, 0, 10)
    log_dirs.move(log, rig.paths[1])
    log_dirs.step(300)
    log.restart_at(offset)
    append_in_epoch(log, 4, 3)
    expected = content(log)
    run_moves(log_dirs)
    assert (content(log), log.log_start_offset, log.log_end_offset) == (expected, offset, offset + 6)
    assert log_dirs.close()


def test_a_move_completes_when_it_may_and_one_that_ends_says_so(rig: Rig) -> None:
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID)
    fill(log, 10)
    asked: list[tuple[TopicPartition, uuid.UUID]] = []
    given_up: list[TopicPartition] = []

    def may_complete(key: TopicPartition, directory: uuid.UUID) -> bool:
        asked.append((key, directory))
        return False

    log_dirs.moves.may_complete = may_complete
    log_dirs.moves.on_given_up = given_up.append
    log_dirs.move(log, rig.paths[1])
    for _ in range(20):
        log_dirs.step(1_000)
    first, second = log_dirs.online_ids
    assert set(asked) == {(ORDERS, second)}
    assert log_dirs.directory_id_of(ORDERS) == first
    assert not given_up
    log_dirs.move(log, rig.paths[0])
    assert given_up == [ORDERS]
    log_dirs.move(log, rig.paths[1])
    log_dirs.moves.may_complete = lambda _, __: True
    run_moves(log_dirs)
    assert (log_dirs.directory_id_of(ORDERS), given_up) == (second, [ORDERS])
    log_dirs.close()


def test_a_move_into_a_directory_that_fails_says_that_it_has_ended(rig: Rig) -> None:
    disk = FaultyDisk()
    log_dirs = rig.open(disk)
    log = log_dirs.create(ORDERS, TOPIC_ID)
    fill(log, 10)
    log_dirs.move(log, rig.paths[1])
    given_up: list[tuple[TopicPartition, bool]] = []
    log_dirs.moves.on_given_up = lambda key: given_up.append((key, bool(log_dirs.moves)))
    _, second = log_dirs.online_ids
    disk.fail = failing_in(Path(rig.paths[1]))
    log_dirs.step(1_000)
    assert given_up == [(ORDERS, False)]
    assert log_dirs.failed_ids == (second,)
    log_dirs.close()


def test_a_moved_replica_keeps_its_high_watermark_over_a_crash(rig: Rig) -> None:
    """Not its log's end, which other replicas may not have."""
    log_dirs = rig.open()
    log = log_dirs.create(ORDERS, TOPIC_ID)
    log.watermark.rule = WatermarkRule.REPLICATED
    append_in_epoch(log, 0, 10)
    log.update_high_watermark(4)
    log_dirs.move(log, rig.paths[1])
    run_moves(log_dirs)
    crashed = Rig(rig.path / "crashed")
    shutil.copytree(rig.paths[0], crashed.paths[0])
    shutil.copytree(rig.paths[1], crashed.paths[1])
    again = crashed.open()
    assert again.saved_high_watermark(ORDERS) == 4
    again.close()
    log_dirs.close()


def test_replicas_are_made_where_the_metadata_says(rig: Rig) -> None:
    log_dirs = rig.open()
    first, second = log_dirs.online_ids
    keys = [TopicPartition("orders", number) for number in range(3)]
    for key in keys[:2]:
        log_dirs.create_replica(key, TOPIC_ID, SMALL, second)
    log_dirs.create_replica(keys[2], TOPIC_ID, SMALL, uuid.UUID(int=77))
    assert [log_dirs.directory_id_of(key) for key in keys] == [second, second, first]
    assert log_dirs.create_replica(keys[0], TOPIC_ID, SMALL, first) is log_dirs.partitions[keys[0]]
    log_dirs.close()


def test_a_wish_for_a_replica_is_a_move_once_it_is_there(rig: Rig) -> None:
    log_dirs = rig.open()
    first, second = log_dirs.online_ids
    assert log_dirs.wish(ORDERS, rig.paths[1]) == ErrorCode.NONE
    log = log_dirs.create_replica(ORDERS, TOPIC_ID, SMALL, first)
    assert log.directory.startswith(rig.paths[0])
    fill(log, 3)
    run_moves(log_dirs)
    assert log_dirs.directory_id_of(ORDERS) == second
    log_dirs.close()


def test_a_replica_that_may_be_on_a_missing_disk_is_not_made_again(rig: Rig) -> None:
    log_dirs = rig.open()
    first, second = log_dirs.online_ids
    other = TopicPartition("orders", 1)
    log_dirs.create_replica(ORDERS, TOPIC_ID, SMALL, second)
    log_dirs.close()
    rig.take_away(1)
    log_dirs = rig.open()
    for directory in (second, uuid.UUID(int=1)):
        with pytest.raises(LogDirectoryFailedError):
            log_dirs.create_replica(ORDERS, TOPIC_ID, SMALL, directory)
    assert log_dirs.create_replica(other, TOPIC_ID, SMALL, first).log_end_offset == 0, "a new one can be made"
    log_dirs.close()


def test_a_replica_whose_copy_alone_is_there_is_not_made_again(rig: Rig) -> None:
    """The metadata may name the new directory already, while the records are on the disk that is gone."""
    log_dirs = rig.open()
    first, second = log_dirs.online_ids
    log = log_dirs.create_replica(ORDERS, TOPIC_ID, SMALL, second)
    fill(log, 5)
    log_dirs.moves.may_complete = lambda _, __: False
    log_dirs.move(log, rig.paths[0])
    log_dirs.step(10_000)
    log_dirs.close()
    rig.take_away(1)
    log_dirs = rig.open()
    with pytest.raises(LogDirectoryFailedError):
        log_dirs.create_replica(ORDERS, TOPIC_ID, SMALL, first)
    log_dirs.close()
    rig.bring_back(1)
    log_dirs = rig.open()
    assert log_dirs.create_replica(ORDERS, TOPIC_ID, SMALL, first).log_end_offset == 10
    log_dirs.close()


def test_a_crash_before_the_old_place_is_given_up_leaves_the_partition_in_the_new_one(rig: Rig) -> None:
    for source, target in ((0, 1), (1, 0)):
        disk = FaultyDisk()
        log_dirs = rig.open(disk)
        log = log_dirs.partitions.get(ORDERS) or log_dirs.create(ORDERS, TOPIC_ID)
        append_in_epoch(log, 0, 3)
        expected = content(log)
        assert log.directory.startswith(rig.paths[source] + "/")
        log_dirs.move(log, rig.paths[target])
        disk.fail = lambda name, path: errno.EACCES if name == "rename" and path.endswith("-delete") else None
        run_moves(log_dirs)
        log_dirs.close()
        assert "orders-0" in rig.names(source)
        assert "orders-0" in rig.names(target)
        log_dirs = rig.open()
        log = log_dirs.partitions[ORDERS]
        assert log.directory.startswith(rig.paths[target] + "/")
        assert content(log) == expected
        log_dirs.close()


def test_a_replica_that_had_a_log_is_not_made_again_beside_a_missing_disk(rig: Rig) -> None:
    """The metadata names the new directory, and the move was given up: even its copy is gone."""
    log_dirs = rig.open()
    first, second = log_dirs.online_ids
    log = log_dirs.create_replica(ORDERS, TOPIC_ID, SMALL, second)
    fill(log, 5)
    log_dirs.move(log, rig.paths[0])
    log_dirs.move(log, rig.paths[1])
    log_dirs.close()
    rig.take_away(1)
    log_dirs = rig.open()
    with pytest.raises(LogDirectoryFailedError):
        log_dirs.create_replica(ORDERS, TOPIC_ID, SMALL, first, is_old=True)
    log_dirs.close()
    rig.bring_back(1)
    log_dirs = rig.open()
    assert log_dirs.create_replica(ORDERS, TOPIC_ID, SMALL, first, is_old=True).log_end_offset == log.log_end_offset
    log_dirs.close()


@pytest.mark.parametrize("missing", [1, 2])
def test_a_topic_made_again_without_a_disk_is_kept_when_the_disk_is_back(rig: Rig, missing: int) -> None:
    """No metadata is known at the start of a cluster's broker: of two topics of a name the newer one is right."""
    rig.paths.append(str(rig.path / "c"))
    log_dirs = rig.open(count=3)
    other = TopicPartition("orders", 1)
    for key in (ORDERS, other):
        fill(log_dirs.create_replica(key, TOPIC_ID, SMALL, log_dirs.online_ids[missing]), 9)
    log_dirs.close()
    rig.take_away(missing)
    log_dirs = rig.open(count=3)
    ids, new_id = log_dirs.online_ids, uuid.UUID(int=7)
    log = log_dirs.create_replica(ORDERS, new_id, SMALL, ids[1])
    fill(log, 5)
    end = log.log_end_offset
    log_dirs.close()
    rig.bring_back(missing)
    log_dirs = rig.open(count=3)
    assert log_dirs.topic_id("orders") == new_id
    assert {key: log.log_end_offset for key, log in log_dirs.partitions.items()} == {ORDERS: end}
    assert log_dirs.directory_id_of(ORDERS) == ids[1]
    log_dirs.close()


def test_a_topic_is_made_again_while_the_disk_of_the_former_one_has_failed(rig: Rig) -> None:
    log_dirs = rig.open()
    first, second = log_dirs.online_ids
    keys = [ORDERS, TopicPartition("orders", 1)]
    for key in keys:
        fill(log_dirs.create_replica(key, TOPIC_ID, SMALL, second), 9)
    log_dirs.fail(rig.paths[1])
    new_id = uuid.UUID(int=7)
    for key in keys:
        with pytest.raises(LogDirectoryFailedError):
            log_dirs.create_replica(key, TOPIC_ID, SMALL, first)
        fill(log_dirs.create_replica(key, new_id, SMALL, first), 5)
    ends = {key: log.log_end_offset for key, log in log_dirs.partitions.items()}
    assert set(ends) == set(keys)
    log_dirs.close()
    log_dirs = rig.open()
    assert (log_dirs.topic_id("orders"), [log_dirs.directory_id_of(key) for key in keys]) == (new_id, [first] * 2)
    assert {key: log.log_end_offset for key, log in log_dirs.partitions.items()} == ends
    log_dirs.close()


def test_of_two_logs_of_a_replica_the_one_that_was_followed_later_is_kept(rig: Rig) -> None:
    """It was taken away and given back while a disk was away: the end of the old one was never acknowledged."""
    log_dirs = rig.open()
    first, second = log_dirs.online_ids
    fill(log_dirs.create_replica(ORDERS, TOPIC_ID, SMALL, second), 9)
    log_dirs.close()
    rig.take_away(1)
    log_dirs = rig.open()
    log = log_dirs.create_replica(ORDERS, TOPIC_ID, SMALL, first)
    fill(log, 2)
    log.append(make_batch((b"later",)), 3)
    end = log.log_end_offset
    log_dirs.close()
    rig.bring_back(1)
    log_dirs = rig.open()
    assert log_dirs.directory_id_of(ORDERS) == first
    assert {key: (log.latest_epoch, log.log_end_offset) for key, log in log_dirs.partitions.items()} == {
        ORDERS: (3, end)
    }
    log_dirs.close()


@pytest.mark.parametrize("failed", [[1], [2], [1, 2], [1, 2, 3], [3, 1]])
def test_any_number_of_directories_may_fail_and_all_are_named(rig: Rig, failed: list[int]) -> None:
    rig.paths = [str(rig.path / name) for name in "abcd"]
    log_dirs = rig.open(count=4)
    ids = log_dirs.online_ids
    for number in failed:
        log_dirs.fail(rig.paths[number])
    assert set(log_dirs.failed_ids) == {ids[number] for number in failed}
    assert log_dirs.offline_paths == [rig.paths[number] for number in sorted(failed)]
    assert log_dirs.online_ids == tuple(ids[number] for number in range(4) if number not in failed)
    log_dirs.close()
