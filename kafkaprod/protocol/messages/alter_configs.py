"""AlterConfigs (33): replace all options set on a resource. Those that are not named go back to their defaults.

    2  flexible

Deprecated in favour of IncrementalAlterConfigs (44). Source: KIP-133.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT8, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class AlterableConfig(Struct):
    """One option."""

    name: str = field(STRING)
    value: str | None = field(NULLABLE_STRING)


class AlterConfigsResource(Struct):
    """One resource and all its options."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


class AlterConfigsRequest(Request, api=ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible_from=2):
    """Resources and their options."""

    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


class AlterConfigsResourceResponse(Struct):
    """The outcome for one resource."""

    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


class AlterConfigsResponse(Response, api=ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible_from=2):
    """The outcome for each resource."""

    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
