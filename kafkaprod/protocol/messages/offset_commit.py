"""OffsetCommit (8): store a group's positions.

    3  throttle time                 7  static members (KIP-345)
    5  no retention time any more    8  flexible
    6  leader epoch                  9  member epochs of KIP-848     10  topic ids instead of names

Source: protocol guide, KIPs above.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, INT64, NULLABLE_STRING, STRING, UUID, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class OffsetCommitRequestPartition(Struct):
    """The offset of one partition."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=6, default=-1, ignorable=True)
    committed_metadata: str | None = field(NULLABLE_STRING)


class OffsetCommitRequestTopic(Struct):
    """The offsets of one topic."""

    name: str = field(STRING, until=9, ignorable=True)
    topic_id: uuid.UUID | None = field(UUID, since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition))


class OffsetCommitRequest(Request, api=ApiKey.OFFSET_COMMIT, versions=(2, 10), flexible_from=8):
    """Offsets to store."""

    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, default=-1)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(NULLABLE_STRING, since=7)
    retention_time_ms: int = field(INT64, until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic))


class OffsetCommitResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class OffsetCommitResponseTopic(Struct):
    """The outcomes for one topic."""

    name: str = field(STRING, until=9, ignorable=True)
    topic_id: uuid.UUID | None = field(UUID, since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition))


class OffsetCommitResponse(Response, api=ApiKey.OFFSET_COMMIT, versions=(2, 10), flexible_from=8):
    """One error code per partition."""

    throttle_time_ms: int = field(INT32, since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic))
