"""ConsumerGroupHeartbeat (68): join, stay in and leave a group of the KIP-848 protocol.

    1  subscription by regular expression; the client makes the member id (KIP-1082)

Source: KIP-848, KIP-1082.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, NULLABLE_STRING, STRING, UUID, array, struct_of
from kafkaprod.protocol.schema import Request, Response, Struct, field


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: uuid.UUID | None = field(UUID)
    partitions: list[int] = field(array(INT32))


class ConsumerGroupHeartbeatRequest(Request, api=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible_from=0):
    """A member's state and wishes."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)  # 0 joins, -1 leaves, -2 leaves as a static member
    instance_id: str | None = field(NULLABLE_STRING)
    rack_id: str | None = field(NULLABLE_STRING)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    subscribed_topic_names: list[str] | None = field(array(STRING).nullable())
    subscribed_topic_regex: str | None = field(NULLABLE_STRING, since=1)
    server_assignor: str | None = field(NULLABLE_STRING)
    topic_partitions: list[TopicPartitions] | None = field(array(TopicPartitions).nullable())


class Assignment(Struct):
    """What the member is assigned."""

    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions))


class ConsumerGroupHeartbeatResponse(Response, api=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible_from=0):
    """The member's epoch and what it is assigned."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    member_id: str | None = field(NULLABLE_STRING)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    assignment: Assignment | None = field(struct_of(Assignment).nullable())
