"""IncrementalAlterConfigs (44): set, reset, extend or shorten options of topics (KIP-339)."""

from __future__ import annotations

from collections import Counter

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.option_types import TYPE_LIST
from kafkaprod.broker.cluster.topic_options import TOPIC_OPTIONS, default_values
from kafkaprod.broker.cluster.topics import refuse_internal
from kafkaprod.broker.server.refusal import RequestRefusedError
from kafkaprod.broker.server.request import ClientRequest, Lane
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

API = ApiKey.INCREMENTAL_ALTER_CONFIGS
LANE = Lane.CONTROL
MAX_VERSION = 1

TOPIC = 2
SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3


def handle(broker: Broker, request: ClientRequest[IncrementalAlterConfigsRequest]) -> IncrementalAlterConfigsResponse:
    """Change each resource as a whole, or not at all."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.body.resources)
    responses = []
    for resource in request.body.resources:
        response = _response(resource, ErrorCode.NONE)
        try:
            if counts[(resource.resource_type, resource.resource_name)] > 1:
                raise RequestRefusedError(
                    ErrorCode.INVALID_REQUEST, f"{resource.resource_name} is in the request twice."
                )
            _alter(broker, resource, validate_only=request.body.validate_only)
        except BrokerError as error:
            response.error_code, response.error_message = error.code, str(error)
        responses.append(response)
    return IncrementalAlterConfigsResponse(responses=responses)


def refuse(request: ClientRequest[IncrementalAlterConfigsRequest], error_code: int) -> IncrementalAlterConfigsResponse:
    """The error for every resource."""
    return IncrementalAlterConfigsResponse(
        responses=[_response(resource, error_code) for resource in request.body.resources]
    )


def _response(resource: AlterConfigsResource, error_code: int) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error_code, resource_type=resource.resource_type, resource_name=resource.resource_name
    )


def _alter(broker: Broker, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    if resource.resource_type != TOPIC:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "Only the options of topics can be altered here.")
    refuse_internal(resource.resource_name)
    topic = broker.topics.get(resource.resource_name)
    if topic is None:
        raise RequestRefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"This server does not host topic '{resource.resource_name}'."
        )
    properties = dict(topic.properties)
    defaults = default_values(broker.config.log)
    for change in resource.configs:
        _apply(change, properties, defaults)
    broker.topics.set_properties(topic.name, properties, validate_only=validate_only)


def _apply(change: AlterableConfig, properties: dict[str, str], defaults: dict[str, str]) -> None:
    name, operation = change.name, change.config_operation
    if operation == DELETE:
        properties.pop(name, None)
        return
    if change.value is None or operation not in (SET, APPEND, SUBTRACT):
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"{name}: no value, or unknown operation {operation}.")
    if operation == SET:
        properties[name] = change.value
        return
    if name not in TOPIC_OPTIONS or TOPIC_OPTIONS[name].kind != TYPE_LIST:
        raise RequestRefusedError(ErrorCode.INVALID_CONFIG, f"{name} is no list: it cannot be extended or shortened.")
    items = [item for item in properties.get(name, defaults.get(name, "")).split(",") if item]
    changed = change.value.split(",")
    if operation == APPEND:
        items += [item for item in changed if item not in items]
    else:
        items = [item for item in items if item not in changed]
    properties[name] = ",".join(items)
