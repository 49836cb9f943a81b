"""DescribeGroups (15): state, members and assignments; an unknown group is Dead.

6    GROUP_ID_NOT_FOUND for an unknown group, or one of the consumer protocol (KIP-1043); before: no error
"""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.broker.coordinator.group import GroupState
from kafkaprod.broker.coordinator.member import Member
from kafkaprod.broker.settings.authorized_operations import GROUP_OPERATIONS
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

API = ApiKey.DESCRIBE_GROUPS
LANE = Lane.CONTROL
MAX_VERSION = 6
COORDINATED_BY = GROUPS

_FIRST_VERSION_WITH_NOT_FOUND = 6


def handle(broker: Broker, request: ClientRequest[DescribeGroupsRequest]) -> DescribeGroupsResponse:
    """Describe each group, once."""
    groups = [_describe(broker, group_id, request.version) for group_id in dict.fromkeys(request.body.groups)]
    if request.body.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


def _describe(broker: Broker, group_id: str, version: int) -> DescribedGroup:
    group = broker.groups.get(group_id)
    if group is None:
        described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if version >= _FIRST_VERSION_WITH_NOT_FOUND:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            is_consumer = broker.groups.get_consumer(group_id) is not None
            described.error_message = f"Group {group_id} {'is not a classic group' if is_consumer else 'not found'}."
        return described
    # Which protocol the members use is decided only when the join phase is over.
    protocol = group.protocol_name or "" if group.state is GroupState.STABLE else ""
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=[_member(member, protocol) for member in group.members.values()],
    )


def _member(member: Member, protocol: str) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=f"/{member.client_host}",
        member_metadata=member.protocols.get(protocol, b""),
        member_assignment=member.assignment,
    )
