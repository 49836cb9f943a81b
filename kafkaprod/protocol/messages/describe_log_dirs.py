"""DescribeLogDirs (35): log directories of a broker and what they hold.

    2  flexible     3  error for the whole request     4  size of the volume (KIP-827)
    5  cordoned directories (KIP-1066)

Source: KIP-113, KIPs above.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT16, INT32, INT64, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class DescribableLogDirTopic(Struct):
    """Partitions of one topic."""

    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class DescribeLogDirsRequest(Request, api=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5), flexible_from=2):
    """Requests partitions; null means all."""

    topics: list[DescribableLogDirTopic] | None = field(array(DescribableLogDirTopic).nullable())


class DescribeLogDirsPartition(Struct):
    """The size of one partition."""

    partition_index: int = field(INT32)
    partition_size: int = field(INT64)
    offset_lag: int = field(INT64)
    is_future_key: bool = field(BOOL)


class DescribeLogDirsTopic(Struct):
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition))


class DescribeLogDirsResult(Struct):
    """One log directory."""

    error_code: int = field(INT16)
    log_dir: str = field(STRING)
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic))
    total_bytes: int = field(INT64, since=4, default=-1, ignorable=True)
    usable_bytes: int = field(INT64, since=4, default=-1, ignorable=True)
    is_cordoned: bool = field(BOOL, since=5, ignorable=True)


class DescribeLogDirsResponse(Response, api=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5), flexible_from=2):
    """The log directories."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult))
