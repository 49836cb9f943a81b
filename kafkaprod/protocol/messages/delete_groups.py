"""DeleteGroups (42): remove empty groups with their offsets.

    2  flexible     3  error message

Source: KIP-229.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class DeleteGroupsRequest(Request, api=ApiKey.DELETE_GROUPS, versions=(0, 3), flexible_from=2):
    """Groups to delete."""

    groups_names: list[str] = field(array(STRING))


class DeletableGroupResult(Struct):
    """The outcome for one group."""

    group_id: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING, since=3, ignorable=True)


class DeleteGroupsResponse(Response, api=ApiKey.DELETE_GROUPS, versions=(0, 3), flexible_from=2):
    """The outcome for each group."""

    throttle_time_ms: int = field(INT32)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult))
