"""OffsetDelete (47): delete committed offsets of a group, but not those of topics its members are subscribed to."""

from __future__ import annotations

from typing import Any

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.broker.coordinator.offset_log import OffsetChange
from kafkaprod.broker.coordinator.offsets import OffsetKey
from kafkaprod.broker.handlers.authorization import Authorizer, Handle, RefuseRequest
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import TOPIC
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kafkaprod.protocol.schema import Response
from kafkaprod.structs import TopicPartition

API = ApiKey.OFFSET_DELETE
LANE = Lane.CONTROL
MAX_VERSION = 0
COORDINATED_BY = GROUPS


def handle(broker: Broker, request: ClientRequest[OffsetDeleteRequest]) -> Response:
    """Delete the offsets.

    GROUP_ID_NOT_FOUND for an unknown group, NON_EMPTY_GROUP if its members are no consumers, GROUP_SUBSCRIBED_TO_TOPIC
    for subscribed topics.
    """
    body = request.body
    try:
        subscribed = broker.groups.subscribed_topics(body.group_id)
    except RequestRefusedError as refusal:
        return refuse(request, refusal.code)
    if subscribed is None:
        return refuse(request, ErrorCode.NON_EMPTY_GROUP)
    changes: list[OffsetChange] = []
    topics = []
    for topic in body.topics:
        outcomes = []
        for wanted in topic.partitions:
            code = ErrorCode.NONE
            if topic.name in subscribed:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif broker.topics.partition(topic.name, wanted.partition_index) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                changes.append((OffsetKey(body.group_id, TopicPartition(topic.name, wanted.partition_index)), None))
            outcomes.append(OffsetDeleteResponsePartition(partition_index=wanted.partition_index, error_code=code))
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=outcomes))
    known = broker.offsets.table.of_group(body.group_id)
    try:
        broker.offsets.write(
            [change for change in changes if change[0].topic_partition in known], broker.clock.wall_ms()
        )
    except BrokerError:
        return refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return OffsetDeleteResponse(topics=topics)


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Refuse the topics that may not be read."""
    topics = authorizer.request.body.topics
    denied = [topic for topic in topics if not authorizer.may(acls.READ, TOPIC, topic.name)]
    names = {topic.name for topic in denied}
    response: Any = call(authorizer.with_changes(topics=[topic for topic in topics if topic.name not in names]))
    error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic in denied if response.error_code == ErrorCode.NONE else ():
        outcomes = [
            OffsetDeleteResponsePartition(partition_index=wanted.partition_index, error_code=error_code)
            for wanted in topic.partitions
        ]
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=outcomes))
    return response
