"""DescribeTopicPartitions (75): topics and their partitions, in pages.

Source: KIP-966.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT16, INT32, NULLABLE_STRING, STRING, UUID, array, struct_of
from kafkaprod.protocol.schema import Request, Response, Struct, field


class TopicRequest(Struct):
    """A topic."""

    name: str = field(STRING)


class Cursor(Struct):
    """The partition a page begins with."""

    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


class DescribeTopicPartitionsRequest(Request, api=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible_from=0):
    """Topics; empty means all."""

    topics: list[TopicRequest] = field(array(TopicRequest))
    response_partition_limit: int = field(INT32, default=2000)
    cursor: Cursor | None = field(struct_of(Cursor).nullable())


class DescribeTopicPartitionsResponsePartition(Struct):
    """One partition."""

    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    eligible_leader_replicas: list[int] | None = field(array(INT32).nullable())
    last_known_elr: list[int] | None = field(array(INT32).nullable())
    offline_replicas: list[int] = field(array(INT32))


class DescribeTopicPartitionsResponseTopic(Struct):
    """One topic."""

    error_code: int = field(INT16)
    name: str | None = field(NULLABLE_STRING)
    topic_id: uuid.UUID | None = field(UUID)
    is_internal: bool = field(BOOL)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(array(DescribeTopicPartitionsResponsePartition))
    topic_authorized_operations: int = field(INT32, default=-2147483648)


class DescribeTopicPartitionsResponse(Response, api=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible_from=0):
    """One page."""

    throttle_time_ms: int = field(INT32)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(array(DescribeTopicPartitionsResponseTopic))
    next_cursor: Cursor | None = field(struct_of(Cursor).nullable())
