"""DescribeGroups (15): state and members of groups.

    1  throttle time     3  authorized operations     4  static members     5  flexible     6  error message

Source: protocol guide, KIP-430, KIP-345.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, BYTES, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field

NOT_REQUESTED = -(1 << 31)  # of authorized operations


class DescribeGroupsRequest(Request, api=ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible_from=5):
    """Groups to describe."""

    groups: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL, since=3)


class DescribedGroupMember(Struct):
    """One member."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(NULLABLE_STRING, since=4, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES)
    member_assignment: bytes = field(BYTES)


class DescribedGroup(Struct):
    """One group."""

    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING, since=6)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember))
    authorized_operations: int = field(INT32, since=3, default=NOT_REQUESTED)


class DescribeGroupsResponse(Response, api=ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible_from=5):
    """The groups."""

    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    groups: list[DescribedGroup] = field(array(DescribedGroup))
