"""A broker's data directory: ownership, clean shutdown, topics, deletion, checkpoints."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafkaprod.broker.storage.errors import DirectoryLockedError, LogError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.directory_files import (
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    parse_directory_name,
)
from kafkaprod.broker.storage.log.group_commit import each, interval, never
from kafkaprod.broker.storage.log.log_dir import CLEAN_SHUTDOWN, KnownTopics, LogDir, open_log_dir
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.recovery.checkpoints import parse_offsets, parse_partition_metadata, parse_properties_file
from kafkaprod.errors import ConfigError, CorruptDataError
from kafkaprod.structs import TopicPartition
from tests.support.broker.fixtures_log import (
    NOW_MS,
    ORDERS,
    TOPIC_ID,
    FaultyDisk,
    failing,
    make_batch,
    make_environment,
    read_all,
    split_batches,
)
from tests.support.clock import ManualClock

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


def open_dir(path: Path, **options: object) -> LogDir:
    return open_log_dir(str(path / "data"), make_environment(), **options)  # type: ignore[arg-type]


def test_directory_is_private_and_says_whose_it_is(tmp_path: Path) -> None:
    directory = open_dir(tmp_path, node_id=3)
    assert stat.S_IMODE(os.stat(directory.path).st_mode) == 0o700
    found = parse_properties_file((tmp_path / "data" / META_PROPERTIES).read_bytes())
    assert found["node.id"] == "3"
    assert found["cluster.id"] == directory.identity.cluster_id
    assert len(found["directory.id"]) == 22
    directory.create(ORDERS, TOPIC_ID)
    assert stat.S_IMODE(os.stat(tmp_path / "data" / "orders-0").st_mode) == 0o700
    assert directory.close()
    assert open_dir(tmp_path, node_id=3).identity == directory.identity


def test_directories_above_it_are_made(tmp_path: Path) -> None:
    directory = open_dir(tmp_path / "a" / "b")
    assert stat.S_IMODE(os.stat(tmp_path / "a" / "b" / "data").st_mode) == 0o700
    assert directory.close()


def test_directory_of_another_broker_is_refused(tmp_path: Path) -> None:
    open_dir(tmp_path, node_id=3).close()
    with pytest.raises(ConfigError, match="belongs to node 3"):
        open_dir(tmp_path, node_id=4)
    with pytest.raises(ConfigError, match="belongs to"):
        open_dir(tmp_path, node_id=3, cluster_id="elsewhere")


def test_second_broker_is_kept_out_of_the_directory(tmp_path: Path) -> None:
    directory = open_dir(tmp_path)
    for _ in range(2):  # a refused attempt must not loosen the lock
        with pytest.raises(DirectoryLockedError, match="in use"):
            open_dir(tmp_path)
    directory.close()
    open_dir(tmp_path).close()


def test_second_process_is_kept_out_of_the_directory(tmp_path: Path) -> None:
    directory = open_dir(tmp_path)
    attempt = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+')\n"
        "try:\n    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError:\n    sys.exit(7)\n"
    )
    command = [sys.executable, "-c", attempt, os.path.join(directory.path, ".lock")]
    assert subprocess.run(command, check=False).returncode == 7  # Kafka's kind of lock
    directory.close()
    assert subprocess.run(command, check=False).returncode == 0


def test_clean_shutdown_marker_is_written_last_and_deleted_before_use(tmp_path: Path) -> None:
    directory = open_dir(tmp_path)
    marker = tmp_path / "data" / CLEAN_SHUTDOWN
    directory.create(ORDERS, TOPIC_ID).append(make_batch(), 0)
    assert not marker.exists()
    assert directory.close()
    assert marker.read_text() == '{"version": 0, "brokerEpoch": -1}'
    again = open_dir(tmp_path)
    assert again.was_clean
    assert not marker.exists()
    assert again.partitions[ORDERS].log_end_offset == 1


def test_topics_ids_and_configs_are_found_again(tmp_path: Path) -> None:
    directory = open_dir(tmp_path)
    dashed = TopicPartition("a-b-7", 12)
    directory.create(ORDERS, TOPIC_ID)
    directory.create(dashed, TOPIC_ID)
    content = (tmp_path / "data" / "orders-0" / "partition.metadata").read_bytes()
    assert content.startswith(b"version: 0\ntopic_id: ")
    assert parse_partition_metadata(content) == TOPIC_ID
    directory.close()
    again = open_dir(tmp_path, find_topics=lambda _: KnownTopics({"orders": SMALL}, {}))
    assert set(again.partitions) == {ORDERS, dashed}
    assert again.topic_ids == {"orders": TOPIC_ID, "a-b-7": TOPIC_ID}
    assert again.partitions[ORDERS].config == SMALL


@pytest.mark.parametrize("content", [None, b"", b"version: 0\ntopic_id: short"])
def test_missing_or_torn_topic_id_is_replaced(tmp_path: Path, content: bytes | None) -> None:
    directory = open_dir(tmp_path)
    directory.create(ORDERS, TOPIC_ID)
    second = TopicPartition("orders", 1)
    directory.create(second, TOPIC_ID)
    directory.close()
    path = tmp_path / "data" / "orders-1" / "partition.metadata"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert open_dir(tmp_path).topic_ids == {"orders": TOPIC_ID}
    assert parse_partition_metadata(path.read_bytes()) == TOPIC_ID


def test_topic_with_another_id_is_refused(tmp_path: Path) -> None:
    directory = open_dir(tmp_path)
    log = directory.create(ORDERS, TOPIC_ID)
    assert directory.create(ORDERS, TOPIC_ID) is log
    with pytest.raises(CorruptDataError, match="has id"):
        directory.create(ORDERS, type(TOPIC_ID)(int=1))


def test_deleted_partition_is_renamed_first_and_readers_finish(tmp_path: Path) -> None:
    directory = open_dir(tmp_path)
    log = directory.create(ORDERS, TOPIC_ID)
    log.append(make_batch([b"still here"]), 0)
    records = log.read(0, 1000).records
    directory.delete(ORDERS)
    assert directory.get(ORDERS) is None
    assert directory.topic_ids == {}
    names = [name for name in os.listdir(directory.path) if name.startswith("orders-0")]
    assert len(names) == 1
    assert names[0].endswith("-delete")
    directory.purge_deleted()
    assert not [name for name in os.listdir(directory.path) if name.startswith("orders-0")]
    assert records is not None
    assert split_batches(records.read())[0].last_offset == 0
    assert directory.create(ORDERS, TOPIC_ID).log_end_offset == 0


def test_interrupted_deletion_is_finished_by_the_next_start(tmp_path: Path) -> None:
    directory = open_dir(tmp_path)
    directory.create(ORDERS, TOPIC_ID)
    directory.delete(ORDERS)
    directory.close()
    again = open_dir(tmp_path)
    assert again.partitions == {}
    assert not [name for name in os.listdir(again.path) if name.endswith("-delete")]


def test_long_topic_names_can_be_deleted(tmp_path: Path) -> None:
    directory = open_dir(tmp_path)
    long_name = TopicPartition("t" * 249, 12345)
    directory.create(long_name, TOPIC_ID)
    directory.delete(long_name)
    assert max(len(name) for name in os.listdir(directory.path)) == 255


def test_deleted_records_stay_deleted_after_a_crash_once_checkpointed(tmp_path: Path) -> None:
    directory = open_dir(tmp_path)
    log = directory.create(ORDERS, TOPIC_ID)
    for _ in range(5):
        log.append(make_batch(), 0)
    log.delete_records(3)
    directory.checkpoint()
    assert parse_offsets((tmp_path / "data" / LOG_STARTS).read_bytes()) == {ORDERS: 3}
    del log, directory  # a crash: nothing is closed
    again = open_dir(tmp_path)
    assert not again.was_clean
    assert (again.partitions[ORDERS].log_start_offset, again.partitions[ORDERS].log_end_offset) == (3, 5)


@pytest.mark.parametrize("content", [None, b"", b"0\n9\n", b"junk"])
def test_missing_or_torn_checkpoints_only_cost_time(tmp_path: Path, content: bytes | None) -> None:
    directory = open_dir(tmp_path)
    log = directory.create(ORDERS, TOPIC_ID, SMALL)
    for _ in range(20):
        log.append(make_batch([b"v" * 50]), 0)
    directory.checkpoint()
    del log, directory
    for name in (RECOVERY_POINTS, LOG_STARTS):
        path = tmp_path / "data" / name
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
    again = open_dir(tmp_path)
    assert len(read_all(again.partitions[ORDERS])) == 20


def test_interval_policy_syncs_when_due(tmp_path: Path) -> None:
    clock, disk = ManualClock(wall_ms=NOW_MS), FaultyDisk()
    directory = open_log_dir(str(tmp_path / "data"), make_environment(disk, interval(200), clock))
    log = directory.create(ORDERS, TOPIC_ID)
    log.append(make_batch(), 0)
    assert log.high_watermark == 1  # acknowledged at once
    clock.advance(199)
    directory.flush_due()
    assert log.recovery_point == 0
    clock.advance(1)
    directory.flush_due()
    assert log.recovery_point == 1
    syncs = len(disk.names("fdatasync"))
    clock.advance(200)
    directory.flush_due()
    assert len(disk.names("fdatasync")) == syncs  # nothing new to sync


def test_only_partitions_with_appends_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    recovery_point = PartitionLog.recovery_point.fget  # type: ignore[attr-defined]

    def look(log: PartitionLog) -> int:
        looks.append(log.topic_partition)
        return int(recovery_point(log))

    monkeypatch.setattr(PartitionLog, "recovery_point", property(look))
    clock = ManualClock(wall_ms=NOW_MS)
    directory = open_log_dir(str(tmp_path / "data"), make_environment(FaultyDisk(), interval(200), clock))
    logs = [directory.create(TopicPartition("many", index), TOPIC_ID) for index in range(20)]
    for expected in (20, 0):  # what was just opened may have something of a crash
        clock.advance(200)
        directory.flush_due()
        assert len(looks) == expected
        looks.clear()
    logs[7].append(make_batch(), 0)
    clock.advance(200)
    directory.flush_due()
    assert looks == [TopicPartition("many", 7)]
    assert logs[7].recovery_point == 1


def test_what_a_crash_left_unsynced_is_synced(tmp_path: Path) -> None:
    crashed = open_log_dir(str(tmp_path / "data"), make_environment(FaultyDisk(), never()))
    crashed.create(ORDERS, TOPIC_ID).append(make_batch(), 0)
    del crashed
    clock = ManualClock(wall_ms=NOW_MS)
    again = open_log_dir(str(tmp_path / "data"), make_environment(FaultyDisk(), interval(200), clock))
    clock.advance(200)
    again.flush_due()
    assert again.partitions[ORDERS].recovery_point == again.partitions[ORDERS].log_end_offset == 1


def test_one_failing_partition_does_not_keep_others_from_their_sync(tmp_path: Path) -> None:
    disk = FaultyDisk()
    directory = open_log_dir(str(tmp_path / "data"), make_environment(disk, each()))
    bad = directory.create(TopicPartition("bad", 0), TOPIC_ID)
    good = directory.create(ORDERS, TOPIC_ID)
    bad.append(make_batch(), 0)
    good.append(make_batch(), 0)
    disk.fail = failing("fdatasync", "bad-0/00000000000000000000.log")
    directory.flush_due()
    assert bad.fence_reason is not None
    assert (good.fence_reason, good.high_watermark) == (None, 1)


def test_retention_runs_on_all_partitions(tmp_path: Path) -> None:
    directory = open_dir(tmp_path)
    sized = LogConfig(segment_bytes=500, retention_bytes=600)
    for number in range(2):
        log = directory.create(TopicPartition("orders", number), TOPIC_ID, sized)
        for _ in range(20):
            log.append(make_batch([b"v" * 50]), 0)
    assert directory.apply_retention() > 4
    assert all(600 <= log.size_bytes < 1200 for log in directory.partitions.values())


def test_read_only_directory_is_an_error_of_the_create(tmp_path: Path) -> None:
    disk = FaultyDisk()
    directory = open_log_dir(str(tmp_path / "data"), make_environment(disk))
    disk.fail = failing("mkdir")
    with pytest.raises(LogError) as caught:
        directory.create(ORDERS, TOPIC_ID)
    assert caught.value.code == 56
    assert directory.partitions == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", ORDERS),
        ("a-b-3", ("a-b", 3)),
        ("orders", None),
        ("-1", None),
        ("x-y", None),
        ("x-1.0f-delete", None),
    ],
)
def test_directory_names(name: str, expected: tuple[str, int] | None) -> None:
    assert parse_directory_name(name) == expected


def test_million_records_in_a_thousand_segments_open_in_two_seconds_of_cpu(
    tmp_path: Path,
) -> None:
    environment = make_environment()
    directory = open_log_dir(str(tmp_path / "data"), environment)
    log = directory.create(ORDERS, TOPIC_ID, LogConfig(segment_bytes=15_000))
    batch = make_batch([b"x"] * 1000)
    for _ in range(1000):
        log.append(bytearray(batch), 0)
    assert len(list((tmp_path / "data" / "orders-0").glob("*.log"))) == 1000
    assert directory.close()
    start = time.process_time()
    again = open_dir(tmp_path)
    elapsed = time.process_time() - start
    assert again.partitions[ORDERS].log_end_offset == 1_000_000
    assert elapsed < 2
    found = again.partitions[ORDERS].read(500_500, 100)
    assert found.first_offset == 500_000


# -- directories that others prepared ----------------------------------------------------------------------------------


def test_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ConfigError, match=f"belongs to user {os.getuid()}, but this process runs as {os.getuid() + 1}"):
        open_log_dir(os.fspath(tmp_path), make_environment())


@pytest.mark.parametrize(("mode", "is_taken"), [(0o777, False), (0o702, False), (0o1777, False), (0o755, True)])
def test_directory_that_every_user_may_write_to_is_refused(tmp_path: Path, mode: int, is_taken: bool) -> None:
    path = tmp_path / "data"
    path.mkdir()
    path.chmod(mode)
    if is_taken:
        assert open_log_dir(os.fspath(path), make_environment()).close()
        return
    with pytest.raises(ConfigError, match=f"chmod 700 {path}"):
        open_log_dir(os.fspath(path), make_environment())
    assert list(path.iterdir()) == []


def test_new_directory_in_one_that_all_may_write_to_is_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert open_log_dir(os.fspath(tmp_path / "kafka"), make_environment()).close()
    assert (tmp_path / "kafka").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["00000000000000000000.log", "00000000000000000000.index", "partition.metadata"])
def test_link_in_place_of_a_file_is_refused_and_its_target_left_alone(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious" * 100)
    path = tmp_path / "data"
    directory = open_log_dir(os.fspath(path), make_environment())
    directory.create(TopicPartition("orders", 0), TOPIC_ID)
    assert directory.close()
    (path / "orders-0" / name).unlink()
    (path / "orders-0" / name).symlink_to(victim)
    (path / ".kafka_cleanshutdown").unlink()
    with pytest.raises(OSError, match=r"links|symbolic"):
        open_log_dir(os.fspath(path), make_environment())
    assert victim.read_bytes() == b"precious" * 100


@pytest.mark.parametrize("name", ["orders-0", "orders-0.0123-delete"])
def test_link_in_place_of_a_directory_is_refused_and_its_target_left_alone(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_bytes(b"precious")
    path = tmp_path / "data"
    assert open_log_dir(os.fspath(path), make_environment()).close()
    (path / name).symlink_to(victim)
    with pytest.raises((OSError, LogError), match="links"):
        open_log_dir(os.fspath(path), make_environment())
    assert [each.name for each in victim.iterdir()] == ["file"]


def test_index_that_is_cut_under_a_running_log_does_no_harm(tmp_path: Path) -> None:
    directory = open_log_dir(os.fspath(tmp_path / "data"), make_environment())
    log = directory.create(
        TopicPartition("orders", 0), TOPIC_ID, LogConfig(segment_bytes=5_000, index_interval_bytes=1)
    )
    for _ in range(100):
        log.append(make_batch([b"v" * 100]), 0)
    files = [*(tmp_path / "data" / "orders-0").glob("*index")]
    assert len(files) > 2
    for offset in range(100):
        for file in files:
            os.truncate(file, offset % 5)
        assert log.read(offset, 1).first_offset == offset
        assert log.find_timestamp(0) is not None


@pytest.mark.parametrize("count", [1, 2, 16, 17, 40])
def test_all_logs_are_closed_and_all_deleted_partitions_purged(tmp_path: Path, count: int) -> None:
    directory = open_dir(tmp_path)
    partitions = [TopicPartition("many", number) for number in range(count)]
    for partition in partitions:
        directory.create(partition, TOPIC_ID).append(make_batch(), 0)
    logs = list(directory.partitions.values())
    assert directory.close()
    assert all(log.fence_reason is not None for log in logs)
    again = open_dir(tmp_path)
    for partition in partitions:
        again.delete(partition)
    again.purge_deleted()
    assert not [entry.name for entry in (tmp_path / "data").iterdir() if entry.is_dir()]
    assert again.close()
