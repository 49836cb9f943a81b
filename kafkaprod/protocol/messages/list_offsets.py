"""ListOffsets (2): the offset that belongs to a timestamp, or one of the special positions below.

    -1 latest   -2 earliest   -3 of the newest timestamp (7+)   -4 earliest local (8+)
    -5 latest tiered (9+)   -6 earliest pending upload (11+)

    2  isolation level, throttle time     6  flexible
    4  leader epochs                     10  timeout, for tiered storage (KIP-1075)

Source: protocol guide, KIP-79, KIP-734, KIP-405.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT8, INT16, INT32, INT64, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class ListOffsetsPartition(Struct):
    """A timestamp in one partition."""

    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=4, default=-1, ignorable=True)
    timestamp: int = field(INT64)


class ListOffsetsTopic(Struct):
    """Timestamps in one topic."""

    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition))


class ListOffsetsRequest(Request, api=ApiKey.LIST_OFFSETS, versions=(1, 11), flexible_from=6):
    """Partitions and timestamps to look up."""

    replica_id: int = field(INT32)  # -1: a consumer
    isolation_level: int = field(INT8, since=2)  # 0 read_uncommitted, 1 read_committed
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic))
    timeout_ms: int = field(INT32, since=10, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    """The offset found in one partition; -1: none."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    timestamp: int = field(INT64, default=-1)
    offset: int = field(INT64, default=-1)
    leader_epoch: int = field(INT32, since=4, default=-1)


class ListOffsetsTopicResponse(Struct):
    """The offsets found in one topic."""

    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse))


class ListOffsetsResponse(Response, api=ApiKey.LIST_OFFSETS, versions=(1, 11), flexible_from=6):
    """The offsets found."""

    throttle_time_ms: int = field(INT32, since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse))
