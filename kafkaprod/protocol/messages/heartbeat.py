"""Heartbeat (12): a member is alive, and learns of a rebalance.

    1  throttle time     3  static members (KIP-345)     4  flexible

Source: protocol guide, KIP-345.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, NULLABLE_STRING, STRING
from kafkaprod.protocol.schema import Request, Response, field


class HeartbeatRequest(Request, api=ApiKey.HEARTBEAT, versions=(0, 4), flexible_from=4):
    """A sign of life."""

    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(NULLABLE_STRING, since=3)


class HeartbeatResponse(Response, api=ApiKey.HEARTBEAT, versions=(0, 4), flexible_from=4):
    """The outcome: 27 asks to rejoin."""

    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16)
