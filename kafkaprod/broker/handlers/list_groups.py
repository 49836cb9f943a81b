"""ListGroups (16): all groups, those with nothing but committed offsets included.

4    only groups in some states (KIP-518)     5    only groups of some types (KIP-848)
"""

from __future__ import annotations

from typing import Any

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.consumer_group import ConsumerGroup
from kafkaprod.broker.coordinator.group import Group
from kafkaprod.broker.handlers.authorization import Authorizer, Handle, RefuseRequest
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import CLUSTER, GROUP
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

API = ApiKey.LIST_GROUPS
LANE = Lane.CONTROL
MAX_VERSION = 5

_FIRST_VERSION_WITH_TYPES = 5


def handle(broker: Broker, request: ClientRequest[ListGroupsRequest]) -> ListGroupsResponse:
    """List the groups."""
    states = {state.lower() for state in request.body.states_filter}
    types = {group_type.lower() for group_type in request.body.types_filter}
    groups = map(_listed, broker.groups.list_groups(broker.offsets.table.group_ids()))
    found = [
        group
        for group in groups
        if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
    ]
    if request.version < _FIRST_VERSION_WITH_TYPES:
        for group in found:
            group.group_type = ""
    return ListGroupsResponse(groups=found)


def _listed(group: Group | ConsumerGroup) -> ListedGroup:
    if isinstance(group, ConsumerGroup):
        return ListedGroup(
            group_id=group.group_id, protocol_type="consumer", group_state=group.state_name, group_type="consumer"
        )
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type="classic",
    )


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Leave out the groups that may not be described."""
    response: Any = call(authorizer.request)
    if not authorizer.may(acls.DESCRIBE, CLUSTER):
        response.groups = [group for group in response.groups if authorizer.may(acls.DESCRIBE, GROUP, group.group_id)]
    return response
