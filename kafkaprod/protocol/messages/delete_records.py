"""DeleteRecords (21): move the start of logs forward.

    2  flexible

Source: KIP-107.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, INT64, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class DeleteRecordsPartition(Struct):
    """The new start of one partition; -1: its end."""

    partition_index: int = field(INT32)
    offset: int = field(INT64)


class DeleteRecordsTopic(Struct):
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[DeleteRecordsPartition] = field(array(DeleteRecordsPartition))


class DeleteRecordsRequest(Request, api=ApiKey.DELETE_RECORDS, versions=(0, 2), flexible_from=2):
    """Partitions and their new start offsets."""

    topics: list[DeleteRecordsTopic] = field(array(DeleteRecordsTopic))
    timeout_ms: int = field(INT32)


class DeleteRecordsPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32)
    low_watermark: int = field(INT64)
    error_code: int = field(INT16)


class DeleteRecordsTopicResult(Struct):
    """The outcomes for one topic."""

    name: str = field(STRING)
    partitions: list[DeleteRecordsPartitionResult] = field(array(DeleteRecordsPartitionResult))


class DeleteRecordsResponse(Response, api=ApiKey.DELETE_RECORDS, versions=(0, 2), flexible_from=2):
    """The new start of each log."""

    throttle_time_ms: int = field(INT32)
    topics: list[DeleteRecordsTopicResult] = field(array(DeleteRecordsTopicResult))
