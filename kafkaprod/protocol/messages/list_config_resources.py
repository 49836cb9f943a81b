"""ListConfigResources (74): resources that have options. Resource types as in DescribeConfigs (32).

    0  client metrics only (KIP-1000)     1  any type (KIP-1142)

Source: KIPs above.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT8, INT16, INT32, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class ListConfigResourcesRequest(Request, api=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible_from=0):
    """Types; empty means all."""

    resource_types: list[int] = field(array(INT8), since=1)


class ConfigResource(Struct):
    """One resource."""

    resource_name: str = field(STRING)
    resource_type: int = field(INT8, since=1, default=16, ignorable=True)


class ListConfigResourcesResponse(Response, api=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible_from=0):
    """The resources."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    config_resources: list[ConfigResource] = field(array(ConfigResource))
