"""ListPartitionReassignments (46): reassignments in progress.

Source: KIP-455.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic."""

    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class ListPartitionReassignmentsRequest(
    Request, api=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), flexible_from=0
):
    """Partitions; null means all."""

    timeout_ms: int = field(INT32, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(array(ListPartitionReassignmentsTopics).nullable())


class OngoingPartitionReassignment(Struct):
    """A reassignment."""

    partition_index: int = field(INT32)
    replicas: list[int] = field(array(INT32))
    adding_replicas: list[int] = field(array(INT32))
    removing_replicas: list[int] = field(array(INT32))


class OngoingTopicReassignment(Struct):
    """Reassignments of one topic."""

    name: str = field(STRING)
    partitions: list[OngoingPartitionReassignment] = field(array(OngoingPartitionReassignment))


class ListPartitionReassignmentsResponse(
    Response, api=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), flexible_from=0
):
    """The reassignments in progress."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    topics: list[OngoingTopicReassignment] = field(array(OngoingTopicReassignment))
