"""The table of topics: rules of names and options, and what survives a restart or a crash."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from kafkaprod.broker.cluster.own_controller import OwnController
from kafkaprod.broker.cluster.own_topics import OwnTopics
from kafkaprod.broker.controller.disk_log import METADATA_PARTITION, METADATA_TOPIC_ID
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.log_files import PARTITION_METADATA
from kafkaprod.broker.storage.log.log_dir import KnownTopics, LogDir, open_log_dir
from kafkaprod.broker.storage.log.log_dirs import LogDirs
from kafkaprod.broker.storage.log.readable_log import ReadableLog
from kafkaprod.errors import BrokerError, KafkaError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_partitions import CreatePartitionsTopic
from kafkaprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkaprod.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkaprod.storage.disk import Disk
from kafkaprod.structs import TopicPartition
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import FaultyDisk, failing, make_batch, make_environment
from tests.support.processes import open_descriptors

METADATA_DIRECTORY = "__cluster_metadata-0"


class Directory:
    """A data directory that can be opened again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.moved: list[TopicPartition] = []
        self.log_dir: LogDir | None = None

    def close(self) -> None:
        if self.log_dir is not None:
            self.log_dir.close()
        self.log_dir = None

    def open(self, disk: Disk | None = None) -> OwnTopics:
        self.close()
        environment = make_environment(disk)
        controllers: list[OwnController] = []

        def find_topics(log_dir: LogDir) -> KnownTopics:
            controllers.append(OwnController(log_dir, environment.clock, {}, {}))
            return KnownTopics({}, controllers[0].image.topic_ids)

        self.log_dir = open_log_dir(str(self.path), environment, find_topics=find_topics)
        return OwnTopics(LogDirs([self.log_dir]), controllers[0], LogConfig(), self.moved.append)


def wanted_topic(name: str, partition_count: int) -> CreatableTopic:
    options = [CreatableTopicConfig(name="flush.ms", value="9")]
    return CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1, configs=options)


def metadata_syncs(disk: FaultyDisk) -> int:
    return sum(name == "fdatasync" and METADATA_PARTITION.topic in path for name, path in disk.calls)


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "data")


def refused_with(error: pytest.ExceptionInfo[BrokerError]) -> ErrorCode:
    code_of: Any = ErrorCode  # an enum by number: its __new__ also takes what makes a member
    return cast(ErrorCode, code_of(error.value.code))


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a\0", "a:b"])
def test_bad_name_is_refused(directory: Directory, name: str) -> None:
    with pytest.raises(BrokerError) as error:
        directory.open().create(name, 1, {})
    assert refused_with(error) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "x" * 240, "A-b_c.d9", "...", "__x"])
def test_good_name_is_taken(directory: Directory, name: str) -> None:
    assert directory.open().create(name, 1, {}).name == name


@pytest.mark.parametrize(
    ("name", "count", "properties", "expected"),
    [
        ("orders.new", 1, {}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("orders_new", 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x", 0, {}, ErrorCode.INVALID_PARTITIONS),
        ("x", -2, {}, ErrorCode.INVALID_PARTITIONS),
        ("x", 10_001, {}, ErrorCode.INVALID_PARTITIONS),
        ("x", 1, {"no.such.option": "1"}, ErrorCode.INVALID_CONFIG),
        ("x", 1, {"segment.bytes": "many"}, ErrorCode.INVALID_CONFIG),
        ("x", 1, {"cleanup.policy": "burn"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_refused_topic_leaves_no_trace(
    directory: Directory, name: str, count: int, properties: dict[str, str], expected: ErrorCode
) -> None:
    table = directory.open()
    table.create("orders.new", 1, {})
    before = sorted(os.listdir(directory.path)), table.image.end_offset
    with pytest.raises(BrokerError) as error:
        table.create(name, count, properties)
    assert refused_with(error) is expected
    assert (sorted(os.listdir(directory.path)), table.image.end_offset) == before


@pytest.mark.parametrize("like", ["a.b_c", "a_b.c", "a_b_c", "a.b.c"])
def test_names_that_differ_in_dots_only_are_taken_while_a_topic_is_made_and_until_it_is_deleted(
    directory: Directory, like: str
) -> None:
    table = directory.open()
    table.begin(wanted_topic("a.b_c", 1))
    assert is_refused(table, like)
    for _ in table.making("a.b_c"):
        assert is_refused(table, like)
    assert is_refused(table, like)
    table = directory.open()
    assert is_refused(table, like)
    table.delete("a.b_c")
    again = table.create(like, 1, {})
    assert (table.by_id(again.topic_id), table.name_of("", again.topic_id)) == (again, like)
    assert [topic.name for topic in table.all()] == [like]


def is_refused(table: OwnTopics, name: str) -> bool:
    with pytest.raises(BrokerError) as error:
        table.create(name, 1, {})
    return refused_with(error) in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_topics_survive_a_restart_with_id_partitions_and_options(directory: Directory) -> None:
    table = directory.open()
    made = table.create("orders", 3, {"retention.ms": "5000", "flush.ms": "9"})
    table.add_partitions("orders", 5, validate_only=False)
    table.set_properties("orders", {"retention.ms": "6000"}, validate_only=False)
    again = directory.open().get("orders")
    assert again is not None
    assert (again.topic_id, len(again.partitions), again.properties) == (made.topic_id, 5, {"retention.ms": "6000"})
    assert {partition.log.config.retention_ms for partition in again.partitions} == {6000}


def test_topic_that_is_being_made_is_not_there_and_its_name_is_taken(directory: Directory) -> None:
    table = directory.open()
    table.create("other", 1, {})
    table.begin(wanted_topic("orders", 3))
    steps = table.making("orders")
    next(steps)
    assert (table.get("orders"), table.is_changing("orders")) == (None, True)
    with pytest.raises(BrokerError) as error:
        table.create("orders", 1, {})
    assert refused_with(error) is ErrorCode.TOPIC_ALREADY_EXISTS
    for _ in steps:
        pass
    assert (len(table.all()[0].partitions), table.is_changing("orders")) == (3, False)


def test_topic_that_was_being_made_at_the_end_is_completed_at_the_start(directory: Directory) -> None:
    table = directory.open()
    table.begin(wanted_topic("orders", 3))
    steps = table.making("orders")
    next(steps)
    again = directory.open().get("orders")
    assert again is not None
    assert (len(again.partitions), again.properties) == (3, {"flush.ms": "9"})


def test_topic_is_changed_by_one_at_a_time(directory: Directory) -> None:
    table = directory.open()
    table.create("orders", 2, {})
    growing = table.adding_partitions(CreatePartitionsTopic(name="orders", count=4), validate_only=False)
    next(growing)
    for change in (
        lambda: table.delete("orders"),
        lambda: table.add_partitions("orders", 5, validate_only=False),
        lambda: table.set_properties("orders", {}, validate_only=False),
    ):
        with pytest.raises(BrokerError, match="being changed") as error:
            change()
        assert refused_with(error) is ErrorCode.INVALID_REQUEST
    assert list(growing) == [None]
    deleting = table.deleting("orders")
    next(deleting)
    assert table.get("orders") is None
    with pytest.raises(BrokerError) as error:
        table.create("orders", 1, {})
    assert refused_with(error) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert len(list(deleting)) == 3
    assert len(table.create("orders", 1, {}).partitions) == 1


def test_disk_that_fails_leaves_nothing_of_a_topic(directory: Directory) -> None:
    disk = FaultyDisk()
    table = directory.open(disk)
    table.create("other", 1, {})
    disk.fail = failing("mkdir", after=2, code=errno.EMFILE)
    with pytest.raises(BrokerError) as error:
        table.create("orders", 5, {})
    assert refused_with(error) is ErrorCode.KAFKA_STORAGE_ERROR
    assert [topic.name for topic in table.image.topics.values()] == ["other"]
    assert not list(directory.path.glob("orders-?"))
    disk.fail = None
    assert len(table.create("orders", 2, {}).partitions) == 2
    assert len(directory.open().all()) == 2


def test_partitions_beyond_what_files_may_be_open_are_refused(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 4096))
    table = directory.open()
    table.create("orders", 100, {})
    table.begin(wanted_topic("planned", 50))
    for change in (
        lambda: table.create("more", 363, {}),
        lambda: table.add_partitions("orders", 463, validate_only=False),
    ):
        with pytest.raises(BrokerError, match=r"RLIMIT_NOFILE.*room for 361") as error:
            change()
        assert refused_with(error) is ErrorCode.INVALID_PARTITIONS


def test_validation_alone_changes_nothing(directory: Directory) -> None:
    table = directory.open()
    made = table.create("orders", 1, {})
    table.add_partitions("orders", 5, validate_only=True)
    table.set_properties("orders", {"retention.ms": "6000"}, validate_only=True)
    assert table.get("orders") == made


def test_topic_without_all_its_partitions_is_completed_at_the_start(directory: Directory) -> None:
    made = directory.open().create("orders", 4, {})
    shutil.rmtree(directory.path / "orders-3")
    again = directory.open().get("orders")
    assert again is not None
    assert (len(again.partitions), again.topic_id) == (4, made.topic_id)


def test_growth_that_the_disk_refuses_leaves_the_topic_as_it_was(directory: Directory) -> None:
    disk = FaultyDisk()
    table = directory.open(disk)
    table.create("orders", 1, {})
    for call, after in (("mkdir", 1), ("pwrite", 0)):  # of the third partition; of the record
        disk.fail = failing(call, after=after, code=errno.ENOSPC)
        with pytest.raises(BrokerError) as error:
            table.add_partitions("orders", 4, validate_only=False)
        assert refused_with(error) is ErrorCode.KAFKA_STORAGE_ERROR
        disk.fail = None
        assert (len(table.all()[0].partitions), len(table.image.partitions), table.is_changing("orders")) == (
            1,
            1,
            False,
        )
    table.add_partitions("orders", 4, validate_only=False)
    assert len(directory.open().all()[0].partitions) == 4


def test_ids_of_partitions_that_a_crash_tore_are_those_of_the_metadata(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={"orders": 2})
    made = box.broker.topics.get("orders")
    box.broker.close()
    for index in range(2):
        (tmp_path / "data" / f"orders-{index}" / PARTITION_METADATA).write_bytes(b"")
    again = BrokerWithoutSockets(tmp_path).broker.topics.get("orders")
    assert again is not None
    assert made is not None
    assert again.topic_id == made.topic_id


def test_a_partition_keeps_one_file_open(directory: Directory) -> None:
    table = directory.open()
    gc.collect()
    before = len(open_descriptors())
    topic = table.create("orders", 600, {"index.interval.bytes": "1"})
    assert len(open_descriptors()) == before + 600
    for partition in topic.partitions:
        for _ in range(2):  # the second one has an entry in the index
            partition.log.append(make_batch([b"v"]), 0)
    gc.collect()
    assert len(open_descriptors()) <= before + 600 + 512  # of all indexes together
    table.delete("orders")
    del topic, partition
    gc.collect()
    assert len(open_descriptors()) <= before + 2  # the indexes of the metadata log


def test_partitions_nobody_wrote_down_are_taken_over(directory: Directory) -> None:
    directory.open().create("orders", 2, {})
    shutil.rmtree(directory.path / METADATA_DIRECTORY)
    again = directory.open().get("orders")
    assert again is not None
    assert len(again.partitions) == 2


def test_partitions_of_another_topic_of_the_name_are_taken_over_with_their_id(directory: Directory) -> None:
    table = directory.open()
    table.create("orders", 2, {"flush.ms": "9"})
    other = Directory(directory.path.parent / "other")
    stranger = other.open().create("orders", 3, {})
    other.close()
    for index in range(2):
        shutil.rmtree(directory.path / f"orders-{index}")
    for index in range(3):
        shutil.move(other.path / f"orders-{index}", directory.path)
    again = directory.open().get("orders")
    assert again is not None
    assert (again.topic_id, len(again.partitions), again.properties) == (stranger.topic_id, 3, {"flush.ms": "9"})


def test_metadata_log_of_apache_kafka_is_set_aside(directory: Directory, caplog: pytest.LogCaptureFixture) -> None:
    directory.open().create("orders", 2, {})
    directory.close()
    shutil.rmtree(directory.path / METADATA_DIRECTORY)
    log_dir = open_log_dir(str(directory.path), make_environment())
    log = log_dir.create(METADATA_PARTITION, METADATA_TOPIC_ID)
    log.append_internal(make_batch(attributes=0x20), 1)  # the leader that the quorum has elected
    log_dir.close()
    again = directory.open().get("orders")
    assert again is not None
    assert len(again.partitions) == 2
    assert "set aside" in caplog.text
    assert len(list(directory.path.glob(f"{METADATA_DIRECTORY}.*-stray"))) == 1
    directory.open().create("more", 1, {})
    assert [topic.name for topic in directory.open().all()] == ["more", "orders"]


def test_damaged_metadata_stops_the_start(directory: Directory) -> None:
    directory.open().create("orders", 2, {})
    directory.close()
    log = directory.path / METADATA_DIRECTORY / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:100] + b"\xff" * 8 + log.read_bytes()[108:])
    (directory.path / ".kafka_cleanshutdown").unlink()
    with pytest.raises(KafkaError):
        directory.open()


def test_deleted_topic_is_gone_and_its_name_is_free(directory: Directory) -> None:
    table = directory.open()
    old = table.create("orders", 2, {})
    table.delete("orders")
    assert (table.get("orders"), table.by_id(old.topic_id), table.partition("orders", 0)) == (None, None, None)
    assert directory.open().get("orders") is None
    assert directory.open().create("orders", 1, {}).topic_id != old.topic_id


def test_internal_topic_cannot_be_deleted(directory: Directory) -> None:
    table = directory.open()
    table.create("__consumer_offsets", 1, {})
    with pytest.raises(BrokerError) as error:
        table.delete("__consumer_offsets")
    assert refused_with(error) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("count", [0, 1, 2])
def test_number_of_partitions_can_only_grow(directory: Directory, count: int) -> None:
    table = directory.open()
    table.create("orders", 2, {})
    with pytest.raises(BrokerError) as error:
        table.add_partitions("orders", count, validate_only=False)
    assert refused_with(error) is ErrorCode.INVALID_PARTITIONS


def test_partitions_are_found_by_index_only(directory: Directory) -> None:
    table = directory.open()
    table.create("orders", 2, {})
    assert table.partition("orders", 1) is not None
    assert [table.partition("orders", index) for index in (-1, 2)] == [None, None]


def test_moving_watermark_is_reported_by_partition(directory: Directory) -> None:
    topic = directory.open().create("orders", 2, {})
    topic.partitions[1].log.append(memoryview(make_batch()), 0)
    assert directory.moved == [TopicPartition("orders", 1)]


def test_leader_epoch_does_not_fall_below_the_logs(directory: Directory) -> None:
    table = directory.open()
    table.create("orders", 1, {})
    for _ in range(3):
        table.move_leader("orders", 0)
    partition = table.partition("orders", 0)
    assert partition is not None
    partition.log.append(memoryview(make_batch()), partition.leader_epoch)
    again = directory.open().partition("orders", 0)
    assert again is not None
    assert again.leader_epoch == 3


def test_metadata_is_synced_once_for_many_topics(tmp_path: Path) -> None:
    disk = FaultyDisk()
    box = BrokerWithoutSockets(tmp_path, disk=disk)
    try:
        names = [f"topic-{number}" for number in range(20)]
        wanted = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in [*names, "a b", ".."]]
        before = metadata_syncs(disk)
        made = box.ask(CreateTopicsRequest(topics=wanted), CreateTopicsResponse, 7)
        assert [topic.error_code for topic in made.topics] == [0] * 20 + [17, 17]
        assert metadata_syncs(disk) == before + 1
        assert {topic.name: topic.topic_id for topic in made.topics[:20]} == {
            topic.name: topic.topic_id for topic in box.broker.topics.all()
        }
        gone = box.ask(DeleteTopicsRequest(topic_names=names[:10]), DeleteTopicsResponse, 5)
        assert {topic.error_code for topic in gone.responses} == {0}
        assert metadata_syncs(disk) == before + 2
    finally:
        box.broker.close()
    again = BrokerWithoutSockets(tmp_path)
    assert [topic.name for topic in again.broker.topics.all()] == sorted(names[10:])
    again.broker.close()


def test_topics_that_were_written_down_are_made_at_the_start_after_a_crash(directory: Directory) -> None:
    table = directory.open()
    table.create("there", 1, {})
    for name, count in (("a", 2), ("b", 3), ("c", 1)):
        table.begin(wanted_topic(name, count))
    table.abandon("c")
    table.sync()
    for _ in table.making("a"):
        pass
    made = table.get("a")
    assert made is not None
    again = directory.open()
    assert [(topic.name, len(topic.partitions)) for topic in again.all()] == [("a", 2), ("b", 3), ("there", 1)]
    assert again.all()[0].topic_id == made.topic_id


def test_topic_that_cannot_be_written_down_leaves_nothing(directory: Directory) -> None:
    disk = FaultyDisk()
    table = directory.open(disk)
    disk.fail = failing("pwrite", after=0, code=errno.ENOSPC)
    with pytest.raises(BrokerError) as error:
        table.create("a", 1, {})
    assert refused_with(error) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail = None
    table.create("b", 1, {})
    assert [topic.name for topic in directory.open().all()] == ["b"]


def test_topic_whose_deletion_cannot_be_written_down_can_be_made_again(directory: Directory) -> None:
    disk = FaultyDisk()
    table = directory.open(disk)
    old_id = table.create("a", 2, {}).topic_id
    disk.fail = failing("pwrite", after=0, code=errno.ENOSPC)
    with pytest.raises(BrokerError) as error:
        table.delete("a")
    assert (refused_with(error), table.get("a")) == (ErrorCode.KAFKA_STORAGE_ERROR, None)
    disk.fail = None
    assert table.create("a", 1, {}).topic_id != old_id
    assert [len(topic.partitions) for topic in directory.open().all()] == [1]


def test_disk_that_dies_at_any_call_leaves_whole_topics(directory: Directory, tmp_path: Path) -> None:
    changes = {
        "made": lambda table: table.create("new", 2, {"flush.ms": "9"}),
        "grown": lambda table: table.add_partitions("old", 4, validate_only=False),
        "deleted": lambda table: table.delete("old"),
        "set": lambda table: table.set_properties("old", {"flush.ms": "7"}, validate_only=False),
    }
    directory.open().create("old", 2, {"flush.ms": "5"})
    directory.close()
    for name, change in changes.items():
        whole = {"old": (2, {"flush.ms": "5"}), "new": (2, {"flush.ms": "9"})}
        for call in itertools.count():
            copied = Directory(tmp_path / f"{name}-{call}")
            shutil.copytree(directory.path, copied.path)
            disk = FaultyDisk()
            table = copied.open(disk)
            disk.fail = dying_after(call)
            is_acknowledged = True
            try:
                change(table)
            except BrokerError:
                is_acknowledged = False
            copied.close()
            after = {topic.name: (len(topic.partitions), topic.properties) for topic in copied.open().all()}
            copied.close()
            shutil.rmtree(copied.path)
            assert after.get("new", whole["new"]) == whole["new"], (name, call)
            assert after.get("old", whole["old"])[0] in ((2, 3, 4) if name == "grown" else (2,)), (name, call)
            options = {"flush.ms": "7"} if name == "set" else {"flush.ms": "5"}
            assert after.get("old", whole["old"])[1] in (whole["old"][1], options), (name, call)
            if is_acknowledged:
                assert ("new" in after, "old" in after) == (name == "made", name != "deleted"), (name, call)
                assert name != "grown" or after["old"][0] == 4
                assert name != "set" or after["old"][1] == options
                break
            assert call < 100


def dying_after(calls: int) -> Callable[[str, str], int | None]:
    """A disk that refuses every call behind the first ones, as if the process had ended there."""
    left = itertools.count(calls, -1)
    return lambda *_: None if next(left) > 0 else errno.EIO


def test_topics_have_other_ids_in_another_directory_and_after_each_start(directory: Directory) -> None:
    ids = {directory.open().create(name, 1, {}).topic_id for name in "ab"}
    ids |= {Directory(directory.path.parent / name).open().create("a", 1, {}).topic_id for name in "cd"}
    assert len(ids) == 4


def test_deleted_partitions_are_freed_without_the_collector_of_cycles(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={"orders": 20})
    data = [PartitionProduceData(index=index, records=memoryview(make_batch())) for index in range(20)]
    produce = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="orders", partition_data=data)])
    places = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(20)]
    fetch = FetchRequest(max_wait_ms=500, min_bytes=2**31 - 1, topics=[FetchTopic(topic="orders", partitions=places)])
    gc.collect()
    gc.disable()
    try:
        (written,) = box.begin(produce, 9)
        waiting = box.begin(fetch, 11)
        box.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1), DeleteTopicsResponse, 5)
        del written, waiting, produce, data, fetch, places
        logs = [log for log in gc.get_objects() if isinstance(log, ReadableLog)]
        left = [log for log in logs if log.topic_partition != METADATA_PARTITION]
    finally:
        gc.enable()
    assert not left


@pytest.mark.parametrize("counts", [(1, 2), (3, 5), (2, 3, 8)])
def test_options_of_a_topic_are_those_of_all_its_partitions_also_of_later_ones(
    directory: Directory, counts: tuple[int, ...]
) -> None:
    topics = directory.open()
    topics.create("a", counts[0], {"retention.ms": "6000"})
    for number, count in enumerate(counts[1:], 1):
        topics.add_partitions("a", count, validate_only=False)
        assert retentions_of(topics) == [6000 * number] * count
        topics.set_properties("a", {"retention.ms": str(6000 * (number + 1))}, validate_only=False)
        assert retentions_of(topics) == [6000 * (number + 1)] * count


def retentions_of(topics: OwnTopics) -> list[int]:
    topic = topics.get("a")
    assert topic is not None
    return [partition.log.config.retention_ms for partition in topic.partitions]
