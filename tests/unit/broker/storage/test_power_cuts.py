"""What a power cut at any moment leaves of a data directory: everything that was answered, and files that are whole.

Each test runs one operation under `power_cuts` and looks at all that could be left, at any call of it.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath

import pytest

from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.log_files import COMPACTION, LEADER_EPOCHS
from kafkaprod.broker.storage.format.records import iterate_records
from kafkaprod.broker.storage.log.directory_files import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    directory_name,
)
from kafkaprod.broker.storage.log.group_commit import each, never
from kafkaprod.broker.storage.log.log_dir import CLEAN_SHUTDOWN, LogDir, open_log_dir
from kafkaprod.broker.storage.log.opening import open_log_dirs
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.recovery.checkpoints import parse_offsets
from kafkaprod.storage.disk import Disk, replace_file_durably
from kafkaprod.structs import TopicPartition
from tests.support.broker.fixtures_log import (
    ORDERS,
    TOPIC_ID,
    log_files,
    make_batch,
    make_environment,
    read_all,
    split_batches,
)
from tests.support.power_cuts import Image, power_cuts, restore

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100, segment_index_bytes=480)
COMPACTED = dataclasses.replace(SMALL, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
MEMORY = Path("/dev/shm")
OTHERS = [TopicPartition("orders", number) for number in range(1, 4)]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory in memory, where there is one: each test starts from dozens of directories."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as path:
        yield Path(path)


def open_dir(path: Path, *, syncs: bool = False, config: LogConfig = SMALL) -> LogDir:
    environment = make_environment(Disk(), each() if syncs else never())
    return open_log_dir(str(path / "data"), environment, defaults=config)


def fill(log: PartitionLog, count: int, first: int = 0) -> None:
    """Append batches of one producer, whose leader epoch rises every ten."""
    for number in range(first, first + count):
        batch = make_batch(
            [b"%d" % number + b"x" * 50], keys=[b"k%d" % (number % 4)], producer_id=5, epoch=0, sequence=number
        )
        log.append(batch, number // 10)


def offsets(log: PartitionLog) -> list[int]:
    return [batch.base_offset for batch in read_all(log)]


def whole_batches_of(image: Image, directory: str) -> int:
    """How many batches of a partition are whole in an image, from the first one on."""
    names = sorted(name for name in image if name.startswith(directory + "/") and name.endswith(".log"))
    return sum(len(split_batches(image[name] or b"")) for name in names)


# -- files that are replaced -------------------------------------------------------------------------------------------


def test_a_file_of_truth_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with power_cuts(tmp_path, reorders=True) as cuts:
        replace_file_durably(Disk(), str(path), b"new content")
    assert {image["file"] for image in cuts.images} == {b"old", b"new content"}
    assert {image["file"] for image in cuts.last_images} == {b"new content"}


def _begin_epoch(log_dir: LogDir, number: int) -> None:
    log_dir.partitions[ORDERS].begin_leader_epoch(7 + number)


def _note_cleaned(log_dir: LogDir, number: int) -> None:
    log_dir.partitions[ORDERS]._store.note_cleaned(number)


def _checkpoint(log_dir: LogDir, number: int) -> None:
    for log in log_dir.partitions.values():
        fill(log, 5, log.log_end_offset)
        log.flush()
        log.delete_records(2 + number)
    log_dir.checkpoint()


REPLACED: Mapping[str, Callable[[LogDir, int], None]] = {
    f"orders-0/{LEADER_EPOCHS}": _begin_epoch,
    f"orders-0/{COMPACTION}": _note_cleaned,
    RECOVERY_POINTS: _checkpoint,
    LOG_STARTS: _checkpoint,
    HIGH_WATERMARKS: _checkpoint,
}


@pytest.mark.parametrize("name", REPLACED)
def test_files_that_recovery_believes_are_the_old_or_the_new_ones(tmp_path: Path, name: str) -> None:
    log_dir, change = open_dir(tmp_path), REPLACED[name]
    for partition in (ORDERS, *OTHERS):
        fill(log_dir.create(partition, TOPIC_ID, SMALL), 5)
    for number in range(3):
        path = tmp_path / "data" / name
        before = path.read_bytes() if path.exists() else None
        with power_cuts(tmp_path / "data") as cuts:
            change(log_dir, number)
        after = path.read_bytes()
        assert before != after
        assert {image.get(name) for image in cuts.images} == {before, after}
        assert {image.get(name) for image in cuts.last_images} == {after}
    log_dir.close()


# -- directories -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("above", [".", "a", "a/b/c"])
def test_a_data_directory_is_there_when_it_is_taken_over(tmp_path: Path, above: str) -> None:
    with power_cuts(tmp_path) as cuts:
        log_dir = open_dir(tmp_path / above)
    for image in cuts.last_images:
        assert image[os.path.normpath(f"{above}/data/{META_PROPERTIES}")]
    log_dir.close()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_partitions_that_were_created_are_there_with_their_topic(tmp_path: Path, count: int) -> None:
    log_dir = open_dir(tmp_path)
    wanted = [ORDERS, *OTHERS][:count]
    with power_cuts(tmp_path / "data") as cuts:
        for partition in wanted:
            log_dir.create(partition, TOPIC_ID)
        log_dir.sync()
    log_dir.close()
    for image in cuts.last_images:
        again = open_image(image, tmp_path)
        assert again.topic_ids == {"orders": TOPIC_ID}
        assert set(again.partitions) == set(wanted)
        again.close()


def test_a_deleted_partition_does_not_come_back(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    for partition in (ORDERS, *OTHERS):
        fill(log_dir.create(partition, TOPIC_ID), 3)
    with power_cuts(tmp_path / "data") as cuts:
        log_dir.delete(ORDERS)
    for image in cuts.last_images:
        again = open_image(image, tmp_path)
        assert set(again.partitions) == set(OTHERS)
        again.close()
    log_dir.close()


# -- syncs, checkpoints, shutdown --------------------------------------------------------------------------------------


def test_what_was_committed_is_there_whenever_the_power_goes(tmp_path: Path) -> None:
    """Through rolls of segments, new leader epochs and checkpoints."""
    log_dir = open_dir(tmp_path, syncs=True)
    log = log_dir.create(ORDERS, TOPIC_ID)
    log_dir.sync()
    committed: list[int] = []
    with power_cuts(tmp_path / "data") as cuts:
        for number in range(25):
            fill(log, 1, number)
            log.commit(number + 1)
            committed.append(len(cuts.images))
            if number % 10 == 9:
                log_dir.checkpoint()
    assert len(log_files(log.directory)) > 2
    log_dir.close()
    for index, image in enumerate(cuts.images):
        again = open_image(image, tmp_path)
        found = again.partitions[ORDERS]
        assert found.fence_reason is None
        acknowledged = sum(count <= index for count in committed)
        assert offsets(found)[:acknowledged] == list(range(acknowledged))
        again.close()


@pytest.mark.parametrize("synced", [0, 1, 7, 20])
def test_a_checkpoint_names_what_is_on_the_disk_and_no_more(tmp_path: Path, synced: int) -> None:
    log_dir = open_dir(tmp_path)
    for partition in (ORDERS, *OTHERS):
        fill(log_dir.create(partition, TOPIC_ID), synced)
    with power_cuts(tmp_path / "data") as cuts:
        for log in log_dir.partitions.values():
            log.flush()
            fill(log, 3, synced)
        log_dir.checkpoint()
    assert any(parse_offsets(image.get(RECOVERY_POINTS) or b"") for image in cuts.images)
    for image in cuts.images:
        for partition, point in parse_offsets(image.get(RECOVERY_POINTS) or b"").items():
            assert whole_batches_of(image, directory_name(partition)) >= point
    for image in cuts.last_images:
        assert set(parse_offsets(image[RECOVERY_POINTS] or b"").values()) == {recovered_point(log_dir)}
    log_dir.close()


def recovered_point(log_dir: LogDir) -> int:
    (point,) = {log.recovery_point for log in log_dir.partitions.values()}
    return point


@pytest.mark.parametrize("count", [1, 4])
def test_a_shutdown_is_clean_only_if_all_is_on_the_disk(tmp_path: Path, count: int) -> None:
    log_dir = open_dir(tmp_path)
    for partition in (ORDERS, *OTHERS)[:count]:
        fill(log_dir.create(partition, TOPIC_ID), 12)
    with power_cuts(tmp_path / "data") as cuts:
        assert log_dir.close()
    are_clean = [image.get(CLEAN_SHUTDOWN) is not None for image in cuts.images]
    assert True in are_clean
    assert False in are_clean
    for image, is_clean in zip(cuts.images, are_clean, strict=True):
        if is_clean:
            again = open_image(image, tmp_path)
            for log in again.partitions.values():
                assert (offsets(log), log.latest_epoch) == (list(range(12)), 1)
            again.close()


def test_a_start_that_is_cut_off_is_not_clean_once_a_log_was_changed(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    fill(log_dir.create(ORDERS, TOPIC_ID), 12)
    assert log_dir.close()
    with power_cuts(tmp_path / "data") as cuts:
        log_dir = open_dir(tmp_path)
        first = len(cuts.images)
        fill(log_dir.partitions[ORDERS], 1, 12)
    assert any(CLEAN_SHUTDOWN in image for image in cuts.images[:first])
    assert not any(CLEAN_SHUTDOWN in image for image in (*cuts.images[first:], *cuts.last_images))
    log_dir.close()


# -- shortening, compaction, moves -------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [0, 3, 9, 16, 24])
def test_a_cut_log_is_a_beginning_of_what_it_was(tmp_path: Path, end: int) -> None:
    log_dir = open_dir(tmp_path, syncs=True)
    log = log_dir.create(ORDERS, TOPIC_ID)
    log_dir.sync()
    fill(log, 25)
    log.flush()
    with power_cuts(tmp_path / "data") as cuts:
        log.truncate_to(end)
        log.append(make_batch([b"other"]), 9)
        log.commit(end + 1)
    log_dir.close()
    for image in cuts.images:
        again = open_image(image, tmp_path)
        found = again.partitions[ORDERS]
        assert found.fence_reason is None
        assert offsets(found) == list(range(found.log_end_offset))
        assert found.log_end_offset >= end
        again.close()
    for image in cuts.last_images:
        again = open_image(image, tmp_path)
        assert offsets(again.partitions[ORDERS]) == list(range(end + 1))
        assert again.partitions[ORDERS].latest_epoch == 9
        again.close()


@pytest.mark.parametrize("offset", [5, 25, 100])
def test_a_log_that_begins_again_has_what_it_was_given_since(tmp_path: Path, offset: int) -> None:
    log_dir = open_dir(tmp_path, syncs=True)
    log = log_dir.create(ORDERS, TOPIC_ID)
    log_dir.sync()
    fill(log, 25)
    log.flush()
    with power_cuts(tmp_path / "data") as cuts:
        log.restart_at(offset)
        log.append(make_batch([b"other"]), 2)
        log.commit(offset + 1)
        log_dir.checkpoint()
    log_dir.close()
    for image in cuts.images:
        again = open_image(image, tmp_path)
        assert again.partitions[ORDERS].fence_reason is None
        again.close()
    for image in cuts.last_images:
        again = open_image(image, tmp_path)
        assert offsets(again.partitions[ORDERS]) == [offset]
        again.close()


def test_what_retention_deletes_takes_no_producer_with_it(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    log = log_dir.create(ORDERS, TOPIC_ID, dataclasses.replace(SMALL, retention_bytes=700))
    log_dir.sync()
    log.append(make_batch([b"first"], producer_id=9, epoch=3, sequence=0), 0)
    fill(log, 25)
    log.flush()
    with power_cuts(tmp_path / "data") as cuts:
        assert log.delete_old_segments() > 2
        log_dir.checkpoint()
    log_dir.close()
    for image in cuts.images:
        again = open_image(image, tmp_path)
        found = again.partitions[ORDERS]
        assert found.fence_reason is None
        assert found.log_end_offset == 26
        assert found._store.producers.producers[9].epoch == 3
        assert found._store.producers.producers[5].last_sequence == 24
        again.close()


@pytest.mark.parametrize("rounds", [1, 2])
def test_compaction_leaves_the_last_value_of_each_key(tmp_path: Path, rounds: int) -> None:
    log_dir = open_dir(tmp_path, config=COMPACTED)
    log = log_dir.create(ORDERS, TOPIC_ID, COMPACTED)
    log_dir.sync()
    for number in range(rounds):
        fill(log, 16, 16 * number)
        log.roll()
        if number + 1 < rounds:
            assert log.compact(is_forced=True)
    expected = latest_of(log)
    with power_cuts(tmp_path / "data", reorders=True) as cuts:
        assert log.compact(is_forced=True)
    log_dir.close()
    for image in cuts.images:
        again = open_image(image, tmp_path, COMPACTED)
        found = again.partitions[ORDERS]
        assert found.fence_reason is None
        assert latest_of(found) == expected
        again.close()


def latest_of(log: PartitionLog) -> dict[bytes | None, bytes | None]:
    """The last value of each key."""
    found: dict[bytes | None, bytes | None] = {}
    for batch in read_all(log):
        for record in iterate_records(memoryview(batch.data)):
            found[record.key] = record.value
    return found


def test_a_compacted_segment_has_its_name_before_those_it_replaces_go(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path, config=COMPACTED)
    log = log_dir.create(ORDERS, TOPIC_ID, COMPACTED)
    fill(log, 60)
    log.roll()
    with power_cuts(tmp_path / "data") as cuts:
        assert log.compact(is_forced=True) > 1
    log_dir.close()
    steps = [
        f"{call.name} {PurePath(call.path).suffix}"
        for call in cuts.calls
        if call.name == "fsync" or PurePath(call.path).suffix in (".log", ".swap", ".cleaned")
    ]
    swap = steps.index("replace .swap")
    assert "fdatasync .cleaned" in steps[:swap]
    gone = next(index for index, step in enumerate(steps) if step in ("unlink .log", "replace .log"))
    assert "fsync " in steps[swap:gone]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_partition_that_moves_is_whole_in_one_directory_and_what_was_deleted_is_gone(
    tmp_path: Path, *, is_clean: bool
) -> None:
    paths = [str(tmp_path / "dirs" / name) for name in ("a", "b", "c")]
    (tmp_path / "dirs").mkdir()
    log_dirs = open_log_dirs(paths, make_environment(Disk(), each()), defaults=SMALL)
    log = log_dirs.create(ORDERS, TOPIC_ID)
    fill(log, 12)
    log.commit(12)
    log.delete_records(4)
    log_dirs.checkpoint()
    log_dirs.move(log, paths[1 if log.directory.startswith(paths[0]) else 0])
    with power_cuts(tmp_path / "dirs") as cuts:
        for _ in range(100):
            log_dirs.step(300)
        assert not log_dirs.moves
        fill(log, 1, 12)
        log.commit(13)
        if is_clean:
            log_dirs.close()
    log_dirs.close()
    for image in cuts.images:
        assert moved_offsets(restore(image, tmp_path / "after")) in (list(range(4, 12)), list(range(4, 13)))
    for image in cuts.last_images:
        assert moved_offsets(restore(image, tmp_path / "after")) == list(range(4, 13))


def moved_offsets(directory: Path) -> list[int]:
    paths = [str(directory / name) for name in ("a", "b", "c")]
    log_dirs = open_log_dirs(paths, make_environment(), defaults=SMALL)
    found = offsets(log_dirs.partitions[ORDERS])
    assert log_dirs.partitions[ORDERS].fence_reason is None
    log_dirs.close()
    return found


def test_what_recovery_repairs_is_on_the_disk_before_it_is_served(tmp_path: Path) -> None:
    log_dir = open_dir(tmp_path)
    log = log_dir.create(ORDERS, TOPIC_ID)
    fill(log, 25)
    log.abandon()
    path = tmp_path / "data" / "orders-0" / sorted(log_files(tmp_path / "data" / "orders-0"))[-1]
    path.write_bytes(path.read_bytes()[:-1])
    log_dir._directory_lock = None
    with power_cuts(tmp_path / "data", has_synced=False) as cuts:
        again = open_dir(tmp_path)
        expected = offsets(again.partitions[ORDERS])
    assert expected == list(range(24))
    again.close()
    for image in cuts.last_images:
        third = open_image(image, tmp_path)
        assert offsets(third.partitions[ORDERS]) == expected
        third.close()


# -- steps -------------------------------------------------------------------------------------------------------------


def open_image(image: Image, tmp_path: Path, config: LogConfig = SMALL) -> LogDir:
    """Start again from what a power cut left."""
    restore(image, tmp_path / "after")
    return open_log_dir(str(tmp_path / "after"), make_environment(), defaults=config)
