"""OffsetForLeaderEpoch (23): where the log of a leader epoch ends; finds truncation.

    3  replica id     4  flexible

Source: KIP-101, KIP-320.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, INT64, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class OffsetForLeaderPartition(Struct):
    """An epoch of one partition."""

    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32)


class OffsetForLeaderTopic(Struct):
    """Epochs in one topic."""

    topic: str = field(STRING)
    partitions: list[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition))


class OffsetForLeaderEpochRequest(Request, api=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), flexible_from=4):
    """Partitions and epochs to look up."""

    replica_id: int = field(INT32, since=3, default=-2, ignorable=True)  # -1 consumer, -2 unknown
    topics: list[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic))


class EpochEndOffset(Struct):
    """Where an epoch ends."""

    error_code: int = field(INT16)
    partition: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1)
    end_offset: int = field(INT64, default=-1)


class OffsetForLeaderTopicResult(Struct):
    """End offsets in one topic."""

    topic: str = field(STRING)
    partitions: list[EpochEndOffset] = field(array(EpochEndOffset))


class OffsetForLeaderEpochResponse(Response, api=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), flexible_from=4):
    """The end offsets found."""

    throttle_time_ms: int = field(INT32)
    topics: list[OffsetForLeaderTopicResult] = field(array(OffsetForLeaderTopicResult))
