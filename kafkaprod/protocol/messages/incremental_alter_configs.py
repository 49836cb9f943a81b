"""IncrementalAlterConfigs (44): change single options. Operations: 0 set, 1 delete, 2 append, 3 subtract.

    1  flexible

Source: KIP-339.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT8, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class AlterableConfig(Struct):
    """One change of one option."""

    name: str = field(STRING)
    config_operation: int = field(INT8)
    value: str | None = field(NULLABLE_STRING)


class AlterConfigsResource(Struct):
    """One resource and its changes."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


class IncrementalAlterConfigsRequest(Request, api=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible_from=1):
    """Resources and options to change."""

    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


class AlterConfigsResourceResponse(Struct):
    """The outcome for one resource."""

    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


class IncrementalAlterConfigsResponse(Response, api=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible_from=1):
    """The outcome for each resource."""

    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
