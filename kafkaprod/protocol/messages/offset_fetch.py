"""OffsetFetch (9): a group's stored positions.

    2  null means all topics; top-level error       7  only offsets of finished transactions (KIP-447)
    3  throttle time                                8  many groups at once (KIP-709)
    5  leader epoch                                 9  member id and epoch (KIP-848)
    6  flexible                                    10  topic ids instead of names

Source: protocol guide, KIPs above.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT16, INT32, INT64, NULLABLE_STRING, STRING, UUID, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class OffsetFetchRequestTopic(Struct):
    """Partitions of one topic, up to version 7."""

    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic, from version 8 on."""

    name: str = field(STRING, until=9, ignorable=True)
    topic_id: uuid.UUID | None = field(UUID, since=10, ignorable=True)
    partition_indexes: list[int] = field(array(INT32))


class OffsetFetchRequestGroup(Struct):
    """Partitions of one group."""

    group_id: str = field(STRING)
    member_id: str | None = field(NULLABLE_STRING, since=9, ignorable=True)
    member_epoch: int = field(INT32, since=9, default=-1, ignorable=True)
    # null: all topics
    topics: list[OffsetFetchRequestTopics] | None = field(array(OffsetFetchRequestTopics).nullable())


class OffsetFetchRequest(Request, api=ApiKey.OFFSET_FETCH, versions=(1, 10), flexible_from=6):
    """Groups and partitions to look up."""

    group_id: str = field(STRING, until=7)
    # null: all topics
    topics: list[OffsetFetchRequestTopic] | None = field(array(OffsetFetchRequestTopic).nullable(since=2), until=7)
    groups: list[OffsetFetchRequestGroup] = field(array(OffsetFetchRequestGroup), since=8)
    require_stable: bool = field(BOOL, since=7)


class OffsetFetchResponsePartition(Struct):
    """The offset of one partition, up to version 7; -1: none."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=5, default=-1, ignorable=True)
    metadata: str | None = field(NULLABLE_STRING)
    error_code: int = field(INT16)


class OffsetFetchResponseTopic(Struct):
    """The offsets of one topic, up to version 7."""

    name: str = field(STRING)
    partitions: list[OffsetFetchResponsePartition] = field(array(OffsetFetchResponsePartition))


class OffsetFetchResponsePartitions(Struct):
    """The offset of one partition, from version 8 on; -1: none."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, default=-1)
    metadata: str | None = field(NULLABLE_STRING)
    error_code: int = field(INT16)


class OffsetFetchResponseTopics(Struct):
    """The offsets of one topic, from version 8 on."""

    name: str = field(STRING, until=9, ignorable=True)
    topic_id: uuid.UUID | None = field(UUID, since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field(array(OffsetFetchResponsePartitions))


class OffsetFetchResponseGroup(Struct):
    """The offsets of one group."""

    group_id: str = field(STRING)
    topics: list[OffsetFetchResponseTopics] = field(array(OffsetFetchResponseTopics))
    error_code: int = field(INT16)


class OffsetFetchResponse(Response, api=ApiKey.OFFSET_FETCH, versions=(1, 10), flexible_from=6):
    """The stored offsets."""

    throttle_time_ms: int = field(INT32, since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), until=7)
    error_code: int = field(INT16, since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(array(OffsetFetchResponseGroup), since=8)
