"""DescribeConfigs (32): the options of topics and of the broker, their values and where those come from.

3    types     Broker options are read-only here.
"""

from __future__ import annotations

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.option_types import TYPE_LONG, TYPE_STRING
from kafkaprod.broker.cluster.topic_options import (
    BROKER_NAMES,
    BROKER_SOURCE,
    DEFAULT_SOURCE,
    TOPIC_OPTIONS,
    TOPIC_SOURCE,
    default_values,
)
from kafkaprod.broker.server.refusal import RequestRefusedError
from kafkaprod.broker.server.request import ClientRequest, Lane
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

API = ApiKey.DESCRIBE_CONFIGS
LANE = Lane.CONTROL
MAX_VERSION = 4

TOPIC = 2
BROKER = 4


def handle(broker: Broker, request: ClientRequest[DescribeConfigsRequest]) -> DescribeConfigsResponse:
    """Describe each resource."""
    results = []
    for resource in request.body.resources:
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            result.configs = _describe(broker, resource, with_synonyms=request.body.include_synonyms)
        except BrokerError as error:
            result.error_code, result.error_message = error.code, str(error)
        results.append(result)
    return DescribeConfigsResponse(results=results)


def refuse(request: ClientRequest[DescribeConfigsRequest], error_code: int) -> DescribeConfigsResponse:
    """The error for every resource."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=error_code, resource_type=resource.resource_type, resource_name=resource.resource_name
            )
            for resource in request.body.resources
        ]
    )


def _describe(
    broker: Broker, resource: DescribeConfigsResource, *, with_synonyms: bool
) -> list[DescribeConfigsResourceResult]:
    defaults = default_values(broker.config.log)
    if resource.resource_type == TOPIC:
        topic = broker.topics.get(resource.resource_name)
        if topic is None:
            raise RequestRefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"This server does not host topic '{resource.resource_name}'."
            )
        entries = [
            _entry(name, value, topic.properties.get(name), with_synonyms=with_synonyms)
            for name, value in sorted(defaults.items())
        ]
    elif resource.resource_type == BROKER:
        if resource.resource_name not in ("", str(broker.config.node_id)):
            raise RequestRefusedError(
                ErrorCode.INVALID_REQUEST,
                f"Broker {resource.resource_name!r} is not this one, {broker.config.node_id}.",
            )
        entries = [_broker_entry(name, value) for name, value in sorted(broker.describe_options().items())]
    else:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {resource.resource_type}.")
    wanted = resource.configuration_keys
    return [entry for entry in entries if not wanted or entry.name in wanted]


def _entry(name: str, default: str, value: str | None, *, with_synonyms: bool) -> DescribeConfigsResourceResult:
    effective = default if value is None else value
    synonyms = []
    if with_synonyms:
        if value is not None:
            synonyms.append(DescribeConfigsSynonym(name=name, value=value, source=TOPIC_SOURCE))
        if name in BROKER_NAMES:
            synonyms.append(DescribeConfigsSynonym(name=BROKER_NAMES[name], value=default, source=DEFAULT_SOURCE))
    return DescribeConfigsResourceResult(
        name=name,
        value=effective,
        config_source=DEFAULT_SOURCE if value is None else TOPIC_SOURCE,
        config_type=TOPIC_OPTIONS[name].kind,
        synonyms=synonyms,
    )


def _broker_entry(name: str, value: str) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=True,
        config_source=BROKER_SOURCE,
        config_type=TYPE_LONG if value.isdecimal() else TYPE_STRING,
    )
