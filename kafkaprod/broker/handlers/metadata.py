"""Metadata (3): the broker, and the topics with their partitions.

    0      an empty list means all topics         10  topic ids in the answer
    1      null means all, an empty list none     12  topics may be named by id
    4      the client may forbid auto-creation
Topics are made on request only if the broker's option `auto_create_topics` allows it, and not all at once: those beyond
the first hundred new ones get LEADER_NOT_AVAILABLE, and the client asks again.
"""

from __future__ import annotations

import uuid
from typing import Any

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.nodes import NO_LEADER, Replicas, controller_id, live_nodes, replicas_of
from kafkaprod.broker.cluster.topics import RESERVED_NAMES, Topic, is_legal_name
from kafkaprod.broker.handlers.authorization import (
    Authorizer,
    Handle,
    RefuseRequest,
    merged,
    show_authorized_operations,
)
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import CLUSTER, TOPIC
from kafkaprod.broker.settings.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

API = ApiKey.METADATA
LANE = Lane.CONTROL
MAX_VERSION = 13

MAX_CREATED_AT_ONCE = 100  # other clients wait meanwhile

_FIRST_VERSION_WITHOUT_NAMES = 12


def handle(broker: Broker, request: ClientRequest[MetadataRequest]) -> MetadataResponse:
    """Describe the cluster and the topics; unknown and badly named ones have an error."""
    body = request.body
    if _has_early_ids(request):
        return refuse(request, ErrorCode.INVALID_REQUEST)
    if body.topics is None or (request.version == 0 and not body.topics):
        topics = [_describe(broker, topic) for topic in broker.topics.all()]
    else:
        may_create = body.allow_auto_topic_creation and broker.config.auto_create_topics
        created: list[str] = []
        topics = [
            _find_id(broker, wanted, request.version)
            if wanted.topic_id is not None or wanted.name is None
            else _find_name(broker, wanted.name, may_create=may_create, created=created)
            for wanted in _distinct(body.topics)
        ]
    if body.include_topic_authorized_operations:
        for topic in topics:
            if topic.name:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    nodes = live_nodes(broker, request.endpoint)
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(**node._asdict()) for node in nodes],
        cluster_id=broker.cluster_id,
        controller_id=controller_id(broker),
        topics=topics,
    )
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def refuse(request: ClientRequest[MetadataRequest], error_code: int) -> MetadataResponse:
    """Answer the named topics with the error, and no broker."""
    return MetadataResponse(
        topics=[
            _failed(topic.name or _no_name(request.version), error_code, topic.topic_id)
            for topic in request.body.topics or []
        ]
    )


def _has_early_ids(request: ClientRequest[MetadataRequest]) -> bool:
    """Whether a topic is named by its id in a version that only answers ids; in later ones an id counts, not a name."""
    if request.version >= _FIRST_VERSION_WITHOUT_NAMES:
        return False
    return any(topic.topic_id is not None or topic.name is None for topic in request.body.topics or ())


def _distinct(topics: list[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    return list({(topic.name, topic.topic_id): topic for topic in topics}.values())


def _find_id(broker: Broker, wanted: MetadataRequestTopic, version: int) -> MetadataResponseTopic:
    topic = None if wanted.topic_id is None else broker.topics.by_id(wanted.topic_id)
    if topic is None:
        return _failed(_no_name(version), ErrorCode.UNKNOWN_TOPIC_ID, wanted.topic_id)
    return _describe(broker, topic)


def _find_name(broker: Broker, name: str, *, may_create: bool, created: list[str]) -> MetadataResponseTopic:
    """Describe a topic, made if it may be; `created` are those this request has made."""
    try:
        topic = broker.topics.get(name)
        if topic is None:
            if not is_legal_name(name):  # no exception: a request may have 24,000 of them
                return _failed(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
            if not may_create or name in RESERVED_NAMES:  # those are made by the broker when it needs them
                return _failed(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if broker.topics.is_changing(name) or len(created) == MAX_CREATED_AT_ONCE:
                return _failed(name, ErrorCode.LEADER_NOT_AVAILABLE)
            topic = broker.standing.create_named(name)
            created.append(name)
            if topic is None:
                return _failed(name, ErrorCode.LEADER_NOT_AVAILABLE)
        return _describe(broker, topic)
    except BrokerError as error:
        return _failed(name, error.code)


def _no_name(version: int) -> str | None:
    return None if version >= _FIRST_VERSION_WITHOUT_NAMES else ""


def _describe(broker: Broker, topic: Topic) -> MetadataResponseTopic:
    partitions = [_partition(index, replicas_of(broker, partition)) for index, partition in enumerate(topic.partitions)]
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal, partitions=partitions
    )


def _partition(index: int, replicas: Replicas) -> MetadataResponsePartition:
    has_leader = replicas.leader_id != NO_LEADER
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=replicas.leader_id,
        leader_epoch=replicas.leader_epoch,
        replica_nodes=replicas.replicas,
        isr_nodes=replicas.isr,
        offline_replicas=replicas.offline,
    )


def _failed(name: str | None, error_code: int, topic_id: uuid.UUID | None = None) -> MetadataResponseTopic:
    return MetadataResponseTopic(name=name, error_code=error_code, topic_id=topic_id)


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Show the topics that may be described, and make those that may be made."""
    body, version = authorizer.request.body, authorizer.request.version
    if body.topics is None or (version == 0 and not body.topics):
        response: Any = call(authorizer.request)
        response.topics = [topic for topic in response.topics if authorizer.may(acls.DESCRIBE, TOPIC, topic.name)]
        show_authorized_operations(authorizer, response)
        return response
    if _has_early_ids(authorizer.request):
        return call(authorizer.request)
    allowed, denied = [], []
    for topic in body.topics:
        name = authorizer.broker.topics.name_of(topic.name, topic.topic_id)
        if name is None or (authorizer.may(acls.DESCRIBE, TOPIC, name) and _may_create(authorizer, name)):
            allowed.append(topic)
        elif topic.topic_id is not None:  # whoever may not describe it does not learn that the id exists
            denied.append(MetadataResponseTopic(topic_id=topic.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            denied.append(MetadataResponseTopic(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    # Version 0 takes an empty list for all topics.
    response = call(authorizer.with_changes(topics=allowed or ([] if version else None)))
    if not allowed:
        response.topics = []
    show_authorized_operations(authorizer, response)
    return merged(response, MetadataResponse(topics=denied), "topics")


def _may_create(authorizer: Authorizer, name: str) -> bool:
    broker = authorizer.broker
    creates = broker.config.auto_create_topics and authorizer.request.body.allow_auto_topic_creation
    if not creates or broker.topics.get(name) is not None:
        return True
    return authorizer.may(acls.CREATE, CLUSTER) or authorizer.may(acls.CREATE, TOPIC, name)
