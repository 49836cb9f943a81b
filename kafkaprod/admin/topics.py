"""Topics: list, create and delete them, read their options and the ends of their logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kafkaprod.admin.client import ClusterClient
from kafkaprod.errors import CorruptDataError, KafkaError, TopicNotFoundError
from kafkaprod.protocol.error_codes import ErrorCode, describe, error_for
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkaprod.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkaprod.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkaprod.protocol.messages.metadata import NOT_REQUESTED, MetadataResponseTopic

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
LATEST = -1
EARLIEST = -2
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
MAX_TRIES = 100
RETRY_MS = 100
CREATION_MS = 5_000

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition: its leader (-1: none), replicas and in-sync replicas, as node ids."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic.

    Attributes:
        topic_id: As text; None if the brokers have no topic ids.
        operations: What this user may do, as Kafka's bit field; None if it was not requested or not sent.
    """

    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
    operations: int | None


def first(items: Sequence[Answer], what: str) -> Answer:
    """Return the only item of an answer about one thing. Raises CorruptDataError: the broker sent an empty array."""
    if not items:
        raise CorruptDataError(f"the broker's answer has no {what}, although one was requested")
    return items[0]


def list_topics(client: ClusterClient) -> list[TopicInfo]:
    """Return all topics this user may see, by name."""
    topics = client.metadata(None).topics
    return sorted((topic_info(topic) for topic in topics if topic.error_code == 0), key=lambda info: info.name)


def find_topic(client: ClusterClient, name: str, *, operations: bool = False) -> TopicInfo:
    """Return one topic.

    Raises:
        TopicNotFoundError, AuthorizationError, InvalidTopicError: As the broker answered.
    """
    topic = first(client.metadata([name], operations=operations).topics, "topic")
    if topic.error_code:
        raise error_for(topic.error_code, topic=name)
    return topic_info(topic)


def demand_topic(client: ClusterClient, name: str) -> TopicInfo:
    """Return one topic, and let the brokers create it if they are configured to: within CREATION_MS.

    Raises:
        TopicNotFoundError, AuthorizationError, InvalidTopicError: As the broker answered.
    """
    for _ in range(CREATION_MS // RETRY_MS):
        topic = first(client.metadata([name], creates=True).topics, "topic")
        if not topic.error_code:
            return topic_info(topic)
        if not describe(topic.error_code).retriable:
            break
        client.wait(RETRY_MS)
    return find_topic(client, name)


def topic_info(topic: MetadataResponseTopic) -> TopicInfo:
    """Return what a Metadata answer says of a topic that has no error."""
    partitions = [
        PartitionInfo(p.partition_index, p.leader_id, tuple(p.replica_nodes), tuple(p.isr_nodes))
        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
    ]
    operations = topic.topic_authorized_operations
    return TopicInfo(
        str(topic.name),
        None if topic.topic_id is None else str(topic.topic_id),
        topic.is_internal,
        tuple(partitions),
        None if operations == NOT_REQUESTED else operations,
    )


def create_topic(
    client: ClusterClient,
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    options: Mapping[str, str] | None = None,
) -> None:
    """Create a topic and wait until every partition has a leader.

    Args:
        client: A client of the cluster.
        name: The name of the topic.
        partitions: Their number; -1: the broker's default.
        replication_factor: -1: the broker's default.
        options: Such as {"cleanup.policy": "compact"}.

    Raises:
        BrokerError: As the broker answered, TOPIC_ALREADY_EXISTS for one.
        KafkaError: The partitions got no leader.
    """
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in (options or {}).items()]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor, assignments=[], configs=configs
    )
    client.metadata([])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
    answer = first(client.ask(request, _controller(client)).topics, "topic")
    if answer.error_code:
        raise error_for(answer.error_code, answer.error_message, topic=name)
    _await_leaders(client, name)


def _controller(client: ClusterClient) -> int | None:
    return client.controller_id if client.controller_id >= 0 else None


def _await_leaders(client: ClusterClient, name: str) -> None:
    """Ask until the metadata of a new topic has reached the brokers."""
    for _ in range(MAX_TRIES):
        topic = first(client.metadata([name]).topics, "topic")
        if topic.error_code == 0 and topic.partitions and all(p.leader_id >= 0 for p in topic.partitions):
            return
        client.wait(RETRY_MS)
    raise KafkaError(f"topic {name!r} was created, but its partitions have no leader", topic=name)


def delete_topic(client: ClusterClient, name: str) -> None:
    """Delete a topic. Raises BrokerError as the broker answered."""
    client.metadata([])
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=None)], topic_names=[name], timeout_ms=30_000
    )
    answer = first(client.ask(request, _controller(client)).responses, "topic")
    if answer.error_code:
        raise error_for(answer.error_code, topic=name)


def topic_options(client: ClusterClient, name: str) -> dict[str, str | None]:
    """Return the effective options of a topic; sensitive ones are None.

    Raises:
        AuthorizationError, BrokerError: As the broker answered.
    """
    return _options(client, TOPIC_RESOURCE, name, None)


def broker_options(client: ClusterClient, node_id: int) -> dict[str, str | None]:
    """Return the effective options of a broker. Raises as topic_options."""
    return _options(client, BROKER_RESOURCE, str(node_id), node_id)


def _options(client: ClusterClient, kind: int, name: str, node_id: int | None) -> dict[str, str | None]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=False)
    answer = first(client.ask(request, node_id).results, "resource")
    if answer.error_code:
        raise error_for(answer.error_code, answer.error_message, about=f"options of {name!r}")
    return {option.name: None if option.is_sensitive else option.value for option in answer.configs}


def log_offsets(
    client: ClusterClient, topic: str, timestamp: int = LATEST, isolation: int = READ_UNCOMMITTED
) -> dict[int, int]:
    """Return an offset by partition: the log's end (LATEST), its start (EARLIEST), or the first record from a time on.

    The time is in ms since the epoch. With READ_COMMITTED the end is before open transactions. The offset is -1 where
    there is no such record.

    Raises:
        TopicNotFoundError, BrokerError: As the brokers answered.
        CorruptDataError: An answer lacks a partition.
    """
    error: KafkaError | None = None
    for _ in range(MAX_TRIES):
        try:
            return _log_offsets_once(client, topic, timestamp, isolation)
        except KafkaError as refusal:  # leaders move, and the leader of a new topic learns of it a moment later
            if not refusal.retriable or (isinstance(refusal, TopicNotFoundError) and error is None):
                raise
            error = refusal
        client.wait(RETRY_MS)
    assert error is not None
    raise error


def _log_offsets_once(client: ClusterClient, topic: str, timestamp: int, isolation: int) -> dict[int, int]:
    by_leader: dict[int, list[int]] = {}
    for partition in find_topic(client, topic).partitions:
        by_leader.setdefault(partition.leader, []).append(partition.number)
    if -1 in by_leader:
        about = f"partitions {by_leader[-1]} have no leader"
        raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, about=about, topic=topic)
    offsets: dict[int, int] = {}
    for leader, partitions in by_leader.items():
        wanted = [ListOffsetsPartition(partition_index=number, timestamp=timestamp) for number in partitions]
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name=topic, partitions=wanted)]
        )
        for answer in first(client.ask(request, leader).topics, "topic").partitions:
            if answer.error_code:
                raise error_for(answer.error_code, topic=topic, partition=answer.partition_index)
            offsets[answer.partition_index] = answer.offset
        if missing := [number for number in partitions if number not in offsets]:
            raise CorruptDataError(f"{topic}: the answer of node {leader} lacks the offsets of partitions {missing}")
    return dict(sorted(offsets.items()))


def is_missing(error: KafkaError) -> bool:
    """Return whether an error of find_topic means that there is no such topic."""
    return isinstance(error, TopicNotFoundError)
