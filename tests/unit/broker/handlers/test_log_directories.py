"""What a broker with several log directories answers: where partitions are, how they move, what a failed one hides."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkaprod.broker.config import BrokerConfig
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kafkaprod.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kafkaprod.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from kafkaprod.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from kafkaprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kafkaprod.structs import TopicPartition
from tests.support.broker.broker_requests import TOPIC, fetch, metadata, produce
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import FaultyDisk, make_batch

OTHER_DISK, FIRST_DISK = 0, 1  # the partition that is made on each: the first one has the metadata already


def open_box(path: Path, disk: FaultyDisk | None = None) -> BrokerWithoutSockets:
    options = {} if disk is None else {"disk": disk}
    return BrokerWithoutSockets(path, topics={TOPIC: 2}, log_dirs=(str(path / "other"),), **options)


def describe(box: BrokerWithoutSockets, partitions: list[int] | None = None) -> list[DescribeLogDirsResult]:
    topics = None if partitions is None else [DescribableLogDirTopic(topic=TOPIC, partitions=partitions)]
    return box.ask(DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse, 4).results


def places(box: BrokerWithoutSockets, partitions: list[int] | None = None) -> list[list[tuple[int, int, int, bool]]]:
    return [
        [
            (each.partition_index, each.partition_size, each.offset_lag, each.is_future_key)
            for topic in found.topics
            for each in topic.partitions
        ]
        for found in describe(box, partitions)
    ]


def alter(box: BrokerWithoutSockets, path: str, *partitions: int, topic: str = TOPIC) -> list[int]:
    named = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))])
    answer = box.ask(AlterReplicaLogDirsRequest(dirs=[named]), AlterReplicaLogDirsResponse, 2)
    return [outcome.error_code for topic in answer.results for outcome in topic.partitions]


def latest(box: BrokerWithoutSockets, partition: int) -> int:
    wanted = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)])
    answer = box.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), ListOffsetsResponse, 7)
    return answer.topics[0].partitions[0].error_code


def test_directories_are_described_with_what_moves_between_them(tmp_path: Path) -> None:
    box = open_box(tmp_path)
    first, other = box.broker.log_dirs.paths
    batch = make_batch()
    for partition in (OTHER_DISK, FIRST_DISK):
        produce(box, batch, partition=partition)
    assert places(box) == [[(1, len(batch), 0, False)], [(0, len(batch), 0, False)]]
    assert places(box, [1]) == [[(1, len(batch), 0, False)], []]
    assert [found.log_dir for found in describe(box)] == [first, other]
    assert box.broker.describe_options()["log.dirs"] == f"{first},{other}"
    assert alter(box, first, OTHER_DISK, FIRST_DISK) == [ErrorCode.NONE, ErrorCode.NONE]
    assert places(box) == [[(0, 0, 1, True), (1, len(batch), 0, False)], [(0, len(batch), 0, False)]]
    box.broker.log_dirs.step(1)
    assert places(box) == [[(0, len(batch), 0, False), (1, len(batch), 0, False)], []]
    assert len(fetch(box, partition=OTHER_DISK).records or b"") == len(batch)
    assert produce(box, batch, partition=OTHER_DISK).base_offset == 1


def test_where_partitions_cannot_go(tmp_path: Path) -> None:
    box = open_box(tmp_path)
    _, other = box.broker.log_dirs.paths
    assert alter(box, "/elsewhere", 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert alter(box, other, 9) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert alter(box, "/elsewhere", 9) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert not box.broker.log_dirs.moves


def test_topic_to_come_is_made_where_it_was_wished(tmp_path: Path) -> None:
    box = open_box(tmp_path)
    first, other = box.broker.log_dirs.paths
    for place in (first, other):
        name = Path(place).name
        assert alter(box, place, 0, 1, topic=name) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
        wanted = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        box.ask(CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse, 5)
        logs = [box.broker.log_dirs.partitions[TopicPartition(name, index)] for index in (0, 1)]
        assert [str(Path(log.directory).parent) for log in logs] == [place, place]


def test_directory_that_fails_hides_its_own_partitions_only(tmp_path: Path) -> None:
    disk = FaultyDisk()
    box = open_box(tmp_path, disk)
    first, other = box.broker.log_dirs.paths
    produce(box, make_batch(), partition=OTHER_DISK)
    disk.fail = lambda _, path: errno.EIO if path.startswith(other) else None
    assert produce(box, make_batch(), partition=OTHER_DISK).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail = None
    check_hidden(box, first, other)
    box.broker.close()
    again = open_box(tmp_path)
    assert fetch(again, partition=OTHER_DISK).high_watermark == 1
    again.broker.close()


def test_broker_that_starts_without_a_directory_hides_its_partitions_only(tmp_path: Path) -> None:
    box = open_box(tmp_path)
    first, other = box.broker.log_dirs.paths
    produce(box, make_batch(), partition=OTHER_DISK)
    box.broker.close()
    Path(other).rename(tmp_path / "away")
    Path(other).write_text("no directory")
    box = open_box(tmp_path)
    check_hidden(box, first, other)
    box.broker.set_options({"": {"log.retention.ms": "1000"}}, validate_only=False)
    box.broker.topics.set_properties(TOPIC, {"retention.ms": "2000"}, validate_only=False)
    box.broker.close()
    Path(other).unlink()
    (tmp_path / "away").rename(other)
    again = open_box(tmp_path)
    assert fetch(again, partition=OTHER_DISK).high_watermark == 1
    assert again.broker.log_dirs.partitions[TopicPartition(TOPIC, OTHER_DISK)].config.retention_ms == 2000
    again.broker.close()


def check_hidden(box: BrokerWithoutSockets, first: str, other: str) -> None:
    """Use a partition of a directory that is offline, in every way, and one of the other directory."""
    offline = ErrorCode.KAFKA_STORAGE_ERROR
    assert [(found.log_dir, found.error_code) for found in describe(box)] == [(first, 0), (other, offline)]
    assert produce(box, make_batch(), partition=OTHER_DISK).error_code == offline
    assert [fetch(box, offset, partition=OTHER_DISK).error_code for offset in (0, 1)] == [offline, offline]
    assert latest(box, OTHER_DISK) == offline
    assert alter(box, first, OTHER_DISK) == [offline]
    assert alter(box, other, FIRST_DISK) == [offline]
    wanted = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=OTHER_DISK, offset=0)])
    deleted = box.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=1), DeleteRecordsResponse, 2)
    assert deleted.topics[0].partitions[0].error_code == offline
    described = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[OTHER_DISK])])
    answer = box.ask(described, DescribeProducersResponse, 0)
    assert answer.topics[0].partitions[0].error_code == offline
    removal = DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1)
    assert box.ask(removal, DeleteTopicsResponse, 5).responses[0].error_code == offline
    (topic,) = metadata(box, [TOPIC]).topics
    assert {each.partition_index: each.offline_replicas for each in topic.partitions} == {
        OTHER_DISK: [0],
        FIRST_DISK: [],
    }
    assert produce(box, make_batch(), partition=FIRST_DISK).error_code == ErrorCode.NONE
    assert fetch(box, partition=FIRST_DISK).error_code == ErrorCode.NONE
    assert latest(box, FIRST_DISK) == ErrorCode.NONE
    wish = CreatableTopic(name="later", num_partitions=1, replication_factor=1)
    made = box.ask(CreateTopicsRequest(topics=[wish]), CreateTopicsResponse, 5)
    assert made.topics[0].error_code == ErrorCode.NONE


def test_directory_with_the_metadata_must_be_the_first(tmp_path: Path) -> None:
    box = open_box(tmp_path)
    first, other = box.broker.log_dirs.paths
    box.broker.close()
    with pytest.raises(ConfigError, match=f"{first} has: the one with __cluster_metadata-0 must be data_dir"):
        BrokerWithoutSockets(tmp_path / "new", log_dirs=(other, first))


def test_metadata_of_another_directory_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, count in (("one", 1), ("two", 30)):  # the other one's is longer
        BrokerWithoutSockets(tmp_path / name, cluster_id="c" * 22, topics={name: count}).broker.close()
    box = BrokerWithoutSockets(tmp_path / "one", log_dirs=(str(tmp_path / "two" / "data"),))
    assert "set aside" in caplog.text
    assert [topic.name for topic in box.broker.topics.all()] == ["one", "two"]
    box.broker.close()


def test_directories_are_counted() -> None:
    with pytest.raises(ConfigError, match="log_dirs has 16 directories, the limit is 15"):
        BrokerConfig(data_dir="a", log_dirs=tuple(map(str, range(16))))
