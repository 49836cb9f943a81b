"""SyncGroup (14): the leader hands in the assignment, every member gets its own.

    1  throttle time     3  static members (KIP-345)     4  flexible     5  protocol type and name

Source: protocol guide, KIP-345, KIP-559. Assignments are opaque here.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BYTES, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class SyncGroupRequestAssignment(Struct):
    """What one member is assigned."""

    member_id: str = field(STRING)
    assignment: bytes = field(BYTES)


class SyncGroupRequest(Request, api=ApiKey.SYNC_GROUP, versions=(0, 5), flexible_from=4):
    """Requests the member's assignment; the leader adds the assignments of all."""

    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(NULLABLE_STRING, since=3)
    protocol_type: str | None = field(NULLABLE_STRING, since=5, ignorable=True)
    protocol_name: str | None = field(NULLABLE_STRING, since=5, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(array(SyncGroupRequestAssignment))


class SyncGroupResponse(Response, api=ApiKey.SYNC_GROUP, versions=(0, 5), flexible_from=4):
    """The assignment of one member."""

    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16)
    protocol_type: str | None = field(NULLABLE_STRING, since=5, ignorable=True)
    protocol_name: str | None = field(NULLABLE_STRING, since=5, ignorable=True)
    assignment: bytes = field(BYTES)
