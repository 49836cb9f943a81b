"""OffsetDelete (47): delete committed offsets of a group.

Source: KIP-496.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class OffsetDeleteRequestPartition(Struct):
    """One partition."""

    partition_index: int = field(INT32)


class OffsetDeleteRequestTopic(Struct):
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[OffsetDeleteRequestPartition] = field(array(OffsetDeleteRequestPartition))


class OffsetDeleteRequest(Request, api=ApiKey.OFFSET_DELETE, versions=(0, 0)):
    """Offsets to delete."""

    group_id: str = field(STRING)
    topics: list[OffsetDeleteRequestTopic] = field(array(OffsetDeleteRequestTopic))


class OffsetDeleteResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class OffsetDeleteResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = field(STRING)
    partitions: list[OffsetDeleteResponsePartition] = field(array(OffsetDeleteResponsePartition))


class OffsetDeleteResponse(Response, api=ApiKey.OFFSET_DELETE, versions=(0, 0)):
    """The outcome for each partition."""

    error_code: int = field(INT16)
    throttle_time_ms: int = field(INT32)
    topics: list[OffsetDeleteResponseTopic] = field(array(OffsetDeleteResponseTopic))
