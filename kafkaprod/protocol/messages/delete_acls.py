"""DeleteAcls (31): delete access control entries.

Resource types: 1 any, 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user. Pattern types:
1 any, 2 match, 3 literal, 4 prefixed. Operations: 1 any, 2 all, then those of `cluster.acls`. Permissions: 1 any,
2 deny, 3 allow.

    1  pattern types     2  flexible

Source: KIP-4, KIP-290.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT8, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class DeleteAclsFilter(Struct):
    """Which entries to delete; null matches all."""

    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(NULLABLE_STRING)
    pattern_type_filter: int = field(INT8, default=3)
    principal_filter: str | None = field(NULLABLE_STRING)
    host_filter: str | None = field(NULLABLE_STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DeleteAclsRequest(Request, api=ApiKey.DELETE_ACLS, versions=(1, 3), flexible_from=2):
    """Filters of the entries to delete."""

    filters: list[DeleteAclsFilter] = field(array(DeleteAclsFilter))


class DeleteAclsMatchingAcl(Struct):
    """An entry that was deleted."""

    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DeleteAclsFilterResult(Struct):
    """What one filter deleted."""

    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    matching_acls: list[DeleteAclsMatchingAcl] = field(array(DeleteAclsMatchingAcl))


class DeleteAclsResponse(Response, api=ApiKey.DELETE_ACLS, versions=(1, 3), flexible_from=2):
    """The outcome for each filter."""

    throttle_time_ms: int = field(INT32)
    filter_results: list[DeleteAclsFilterResult] = field(array(DeleteAclsFilterResult))
