"""AlterPartitionReassignments (45): move replicas to other brokers.

    1  a change of the replication factor may be refused (KIP-860)

Source: KIP-455, KIP-860.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class ReassignablePartition(Struct):
    """The replicas of one partition; null cancels a reassignment."""

    partition_index: int = field(INT32)
    replicas: list[int] | None = field(array(INT32).nullable())


class ReassignableTopic(Struct):
    """The partitions of one topic."""

    name: str = field(STRING)
    partitions: list[ReassignablePartition] = field(array(ReassignablePartition))


class AlterPartitionReassignmentsRequest(
    Request, api=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), flexible_from=0
):
    """Reassignments."""

    timeout_ms: int = field(INT32, default=60000)
    allow_replication_factor_change: bool = field(BOOL, since=1, default=True)
    topics: list[ReassignableTopic] = field(array(ReassignableTopic))


class ReassignablePartitionResponse(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)


class ReassignableTopicResponse(Struct):
    """The outcome for one topic."""

    name: str = field(STRING)
    partitions: list[ReassignablePartitionResponse] = field(array(ReassignablePartitionResponse))


class AlterPartitionReassignmentsResponse(
    Response, api=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), flexible_from=0
):
    """The outcome for each partition."""

    throttle_time_ms: int = field(INT32)
    allow_replication_factor_change: bool = field(BOOL, since=1, default=True, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    responses: list[ReassignableTopicResponse] = field(array(ReassignableTopicResponse))
