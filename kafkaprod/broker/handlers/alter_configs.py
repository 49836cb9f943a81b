"""AlterConfigs (33): replace all options that are set on resources (KIP-133)."""

from __future__ import annotations

from functools import partial

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers import config_resources
from kafkaprod.broker.handlers.altered_options import alter_each
from kafkaprod.broker.handlers.authorization import rule_of_options
from kafkaprod.broker.settings import acls
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource

API = ApiKey.ALTER_CONFIGS
LANE = Lane.CONTROL
MAX_VERSION = 2
authorize = rule_of_options(acls.ALTER_CONFIGS, "responses")


def handle(broker: Broker, request: ClientRequest[AlterConfigsRequest]) -> Outcome:
    """Change each resource as a whole, or not at all."""
    return alter_each(broker, request, partial(_alter, broker, validate_only=request.body.validate_only))


def _alter(broker: Broker, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    values = {config.name: config.value for config in resource.configs if config.value is not None}
    if len(values) < len(resource.configs):
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, "An option is named twice, or has no value.")
    kind, name = resource.resource_type, resource.resource_name
    config_resources.set_values(broker, kind, name)  # raises if there is no such resource
    config_resources.replace_values(broker, kind, name, values, validate_only=validate_only)
