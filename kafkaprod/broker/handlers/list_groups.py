"""ListGroups (16): all groups, those with nothing but committed offsets included.

4    only groups in some states (KIP-518)     5    only groups of some types (KIP-848)
"""

from __future__ import annotations

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.server.request import ClientRequest, Lane
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

API = ApiKey.LIST_GROUPS
LANE = Lane.CONTROL
MAX_VERSION = 5

_TYPE = "classic"
_FIRST_VERSION_WITH_TYPES = 5


def handle(broker: Broker, request: ClientRequest[ListGroupsRequest]) -> ListGroupsResponse:
    """List the groups."""
    states = {state.lower() for state in request.body.states_filter}
    types = {group_type.lower() for group_type in request.body.types_filter}
    group_type = _TYPE if request.version >= _FIRST_VERSION_WITH_TYPES else ""
    if types and _TYPE not in types:
        return ListGroupsResponse()
    groups = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=group_type,
        )
        for group in broker.groups.list_groups(broker.offsets.table.group_ids())
        if not states or group.state.value.lower() in states
    ]
    return ListGroupsResponse(groups=groups)


def refuse(request: ClientRequest[ListGroupsRequest], error_code: int) -> ListGroupsResponse:
    """Answer the error."""
    return ListGroupsResponse(error_code=error_code)
