"""ConsumerGroupDescribe (69): state, members and assignments of groups of the KIP-848 protocol.

    1  which protocol a member uses (KIP-1099)

Source: KIP-848, KIP-1099.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT8, INT16, INT32, NULLABLE_STRING, STRING, UUID, array, struct_of
from kafkaprod.protocol.messages.describe_groups import NOT_REQUESTED
from kafkaprod.protocol.schema import Request, Response, Struct, field


class ConsumerGroupDescribeRequest(Request, api=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), flexible_from=0):
    """Groups to describe."""

    group_ids: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL)


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: uuid.UUID | None = field(UUID)
    topic_name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class Assignment(Struct):
    """What a member is, or shall be, assigned."""

    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions))


class Member(Struct):
    """One member."""

    member_id: str = field(STRING)
    instance_id: str | None = field(NULLABLE_STRING)
    rack_id: str | None = field(NULLABLE_STRING)
    member_epoch: int = field(INT32)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(NULLABLE_STRING)
    assignment: Assignment = field(struct_of(Assignment))
    target_assignment: Assignment = field(struct_of(Assignment))
    member_type: int = field(INT8, since=1, default=-1, ignorable=True)  # 0 classic, 1 consumer, -1 unknown


class DescribedGroup(Struct):
    """One group."""

    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    assignor_name: str = field(STRING)
    members: list[Member] = field(array(Member))
    authorized_operations: int = field(INT32, default=NOT_REQUESTED)


class ConsumerGroupDescribeResponse(Response, api=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), flexible_from=0):
    """The groups."""

    throttle_time_ms: int = field(INT32)
    groups: list[DescribedGroup] = field(array(DescribedGroup))
