"""CreatePartitions (37): grow topics.

    2  flexible     3  may answer THROTTLING_QUOTA_EXCEEDED

Source: KIP-195, KIP-599.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class CreatePartitionsAssignment(Struct):
    """Where the replicas of one new partition go."""

    broker_ids: list[int] = field(array(INT32))


class CreatePartitionsTopic(Struct):
    """A topic and its new number of partitions."""

    name: str = field(STRING)
    count: int = field(INT32)
    assignments: list[CreatePartitionsAssignment] | None = field(array(CreatePartitionsAssignment).nullable())


class CreatePartitionsRequest(Request, api=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible_from=2):
    """Topics to grow."""

    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic))
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOL)


class CreatePartitionsTopicResult(Struct):
    """The outcome for one topic."""

    name: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)


class CreatePartitionsResponse(Response, api=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible_from=2):
    """The outcome for each topic."""

    throttle_time_ms: int = field(INT32)
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult))
