"""What the handlers of metadata, topics and options answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.handlers.metadata import MAX_CREATED_AT_ONCE
from kafkaprod.broker.storage.errors import LogError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kafkaprod.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaprod.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kafkaprod.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kafkaprod.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.support.broker.broker_requests import TOPIC, commit, committed, fetch, metadata, produce
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import make_batch


@pytest.fixture
def box(tmp_path: Path) -> BrokerWithoutSockets:
    return BrokerWithoutSockets(tmp_path, topics={TOPIC: 2})


def test_the_name_of_the_metadata_log_is_no_topics(box: BrokerWithoutSockets) -> None:
    name = "__cluster_metadata"
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    (made,) = box.ask(CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse, 7).topics
    assert made.error_code == ErrorCode.INVALID_REQUEST
    assert metadata(box, [name]).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [topic.name for topic in metadata(box, None).topics] == [TOPIC]


def test_metadata_describes_cluster_and_topics(box: BrokerWithoutSockets) -> None:
    answer = metadata(box, None)
    (broker,) = answer.brokers
    (topic,) = answer.topics
    assert (broker.node_id, answer.controller_id, answer.cluster_id) == (0, 0, box.broker.cluster_id)
    assert [partition.partition_index for partition in topic.partitions] == [0, 1]
    partition = topic.partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes, partition.isr_nodes) == (
        0,
        0,
        [0],
        [0],
    )
    assert len(metadata(box, [], version=0).topics) == 1
    assert metadata(box, [], version=1).topics == []


def test_metadata_finds_topics_by_id(box: BrokerWithoutSockets) -> None:
    topic_id = metadata(box, None, version=12).topics[0].topic_id
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
    assert box.ask(request, MetadataResponse, 12).topics[0].name == TOPIC
    request.topics[0].topic_id = box.own_topics.create("gone", 1, {}).topic_id  # type: ignore[index]
    box.own_topics.delete("gone")
    answer = box.ask(request, MetadataResponse, 12).topics[0]
    assert (answer.error_code, answer.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


@pytest.mark.parametrize(
    ("may_create", "is_allowed", "name", "expected"),
    [
        (True, True, "fresh", ErrorCode.NONE),
        (True, False, "fresh", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (False, True, "fresh", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (True, True, "not a name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (False, False, "not a name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (True, True, "orders.new", ErrorCode.NONE),
    ],
)
def test_topics_are_made_on_request_only_if_both_sides_want_it(
    tmp_path: Path, may_create: bool, is_allowed: bool, name: str, expected: ErrorCode
) -> None:
    box = BrokerWithoutSockets(tmp_path, auto_create_topics=may_create, num_partitions=3)
    answer = metadata(box, [name], allow_auto_topic_creation=is_allowed).topics[0]
    assert (answer.error_code, len(answer.partitions)) == (expected, 0 if expected else 3)


def test_one_request_makes_a_hundred_topics_and_the_next_one_the_rest(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, auto_create_topics=True)
    names = [f"topic-{index:03}" for index in range(MAX_CREATED_AT_ONCE + 5)]
    codes = [topic.error_code for topic in metadata(box, names).topics]
    assert codes == [ErrorCode.NONE] * MAX_CREATED_AT_ONCE + [ErrorCode.LEADER_NOT_AVAILABLE] * 5
    assert {topic.error_code for topic in metadata(box, names).topics} == {ErrorCode.NONE}


@pytest.mark.parametrize(("key_type", "name"), [(0, "__consumer_offsets"), (1, "__transaction_state")])
def test_first_request_for_a_coordinator_makes_its_topic(box: BrokerWithoutSockets, key_type: int, name: str) -> None:
    topics = {topic.name for topic in box.broker.topics.all()}
    for _ in range(2):
        assert box.ask(FindCoordinatorRequest(key="g", key_type=key_type), FindCoordinatorResponse, 2).error_code == 0
    assert {topic.name for topic in box.broker.topics.all()} - topics == {name}
    wanted = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    described = {topic.name: topic for topic in box.ask(wanted, MetadataResponse, 9).topics}
    assert (described[name].is_internal, len(described[name].partitions)) == (True, 1)


def test_coordinator_without_its_topic_is_not_available(
    box: BrokerWithoutSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise LogError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

    monkeypatch.setattr(box.broker.standing, "make_internal_log", refuse)
    answer = box.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 2)
    assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


def test_coordinator_of_groups_is_this_broker(box: BrokerWithoutSockets) -> None:
    old = box.ask(FindCoordinatorRequest(key="g"), FindCoordinatorResponse, 2)
    assert (old.error_code, old.node_id, old.host) == (0, 0, "127.0.0.1")
    answer = box.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"]), FindCoordinatorResponse, 4)
    assert [(entry.key, entry.node_id, entry.error_code) for entry in answer.coordinators] == [("g", 0, 0), ("h", 0, 0)]


def test_producer_ids_differ(box: BrokerWithoutSockets) -> None:
    request = InitProducerIdRequest(transaction_timeout_ms=1)
    answers = [box.ask(request, InitProducerIdResponse, 4) for _ in range(3)]
    assert [(answer.producer_id, answer.producer_epoch) for answer in answers] == [(0, 0), (1, 0), (2, 0)]


def create(box: BrokerWithoutSockets, *topics: CreatableTopic, **change: Any) -> list[tuple[str, int]]:
    answer = box.ask(CreateTopicsRequest(topics=list(topics), **change), CreateTopicsResponse, 7)
    return [(entry.name, entry.error_code) for entry in answer.topics]


def topic(name: str, count: int = 1, factor: int = 1, **configs: str) -> CreatableTopic:
    options = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=count, replication_factor=factor, configs=options)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (topic("fresh", 3), ErrorCode.NONE),
        (topic("fresh", -1, -1), ErrorCode.NONE),
        (topic("fresh", 1, 1, retention_ms="5"), ErrorCode.NONE),
        (topic(TOPIC), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("no/name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("fresh", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("fresh", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("fresh", 1, 1, no_such="5"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_create_topics_answers_each_topic(
    box: BrokerWithoutSockets, wanted: CreatableTopic, expected: ErrorCode
) -> None:
    assert create(box, wanted) == [(wanted.name, expected)]
    assert (box.broker.topics.get("fresh") is not None) == (expected is ErrorCode.NONE)


@pytest.mark.parametrize(
    ("brokers", "expected"),
    [
        ({0: [0], 1: [0]}, ErrorCode.NONE),
        ({0: [0], 2: [0]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [0, 1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_manual_assignment_must_fit_the_one_broker(
    box: BrokerWithoutSockets, brokers: dict[int, list[int]], expected: ErrorCode
) -> None:
    wanted = topic("fresh", -1, -1)
    wanted.assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in brokers.items()
    ]
    assert create(box, wanted) == [("fresh", expected)]
    wanted.num_partitions = 2
    assert create(box, wanted) == [("fresh", ErrorCode.INVALID_REQUEST)]


def test_topic_named_twice_is_not_created(box: BrokerWithoutSockets) -> None:
    assert create(box, topic("a"), topic("a"), topic("b")) == [("a", 42), ("a", 42), ("b", 0)]


def test_one_request_makes_ten_thousand_partitions_at_most(box: BrokerWithoutSockets) -> None:
    wanted = [topic("a", 5_001), topic("b", 5_000)]
    assert create(box, *wanted, validate_only=True) == [("a", 44), ("b", 44)]
    assert create(box, *wanted) == [("a", 44), ("b", 44)]
    assert box.broker.topics.get("a") is None
    create(box, topic("c"))
    grown = [CreatePartitionsTopic(name=name, count=6_000) for name in (TOPIC, "c")]
    answer = box.ask(CreatePartitionsRequest(topics=grown), CreatePartitionsResponse, 3)
    assert [entry.error_code for entry in answer.results] == [ErrorCode.POLICY_VIOLATION] * 2
    assert "10000: split it" in str(answer.results[0].error_message)
    assert create(box, topic("a", 5_000), topic("b", 5_000), validate_only=True) == [("a", 0), ("b", 0)]


def test_validate_only_creates_nothing(box: BrokerWithoutSockets) -> None:
    assert create(box, topic("fresh"), validate_only=True) == [("fresh", 0)]
    assert box.broker.topics.get("fresh") is None


def test_topics_are_deleted_by_name_or_id_with_their_offsets(box: BrokerWithoutSockets) -> None:
    commit(box, 7)
    topic_id = box.own_topics.create("second", 1, {}).topic_id
    wanted = [DeleteTopicState(name=TOPIC), DeleteTopicState(topic_id=topic_id), DeleteTopicState(name="nothing")]
    answer = box.ask(DeleteTopicsRequest(topics=wanted), DeleteTopicsResponse, 6)
    assert [(entry.name, entry.error_code) for entry in answer.responses] == [(TOPIC, 0), ("second", 0), ("nothing", 3)]
    assert committed(box) == -1
    old = box.ask(DeleteTopicsRequest(topic_names=["nothing"]), DeleteTopicsResponse, 1)
    assert old.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [1, 6])
def test_no_topic_is_deleted_where_that_is_switched_off(tmp_path: Path, version: int) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 2}, options={"delete.topic.enable": "false"})
    named = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], topic_names=[TOPIC])
    answer = box.ask(named, DeleteTopicsResponse, version)
    assert [(entry.name, entry.error_code) for entry in answer.responses] == [
        (TOPIC, ErrorCode.TOPIC_DELETION_DISABLED)
    ]
    assert box.broker.topics.get(TOPIC) is not None


def test_partitions_are_added(box: BrokerWithoutSockets) -> None:
    wanted = [CreatePartitionsTopic(name=TOPIC, count=4), CreatePartitionsTopic(name="nothing", count=4)]
    answer = box.ask(CreatePartitionsRequest(topics=wanted), CreatePartitionsResponse, 3)
    assert [entry.error_code for entry in answer.results] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(metadata(box, [TOPIC]).topics[0].partitions) == 4


def test_topic_named_twice_gets_no_partitions(box: BrokerWithoutSockets) -> None:
    before = len(metadata(box, [TOPIC]).topics[0].partitions)
    wanted = [CreatePartitionsTopic(name=TOPIC, count=count) for count in (before + 1, before + 2)]
    answer = box.ask(CreatePartitionsRequest(topics=wanted), CreatePartitionsResponse, 3)
    assert [entry.error_code for entry in answer.results] == [ErrorCode.INVALID_REQUEST] * 2
    assert len(metadata(box, [TOPIC]).topics[0].partitions) == before


def test_records_are_deleted_up_to_an_offset(box: BrokerWithoutSockets) -> None:
    for _ in range(3):
        produce(box, make_batch())

    def delete(offset: int, name: str = TOPIC) -> tuple[int, int]:
        topics = [DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])]
        answer = box.ask(DeleteRecordsRequest(topics=topics), DeleteRecordsResponse, 2).topics[0].partitions[0]
        return answer.low_watermark, answer.error_code

    assert delete(2) == (2, 0)
    assert delete(9) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert delete(0, "nothing") == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert fetch(box, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(-1) == (3, 0)


def options_of(box: BrokerWithoutSockets, resource_type: int, name: str, keys: list[str] | None = None) -> Any:
    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    return box.ask(request, DescribeConfigsResponse, 4).results[0]


def test_options_are_described_with_their_source(box: BrokerWithoutSockets) -> None:
    box.broker.topics.set_properties(TOPIC, {"retention.ms": "5", "flush.ms": "9"}, validate_only=False)
    shown = {entry.name: entry for entry in options_of(box, 2, TOPIC).configs}
    assert (shown["retention.ms"].value, shown["retention.ms"].config_source) == ("5", 1)
    assert (shown["segment.bytes"].config_source, shown["flush.ms"].value) == (5, "9")
    assert [entry.name for entry in options_of(box, 2, TOPIC, ["retention.ms"]).configs] == ["retention.ms"]
    read_only = {entry.name: entry.read_only for entry in options_of(box, 4, "0").configs}
    assert (read_only["node.id"], read_only["message.max.bytes"]) == (True, False)
    assert options_of(box, 2, "nothing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert options_of(box, 4, "7").error_code == ErrorCode.INVALID_REQUEST
    assert options_of(box, 99, "x").error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("changes", "expected", "policy", "retention"),
    [
        ([("retention.ms", 0, "5")], 0, None, "5"),
        ([("retention.ms", 0, "5"), ("retention.ms", 1, None)], ErrorCode.INVALID_REQUEST, None, None),
        ([("retention.ms", 0, "5"), ("flush.ms", 1, None)], 0, None, "5"),
        ([("cleanup.policy", 2, "compact")], 0, "delete,compact", None),
        ([("cleanup.policy", 3, "delete,other"), ("retention.ms", 0, "5")], 0, "", "5"),
        ([("retention.ms", 2, "5")], ErrorCode.INVALID_CONFIG, None, None),
        ([("retention.ms", 0, None)], ErrorCode.INVALID_REQUEST, None, None),
        ([("retention.ms", 9, "5")], ErrorCode.INVALID_REQUEST, None, None),
        ([("retention.ms", 0, "5"), ("no.such", 0, "5")], ErrorCode.INVALID_CONFIG, None, None),
    ],
)
def test_options_are_altered_as_a_whole_or_not_at_all(
    box: BrokerWithoutSockets,
    changes: list[tuple[str, int, str | None]],
    expected: int,
    policy: str | None,
    retention: str | None,
) -> None:
    configs = [AlterableConfig(name=name, config_operation=kind, value=value) for name, kind, value in changes]
    resource = AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    assert box.ask(request, IncrementalAlterConfigsResponse, 1).responses[0].error_code == expected
    properties = box.broker.topics.get(TOPIC).properties  # type: ignore[union-attr]
    assert (properties.get("cleanup.policy"), properties.get("retention.ms")) == (policy, retention)


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_not_made_or_altered_by_clients(tmp_path: Path, name: str) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 1})
    made = box.ask(
        CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)]),
        CreateTopicsResponse,
        7,
    )
    assert made.topics[0].error_code == ErrorCode.INVALID_REQUEST
    assert metadata(box, [name], allow_auto_topic_creation=True).topics[0].error_code == 3
    commit(box, 7)
    configs = [AlterableConfig(name="retention.ms", config_operation=0, value="5")]
    resource = AlterConfigsResource(resource_type=2, resource_name=name, configs=configs)
    altered = box.ask(IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse, 1)
    assert altered.responses[0].error_code == (ErrorCode.INVALID_REQUEST if "offsets" in name else 3)
    grown = box.ask(
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=9)]), CreatePartitionsResponse, 3
    )
    assert grown.results[0].error_code == ErrorCode.INVALID_REQUEST


def test_defaults_of_topics_are_named_as_kafka_names_them(box: BrokerWithoutSockets) -> None:
    synonyms = {entry.name: [synonym.name for synonym in entry.synonyms] for entry in options_of(box, 2, TOPIC).configs}
    assert synonyms["max.message.bytes"] == ["message.max.bytes"]
    assert synonyms["retention.ms"] == ["log.retention.ms"]
    assert synonyms["file.delete.delay.ms"] == ["log.segment.delete.delay.ms"]
    assert synonyms["min.insync.replicas"] == ["min.insync.replicas"]


def test_metadata_names_each_topic_once(box: BrokerWithoutSockets) -> None:
    assert [topic.name for topic in metadata(box, [TOPIC, "x", TOPIC]).topics] == [TOPIC, "x"]
