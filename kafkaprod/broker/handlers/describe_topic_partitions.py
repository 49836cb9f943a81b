"""DescribeTopicPartitions (75): topics by name with their partitions, at most 2,000 partitions a page (KIP-966)."""

from __future__ import annotations

from typing import Any, Final

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.nodes import NO_LEADER, replicas_of
from kafkaprod.broker.cluster.topics import Topic, is_legal_name
from kafkaprod.broker.handlers.authorization import Authorizer, Handle, ItemRight, RefuseRequest
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import TOPIC
from kafkaprod.broker.settings.authorized_operations import TOPIC_OPERATIONS
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from kafkaprod.protocol.schema import Response

API = ApiKey.DESCRIBE_TOPIC_PARTITIONS
LANE = Lane.CONTROL
MAX_VERSION = 0

_RIGHT: Final = ItemRight(acls.DESCRIBE, TOPIC, "topics", "topics", "name")
MAX_PARTITIONS_OF_PAGE = 2_000  # max.request.partition.size.limit


def handle(broker: Broker, request: ClientRequest[DescribeTopicPartitionsRequest]) -> Response:
    """Describe the topics from the cursor on, and say where the next page begins."""
    body = request.body
    cursor = body.cursor
    if cursor is not None and cursor.partition_index < 0:
        return refuse(request, ErrorCode.INVALID_REQUEST)
    named = {topic.name for topic in body.topics}
    names = sorted(named or {topic.name for topic in broker.topics.all()})
    left = max(1, min(MAX_PARTITIONS_OF_PAGE, body.response_partition_limit))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if cursor is not None and name < cursor.topic_name:
            continue
        topic = broker.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        count = min(left, max(len(topic.partitions) - first, 0))
        response.topics.append(_describe(broker, topic, range(first, first + count)))
        left -= count
        if first + count < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=first + count)
            break
    return response


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Check the topics; all of them means those that may be described."""
    body = authorizer.request.body
    if body.topics:
        first = "" if body.cursor is None else body.cursor.topic_name
        if (left := [topic for topic in body.topics if topic.name >= first]) and len(left) < len(body.topics):
            authorizer = Authorizer(authorizer.broker, authorizer.with_changes(topics=left))
        return authorizer.split(call, deny, _RIGHT)
    names = [topic.name for topic in authorizer.broker.topics.all() if authorizer.may(acls.DESCRIBE, TOPIC, topic.name)]
    if not names:
        return DescribeTopicPartitionsResponse()
    return call(authorizer.with_changes(topics=[TopicRequest(name=name) for name in names]))


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(name=name, error_code=code)


def _describe(broker: Broker, topic: Topic, indexes: range) -> DescribeTopicPartitionsResponseTopic:
    every = {index: replicas_of(broker, topic.partitions[index]) for index in indexes}
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        topic_authorized_operations=TOPIC_OPERATIONS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE if replicas.leader_id != NO_LEADER else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=replicas.leader_id,
                leader_epoch=replicas.leader_epoch,
                replica_nodes=replicas.replicas,
                isr_nodes=replicas.isr,
                offline_replicas=replicas.offline,
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for index, replicas in every.items()
        ],
    )
