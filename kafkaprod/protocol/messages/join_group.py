"""JoinGroup (11): become a member of a group; the answer waits until the group has gathered.

    1  rebalance timeout                       6  flexible
    2  throttle time                           7  protocol type and name may be null
    4  first join gets MEMBER_ID_REQUIRED      8  reason (KIP-800)
    5  static members (KIP-345)                9  skip assignment (KIP-814)

Source: protocol guide, KIPs above. Member metadata is opaque here.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, BYTES, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class JoinGroupRequestProtocol(Struct):
    """An assignor the member offers, with its metadata."""

    name: str = field(STRING)
    metadata: bytes = field(BYTES)


class JoinGroupRequest(Request, api=ApiKey.JOIN_GROUP, versions=(0, 9), flexible_from=6):
    """Requests membership."""

    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    rebalance_timeout_ms: int = field(INT32, since=1, default=-1, ignorable=True)
    member_id: str = field(STRING)  # empty: the broker gives one
    group_instance_id: str | None = field(NULLABLE_STRING, since=5)
    protocol_type: str = field(STRING)
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol))
    reason: str | None = field(NULLABLE_STRING, since=8, ignorable=True)


class JoinGroupResponseMember(Struct):
    """A member and its metadata; only the leader gets these."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(NULLABLE_STRING, since=5, ignorable=True)
    metadata: bytes = field(BYTES)


class JoinGroupResponse(Response, api=ApiKey.JOIN_GROUP, versions=(0, 9), flexible_from=6):
    """The new generation; the leader gets the members too."""

    throttle_time_ms: int = field(INT32, since=2, ignorable=True)
    error_code: int = field(INT16)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(NULLABLE_STRING, since=7, ignorable=True)
    protocol_name: str | None = field(STRING.nullable(since=7))
    leader: str = field(STRING)
    skip_assignment: bool = field(BOOL, since=9)
    member_id: str = field(STRING)
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember))
