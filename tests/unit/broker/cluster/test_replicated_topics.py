"""The topics of a cluster's broker: the table of the metadata, logs of replicas, changes by the controller."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.cluster.replicated_topics import ReplicatedTopics
from kafkaprod.broker.controller.context import TOPIC_RESOURCE
from kafkaprod.broker.metadata.image import BrokerImage, PartitionImage, TopicImage
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.log_dir import LogDir, open_log_dir
from kafkaprod.broker.storage.log.log_dirs import LogDirs
from kafkaprod.protocol.error_codes import ErrorCode as E
from kafkaprod.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkaprod.protocol.schema import Request, Response
from kafkaprod.structs import TopicPartition
from tests.support.broker.fixtures_log import make_batch, make_environment

TOPIC_ID = uuid.UUID(int=7)
KEY = (TOPIC_ID, 0)


class Rig:
    """The topics of broker 1, and a controller that answers what a test says."""

    def __init__(self, log_dir: LogDir) -> None:
        self.log_dir = log_dir
        self.moved: list[TopicPartition] = []
        self.asked: list[Any] = []
        self.answer: Response | None = None
        self.topics = ReplicatedTopics(LogDirs([log_dir]), LogConfig(), self.moved.append, 2)
        self.topics.ask_controller = self._ask

    def describe(self, name: str = "t", topic_id: uuid.UUID = TOPIC_ID, partitions: int = 1) -> None:
        image = self.topics.image
        image.topics[topic_id], image.topic_ids[name] = TopicImage(name, topic_id), topic_id
        for index in range(partitions):
            image.partitions[topic_id, index] = PartitionImage(topic_id, index, (1, 2), (1, 2), 1, 3, 4)
        self.topics.publish({}, [(topic_id, 0)])

    def _ask(self, request: Request) -> Response | None:
        self.asked.append(request)
        return self.answer


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    log_dir = open_log_dir(str(tmp_path / "data"), make_environment())
    yield Rig(log_dir)
    log_dir.close()


def drain(steps: Iterator[Any]) -> None:
    for _ in steps:
        pass


def test_the_table_shows_the_metadata(rig: Rig) -> None:
    rig.describe(partitions=2)
    topic = rig.topics.get("t")
    assert topic is not None
    assert (topic.topic_id, len(topic.partitions)) == (TOPIC_ID, 2)
    assert [(partition.leader_epoch, partition.has_log) for partition in topic.partitions] == [(3, False)] * 2
    assert rig.moved == [TopicPartition("t", 0)], "requests that wait for it are tried again"
    with pytest.raises(RequestRefusedError, match="no replica"):
        _ = topic.partitions[0].log


def test_topics_are_found_by_their_ids_as_they_come_go_and_come_again(rig: Rig) -> None:
    rig.describe("t", partitions=1)
    other_id, again_id = uuid.UUID(int=8), uuid.UUID(int=9)
    rig.describe("u", other_id)
    assert [rig.topics.name_of("", each) for each in (TOPIC_ID, other_id)] == ["t", "u"]
    del rig.topics.image.topics[TOPIC_ID]
    rig.describe("t", again_id)  # before the table has seen that the other has gone
    assert [rig.topics.name_of("", each) for each in (TOPIC_ID, other_id, again_id)] == [None, "u", "t"]
    rig.topics.publish({}, [KEY])
    assert [rig.topics.name_of("", each) for each in (TOPIC_ID, other_id, again_id)] == [None, "u", "t"]
    with pytest.raises(RequestRefusedError, match="already exists"):
        rig.topics.check_new("t", 1, {})


@pytest.mark.parametrize(
    ("is_fenced", "isr", "partition_epoch", "expected"),
    [
        (True, (1,), 1, True),
        (True, (2,), 1, False),  # it will fetch all before it counts
        (False, (1,), 1, False),  # made while this process runs
        (True, (1,), 0, False),  # made while all its brokers were away
        (None, (1,), 1, False),
    ],
)
def test_a_replica_had_a_log_if_the_isr_has_a_broker_that_is_fenced_yet(
    rig: Rig, is_fenced: bool | None, isr: tuple[int, ...], partition_epoch: int, expected: bool
) -> None:
    rig.topics.image.partitions[KEY] = PartitionImage(TOPIC_ID, 0, (1, 2), isr, 1, 0, partition_epoch)
    if is_fenced is not None:
        rig.topics.image.brokers[1] = BrokerImage(1, 0, uuid.UUID(int=1), None, is_fenced, in_controlled_shutdown=False)
    assert rig.topics.had_log(KEY, 1) is expected


def test_a_replicas_log_is_made_used_and_deleted(rig: Rig) -> None:
    rig.describe()
    replica = rig.topics.open_log(KEY)
    replica.log.append(bytearray(make_batch()), 3)
    assert replica.high_watermark == 0, "replication moves it, not the append"
    replica.high_watermark = 1
    assert rig.moved[-1] == TopicPartition("t", 0)
    rig.topics.publish({}, [KEY])
    partition = rig.topics.partition("t", 0)
    assert partition is not None
    assert partition.log.log_end_offset == 1
    rig.topics.drop_log(KEY)
    assert dict(rig.log_dir.partitions) == {}


def test_logs_without_a_replica_are_set_aside(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.describe()
    rig.topics.open_log(KEY)
    rig.log_dir.create(TopicPartition("gone", 0), uuid.UUID(int=8)).append(bytearray(make_batch()), 0)
    rig.topics.set_strays_aside()
    assert set(rig.log_dir.partitions) == {TopicPartition("t", 0)}
    assert "gone" in caplog.text
    (stray,) = Path(rig.log_dir.path).glob("gone-0.*-stray")
    assert (stray / "00000000000000000000.log").stat().st_size
    rig.log_dir.purge_deleted()
    rig.log_dir.close()
    again = open_log_dir(rig.log_dir.path, make_environment())
    assert set(again.partitions) == {TopicPartition("t", 0)}
    again.close()
    assert stray.exists()


def test_options_of_topics_reach_their_logs(rig: Rig) -> None:
    rig.describe()
    replica = rig.topics.open_log(KEY)
    assert rig.topics.min_isr("t") == 2, "the cluster's"
    rig.topics.image.configs[TOPIC_RESOURCE, "t"] = {"retention.ms": "5000", "min.insync.replicas": "1"}
    rig.topics.image.settings_offset += 1
    rig.topics.follow_configs()
    assert (replica.log.config.retention_ms, rig.topics.min_isr("t")) == (5000, 1)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (None, E.REQUEST_TIMED_OUT),
        (DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", error_code=3)]), E.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_the_controllers_refusal_is_the_clients(rig: Rig, answer: Response | None, code: E) -> None:
    rig.describe()
    rig.answer = answer
    with pytest.raises(RequestRefusedError) as refused:
        drain(rig.topics.deleting("t"))
    assert refused.value.code == code


def test_only_options_that_differ_are_sent(rig: Rig) -> None:
    rig.describe()
    rig.topics.image.configs[TOPIC_RESOURCE, "t"] = {"retention.ms": "1", "segment.bytes": "1048576"}
    rig.topics.image.settings_offset += 1
    rig.topics.follow_configs()
    rig.topics.set_properties("t", {"retention.ms": "1", "segment.bytes": "1048576"}, validate_only=False)
    assert rig.asked == []
    rig.answer = IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(error_code=0)])
    rig.topics._await = lambda condition: None  # type: ignore[method-assign]
    rig.topics.set_properties("t", {"retention.ms": "2"}, validate_only=False)
    (request,) = rig.asked
    assert isinstance(request, IncrementalAlterConfigsRequest)
    changes = {(each.name, each.config_operation, each.value) for each in request.resources[0].configs}
    assert changes == {("retention.ms", 0, "2"), ("segment.bytes", 1, None)}


def test_a_topic_is_shown_when_all_of_it_is_followed(rig: Rig) -> None:
    image = rig.topics.image
    image.topics[TOPIC_ID], image.topic_ids["t"] = TopicImage("t", TOPIC_ID), TOPIC_ID
    for index in range(3):
        image.partitions[TOPIC_ID, index] = PartitionImage(TOPIC_ID, index, (1, 2), (1, 2), 1, 3, 4)
    rig.topics.publish({}, [KEY], lambda topic_id: topic_id == TOPIC_ID)
    assert rig.topics.get("t") is None
    rig.topics.publish({}, [(TOPIC_ID, 1), (TOPIC_ID, 2)])
    topic = rig.topics.get("t")
    assert topic is not None
    assert len(topic.partitions) == 3
    image.partitions[TOPIC_ID, 3] = PartitionImage(TOPIC_ID, 3, (1, 2), (1, 2), 1, 3, 4)
    image.partitions[KEY] = PartitionImage(TOPIC_ID, 0, (1, 2), (1, 2), 2, 4, 5)
    rig.topics.publish({}, [KEY], lambda topic_id: topic_id == TOPIC_ID)
    grown = rig.topics.get("t")
    assert grown is not None
    assert [partition.leader_epoch for partition in grown.partitions] == [4, 3, 3]
    assert grown.partitions[1] is topic.partitions[1], "what has not changed is kept"


def test_a_topic_that_is_gone_is_shown_no_more_though_its_name_is_used_again(rig: Rig) -> None:
    rig.describe()
    successor = uuid.UUID(int=99)
    del rig.topics.image.topics[TOPIC_ID], rig.topics.image.partitions[KEY]
    rig.topics.publish({}, [KEY])
    assert rig.topics.get("t") is None
    rig.describe(topic_id=successor)
    rig.topics.publish({}, [KEY])
    topic = rig.topics.get("t")
    assert topic is not None
    assert topic.topic_id == successor


def test_deleting_the_log_of_an_older_topic_leaves_its_successors(rig: Rig) -> None:
    rig.describe()
    rig.topics.open_log(KEY)
    successor = uuid.UUID(int=99)
    rig.describe(topic_id=successor)
    rig.topics.open_log((successor, 0)).log.append(bytearray(make_batch()), 3)
    rig.topics.drop_log(KEY)
    assert [log.log_end_offset for log in rig.log_dir.partitions.values()] == [1]
