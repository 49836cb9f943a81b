"""OffsetFetch (9): the offsets a group has committed; -1 where it has none.

2    null topics means all
7    UNSTABLE_OFFSET_COMMIT for offsets that an open transaction may change, if the client wants stable ones
8    several groups in one request (KIP-709)     9  members of consumer groups (KIP-848)
10   topic ids instead of names (KIP-848)
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.broker.coordinator.offsets import OffsetCommitValue, OffsetKey, OffsetTable
from kafkaprod.broker.handlers import refusals
from kafkaprod.broker.handlers.authorization import Authorizer, Handle, ItemRight, RefuseRequest
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import GROUP, TOPIC
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kafkaprod.protocol.schema import Response
from kafkaprod.structs import TopicPartition

API = ApiKey.OFFSET_FETCH
LANE = Lane.CONTROL
MAX_VERSION = 10
COORDINATED_BY = GROUPS

_FIRST_VERSION_WITH_ERROR = 2
_FIRST_VERSION_WITH_GROUPS = 8
_FIRST_VERSION_WITH_IDS = 10
_NONE_COMMITTED = OffsetCommitValue(-1, -1, "", -1)


class _Answer(NamedTuple):
    """What one partition is answered with."""

    partition: int
    committed: OffsetCommitValue
    error_code: int


_Found = Iterator[tuple[str, list[_Answer]]]


def handle(broker: Broker, request: ClientRequest[OffsetFetchRequest]) -> OffsetFetchResponse:
    """Look the offsets up."""
    table, body = broker.offsets.table, request.body
    if request.version < _FIRST_VERSION_WITH_GROUPS:
        found = _find(table, body.group_id, body.topics, body.require_stable)
        return OffsetFetchResponse(topics=[_topic(name, answers) for name, answers in found])
    groups = []
    whole: set[str] = set()  # of these all topics are answered already
    for group in body.groups:
        if group.group_id in whole:
            continue
        error_code = broker.groups.check_offset_fetch(group.group_id, group.member_id, group.member_epoch)
        if error_code is not ErrorCode.NONE:
            groups.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=error_code))
            continue
        if group.topics is None:
            whole.add(group.group_id)
        topics = _with_ids(broker, request, group)
        groups.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=topics))
    return OffsetFetchResponse(groups=groups)


def refuse(request: ClientRequest[OffsetFetchRequest], error_code: int) -> Response:
    """Give every partition the error in the versions that have no other place for one."""
    if request.version >= _FIRST_VERSION_WITH_ERROR:
        return refusals.refuse(request, error_code)
    return OffsetFetchResponse(
        topics=[
            _topic(topic.name, [_Answer(index, _NONE_COMMITTED, error_code) for index in topic.partition_indexes])
            for topic in request.body.topics or ()
        ]
    )


def _with_ids(
    broker: Broker, request: ClientRequest[OffsetFetchRequest], group: OffsetFetchRequestGroup
) -> list[OffsetFetchResponseTopics]:
    """Look the offsets of a group up, by topic ids where the version has them; UNKNOWN_TOPIC_ID for others."""
    table, requires_stable = broker.offsets.table, request.body.require_stable
    if request.version < _FIRST_VERSION_WITH_IDS:
        return [
            _group_topic(name, items) for name, items in _find(table, group.group_id, group.topics, requires_stable)
        ]
    ids: dict[str, uuid.UUID] = {}
    unknown: list[OffsetFetchResponseTopics] = []
    for topic in group.topics or ():
        name = broker.topics.name_of("", topic.topic_id)
        if name is not None and topic.topic_id is not None:
            ids[name] = topic.topic_id
            topic.name = name
        else:
            missing = [_Answer(index, _NONE_COMMITTED, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes]
            unknown.append(_group_topic("", missing, topic.topic_id))
    if group.topics is None:
        ids = {topic.name: topic.topic_id for topic in broker.topics.all()}
    wanted = None if group.topics is None else [topic for topic in group.topics if topic.name in ids]
    found = _find(table, group.group_id, wanted, requires_stable)
    return [*(_group_topic(name, items, ids[name]) for name, items in found if name in ids), *unknown]


def _find(
    table: OffsetTable,
    group_id: str,
    wanted: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
    requires_stable: bool,
) -> _Found:
    offsets = table.of_group(group_id)

    def answer(name: str, index: int) -> _Answer:
        key = TopicPartition(name, index)
        if requires_stable and table.is_pending(OffsetKey(group_id, key)):
            return _Answer(index, _NONE_COMMITTED, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return _Answer(index, offsets.get(key, _NONE_COMMITTED), ErrorCode.NONE)

    if wanted is None:
        for name, keys in groupby(sorted(offsets), key=lambda key: key.topic):
            yield name, [answer(name, key.partition) for key in keys]
        return
    asked: dict[str, dict[int, None]] = {}  # each once: an answer may hold 4 KiB of metadata
    for topic in wanted:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    for name, indexes in asked.items():
        yield name, [answer(name, index) for index in indexes]


def _topic(name: str, answers: list[_Answer]) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=answer.partition,
                committed_offset=answer.committed.offset,
                committed_leader_epoch=answer.committed.leader_epoch,
                metadata=answer.committed.metadata,
                error_code=answer.error_code,
            )
            for answer in answers
        ],
    )


def _group_topic(name: str, answers: list[_Answer], topic_id: uuid.UUID | None = None) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=answer.partition,
                committed_offset=answer.committed.offset,
                committed_leader_epoch=answer.committed.leader_epoch,
                metadata=answer.committed.metadata,
                error_code=answer.error_code,
            )
            for answer in answers
        ],
    )


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Check the groups, then leave out the topics that may not be described."""
    if authorizer.request.version < 8:
        if not authorizer.may(acls.DESCRIBE, GROUP, authorizer.request.body.group_id):
            return deny(authorizer.request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        response: Any = call(authorizer.request)
        _hide_offsets(authorizer, response, _named(authorizer, authorizer.request.body.topics))
        return response
    right = ItemRight(acls.DESCRIBE, GROUP, "groups", "groups", "group_id")
    response = authorizer.split(call, deny, right)
    named: dict[str, set[str]] = {}
    for group in authorizer.request.body.groups:
        named.setdefault(group.group_id, set()).update(_named(authorizer, group.topics))
    for group in response.groups:
        _hide_offsets(authorizer, group, named[group.group_id])
    return response


def _named(authorizer: Authorizer, topics: Iterable[Any] | None) -> set[str]:
    """Return the names of the topics that a request names, by name or by id."""
    names = [authorizer.broker.topics.name_of(topic.name, getattr(topic, "topic_id", None)) for topic in topics or ()]
    return {name for name in names if name is not None}


def _hide_offsets(authorizer: Authorizer, answer: Any, named: Collection[str]) -> None:
    """Replace the offsets of topics that may not be described by TOPIC_AUTHORIZATION_FAILED.

    Those that the request does not name, since it wants all topics, are left out.
    """
    topics = []
    for topic in answer.topics:
        name = authorizer.broker.topics.name_of(topic.name, getattr(topic, "topic_id", None))
        if name is None or authorizer.may(acls.DESCRIBE, TOPIC, name):
            topics.append(topic)
        elif name in named:
            topics.append(_hidden(topic))
    answer.topics = topics


def _hidden(topic: OffsetFetchResponseTopic | OffsetFetchResponseTopics) -> Any:
    hidden: dict[str, Any] = {
        "committed_offset": -1,
        "metadata": "",
        "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    indexes = [partition.partition_index for partition in topic.partitions]
    if isinstance(topic, OffsetFetchResponseTopic):
        old = [OffsetFetchResponsePartition(partition_index=index, **hidden) for index in indexes]
        return OffsetFetchResponseTopic(name=topic.name, partitions=old)
    new = [OffsetFetchResponsePartitions(partition_index=index, **hidden) for index in indexes]
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=new)
