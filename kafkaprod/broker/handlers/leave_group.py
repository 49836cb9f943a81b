"""LeaveGroup (13): members go at once instead of by timeout.

0-2  one member     3  several members, static ones by their instance id (KIP-345)
"""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

API = ApiKey.LEAVE_GROUP
LANE = Lane.CONTROL
MAX_VERSION = 5
COORDINATED_BY = GROUPS

_FIRST_VERSION_WITH_MEMBERS = 3


def handle(broker: Broker, request: ClientRequest[LeaveGroupRequest]) -> LeaveGroupResponse:
    """Remove the members."""
    body, now_ms = request.body, broker.clock.now_ms()
    if request.version < _FIRST_VERSION_WITH_MEMBERS:
        return LeaveGroupResponse(error_code=broker.groups.leave(body.group_id, body.member_id, None, now_ms))
    if not body.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    members = [
        MemberResponse(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=broker.groups.leave(body.group_id, member.member_id, member.group_instance_id, now_ms),
        )
        for member in body.members
    ]
    return LeaveGroupResponse(members=members)
