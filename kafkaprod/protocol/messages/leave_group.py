"""LeaveGroup (13): members leave.

    1  throttle time     3  many members at once (KIP-345)     4  flexible     5  reason (KIP-800)

Source: protocol guide, KIPs above.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class MemberIdentity(Struct):
    """A member that leaves."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(NULLABLE_STRING)
    reason: str | None = field(NULLABLE_STRING, since=5, ignorable=True)


class LeaveGroupRequest(Request, api=ApiKey.LEAVE_GROUP, versions=(0, 5), flexible_from=4):
    """Members to remove."""

    group_id: str = field(STRING)
    member_id: str = field(STRING, until=2)
    members: list[MemberIdentity] = field(array(MemberIdentity), since=3)


class MemberResponse(Struct):
    """The outcome for one member."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(NULLABLE_STRING)
    error_code: int = field(INT16)


class LeaveGroupResponse(Response, api=ApiKey.LEAVE_GROUP, versions=(0, 5), flexible_from=4):
    """The outcome for each member."""

    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16)
    members: list[MemberResponse] = field(array(MemberResponse), since=3)
