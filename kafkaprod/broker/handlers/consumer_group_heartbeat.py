"""ConsumerGroupHeartbeat (68): join, stay in and leave a group of the consumer protocol (KIP-848).

1    subscription by regular expression; clients make their member ids (KIP-1082)
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

from kafkaprod.broker.calls.limits import MAX_ID_CHARS
from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.consumer_groups import check
from kafkaprod.broker.coordinator.consumer_member import Assignment, ConsumerHeartbeat, TopicIdPartition
from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.broker.handlers.authorization import Authorizer, Handle, RefuseRequest
from kafkaprod.broker.metadata.features import GROUP_VERSION
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import DESCRIBE, TOPIC, Acls
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages import consumer_group_heartbeat as messages
from kafkaprod.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

API = ApiKey.CONSUMER_GROUP_HEARTBEAT
LANE = Lane.CONTROL
MAX_VERSION = 1
NEEDS_LEVEL = GROUP_VERSION
COORDINATED_BY = GROUPS

_FIRST_VERSION_WITH_OWN_IDS = 1


def handle(broker: Broker, request: ClientRequest[ConsumerGroupHeartbeatRequest]) -> ConsumerGroupHeartbeatResponse:
    """Pass the heartbeat on to the group."""
    beat = _heartbeat(broker, request)
    try:
        check(beat, has_own_id=request.version >= _FIRST_VERSION_WITH_OWN_IDS)
        if not beat.member_id:
            beat = beat._replace(member_id=str(uuid.uuid4()))
        result = broker.groups.consumer_heartbeat(beat, broker.clock.now_ms())
    except RequestRefusedError as refusal:
        return ConsumerGroupHeartbeatResponse(error_code=refusal.code, error_message=str(refusal))
    assignment = None
    if result.assignment is not None:
        assignment = messages.Assignment(topic_partitions=_by_topic(result.assignment))
    return ConsumerGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )


def _heartbeat(broker: Broker, request: ClientRequest[ConsumerGroupHeartbeatRequest]) -> ConsumerHeartbeat:
    body = request.body
    names, owned = body.subscribed_topic_names, body.topic_partitions
    return ConsumerHeartbeat(
        group_id=body.group_id,
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        client_id=request.client_id[:MAX_ID_CHARS],
        client_host=f"/{request.client_host}",
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        topic_names=None if names is None else frozenset(names),
        topic_regex=body.subscribed_topic_regex,
        assignor=body.server_assignor,
        owned=None if owned is None else _owned(owned),
        may_see=partial(_may_see, broker.acls, request),
    )


def _may_see(acls: Acls, request: ClientRequest[ConsumerGroupHeartbeatRequest], topic: str) -> bool:
    return acls.is_open or acls.is_allowed(request.principal, request.client_host, DESCRIBE, TOPIC, topic)


def _owned(topics: list[TopicPartitions]) -> Assignment:
    return frozenset(
        TopicIdPartition(topic.topic_id, index)
        for topic in topics
        if topic.topic_id is not None
        for index in topic.partitions
    )


def _by_topic(assignment: Assignment) -> list[TopicPartitions]:
    found: dict[uuid.UUID, list[int]] = {}
    for topic_id, index in sorted(assignment):
        found.setdefault(topic_id, []).append(index)
    return [TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in found.items()]


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Refuse all if one of the topics that a member names may not be described."""
    names = authorizer.request.body.subscribed_topic_names or ()
    if not all(authorizer.may(acls.DESCRIBE, TOPIC, name) for name in names):
        return deny(authorizer.request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return call(authorizer.request)
