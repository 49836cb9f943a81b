"""DescribeConfigs (32): the options of resources, their values and where those come from.

3    types, and what options mean
"""

from __future__ import annotations

from functools import partial

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.calls.steps import Pause, PausingSteps, run_in_control_steps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers import config_resources
from kafkaprod.broker.handlers.authorization import rule_of_options
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.option_texts import text_of
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
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
authorize = rule_of_options(acls.DESCRIBE_CONFIGS, "results")


def handle(broker: Broker, request: ClientRequest[DescribeConfigsRequest]) -> Outcome:
    """Describe each resource, once."""
    return run_in_control_steps(broker, _describe_all(broker, request.body), partial(refuse, request))


def _describe_all(broker: Broker, body: DescribeConfigsRequest) -> PausingSteps[DescribeConfigsResponse]:
    asked = {
        (resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ())): resource
        for resource in body.resources
    }
    results = []
    for resource in asked.values():
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            result.configs = _describe(broker, resource, body)
        except BrokerError as error:
            result.error_code, result.error_message = error.code, str(error)
        results.append(result)
        yield Pause.SHORT
    return DescribeConfigsResponse(results=results)


def _describe(
    broker: Broker, resource: DescribeConfigsResource, body: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    wanted = resource.configuration_keys
    return [
        DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
            config_type=entry.kind,
            documentation=text_of(entry.name) if body.include_documentation else None,
            synonyms=[
                DescribeConfigsSynonym(name=name, value=value, source=source)
                for name, value, source in (entry.synonyms if body.include_synonyms else [])
            ],
        )
        for entry in config_resources.describe(broker, resource.resource_type, resource.resource_name)
        if not wanted or entry.name in wanted
    ]
