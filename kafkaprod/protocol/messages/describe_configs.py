"""DescribeConfigs (32): options of topics and brokers.

Resource types: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group. Sources: 1 topic, 2 broker, 3 default
of all brokers, 4 server.properties, 5 built-in default. Types: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double,
7 list, 8 class, 9 password.

    3  type and documentation     4  flexible

Source: KIP-133, KIP-226, KIP-569.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT8, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class DescribeConfigsResource(Struct):
    """A resource and the requested options."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configuration_keys: list[str] | None = field(array(STRING).nullable())  # null: all


class DescribeConfigsRequest(Request, api=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible_from=4):
    """Resources to describe."""

    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource))
    include_synonyms: bool = field(BOOL)
    include_documentation: bool = field(BOOL, since=3)


class DescribeConfigsSynonym(Struct):
    """A place the value could come from."""

    name: str = field(STRING)
    value: str | None = field(NULLABLE_STRING)
    source: int = field(INT8)


class DescribeConfigsResourceResult(Struct):
    """One option."""

    name: str = field(STRING)
    value: str | None = field(NULLABLE_STRING)
    read_only: bool = field(BOOL)
    config_source: int = field(INT8, default=-1)
    is_sensitive: bool = field(BOOL)
    synonyms: list[DescribeConfigsSynonym] = field(array(DescribeConfigsSynonym))
    config_type: int = field(INT8, since=3, ignorable=True)
    documentation: str | None = field(NULLABLE_STRING, since=3, ignorable=True)


class DescribeConfigsResult(Struct):
    """The options of one resource."""

    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResourceResult] = field(array(DescribeConfigsResourceResult))


class DescribeConfigsResponse(Response, api=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible_from=4):
    """The options of each resource."""

    throttle_time_ms: int = field(INT32)
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult))
