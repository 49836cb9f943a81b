"""ListGroups (16): all groups of a broker.

    1  throttle time     3  flexible     4  states, and a filter (KIP-518)     5  types, and a filter (KIP-848)

Source: protocol guide, KIPs above.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class ListGroupsRequest(Request, api=ApiKey.LIST_GROUPS, versions=(0, 5), flexible_from=3):
    """Requests the groups."""

    states_filter: list[str] = field(array(STRING), since=4)
    types_filter: list[str] = field(array(STRING), since=5)


class ListedGroup(Struct):
    """One group."""

    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, since=4, ignorable=True)
    group_type: str = field(STRING, since=5, ignorable=True)


class ListGroupsResponse(Response, api=ApiKey.LIST_GROUPS, versions=(0, 5), flexible_from=3):
    """The groups."""

    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16)
    groups: list[ListedGroup] = field(array(ListedGroup))
