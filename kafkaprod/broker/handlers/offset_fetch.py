"""OffsetFetch (9): the offsets a group has committed; -1 where it has none.

2    null topics means all     8  several groups in one request (KIP-709)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.offsets import CommittedOffset, Offsets
from kafkaprod.broker.server.request import ClientRequest, Lane
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kafkaprod.structs import TopicPartition

API = ApiKey.OFFSET_FETCH
LANE = Lane.CONTROL
MAX_VERSION = 8

_FIRST_VERSION_WITH_GROUPS = 8
_NONE_COMMITTED = CommittedOffset(-1, -1, "", -1)

Found = Iterator[tuple[str, list[tuple[int, CommittedOffset]]]]


def handle(broker: Broker, request: ClientRequest[OffsetFetchRequest]) -> OffsetFetchResponse:
    """Look the offsets up."""
    table = broker.offsets.table
    if request.version < _FIRST_VERSION_WITH_GROUPS:
        found = _find(table.of_group(request.body.group_id), request.body.topics)
        return OffsetFetchResponse(topics=[_topic(name, offsets) for name, offsets in found])
    groups = []
    for group in request.body.groups:
        found = _find(table.of_group(group.group_id), group.topics)
        topics = [_group_topic(name, offsets) for name, offsets in found]
        groups.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=topics))
    return OffsetFetchResponse(groups=groups)


def refuse(request: ClientRequest[OffsetFetchRequest], error_code: int) -> OffsetFetchResponse:
    """The error, for every group or at the top."""
    if request.version < _FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(error_code=error_code)
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(group_id=group.group_id, error_code=error_code) for group in request.body.groups
        ]
    )


def _find(offsets: Offsets, wanted: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None) -> Found:
    if wanted is None:
        for topic in sorted({topic_partition.topic for topic_partition in offsets}):
            yield topic, sorted((key.partition, value) for key, value in offsets.items() if key.topic == topic)
        return
    for asked in wanted:
        yield (
            asked.name,
            [
                (index, offsets.get(TopicPartition(asked.name, index), _NONE_COMMITTED))
                for index in asked.partition_indexes
            ],
        )


def _topic(name: str, offsets: list[tuple[int, CommittedOffset]]) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
            )
            for index, committed in offsets
        ],
    )


def _group_topic(name: str, offsets: list[tuple[int, CommittedOffset]]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=name,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
            )
            for index, committed in offsets
        ],
    )
