"""IncrementalAlterConfigs (44): set, reset, extend or shorten options of resources (KIP-339)."""

from __future__ import annotations

from functools import partial

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers import config_resources
from kafkaprod.broker.handlers.altered_options import alter_each
from kafkaprod.broker.handlers.authorization import rule_of_options
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.option_types import TYPE_LIST
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

API = ApiKey.INCREMENTAL_ALTER_CONFIGS
LANE = Lane.CONTROL
MAX_VERSION = 1
authorize = rule_of_options(acls.ALTER_CONFIGS, "responses")

SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3


def handle(broker: Broker, request: ClientRequest[IncrementalAlterConfigsRequest]) -> Outcome:
    """Change each resource as a whole, or not at all."""
    return alter_each(broker, request, partial(_alter, broker, validate_only=request.body.validate_only))


def _alter(broker: Broker, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    kind, name = resource.resource_type, resource.resource_name
    if len({change.name for change in resource.configs}) < len(resource.configs):
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "An option is named twice.")
    values = config_resources.set_values(broker, kind, name)
    defaults = {entry.name: entry.value or "" for entry in config_resources.describe(broker, kind, name)}
    for change in resource.configs:
        _apply(kind, change, values, defaults)
    config_resources.replace_values(broker, kind, name, values, validate_only=validate_only)


def _apply(kind: int, change: AlterableConfig, values: dict[str, str], defaults: dict[str, str]) -> None:
    name, operation = change.name, change.config_operation
    if operation == DELETE:
        values.pop(name, None)
        return
    if change.value is None or operation not in (SET, APPEND, SUBTRACT):
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"{name}: no value, or unknown operation {operation}.")
    if operation == SET:
        values[name] = change.value
        return
    option = config_resources.option_of(kind, name)
    if option is None or option.kind != TYPE_LIST:
        raise RequestRefusedError(ErrorCode.INVALID_CONFIG, f"{name} is no list: it cannot be extended or shortened.")
    items = [item for item in values.get(name, defaults.get(name, "")).split(",") if item]
    changed = dict.fromkeys(change.value.split(","))
    if operation == APPEND:
        items = list(dict.fromkeys((*items, *changed)))
    else:
        items = [item for item in items if item not in changed]
    values[name] = ",".join(items)
