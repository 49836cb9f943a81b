"""ListConfigResources (74): the names of resources that have options.

0    subscriptions of client metrics only (KIP-1000)     1    any type (KIP-1142)
"""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.config_resources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    resource_names,
)
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kafkaprod.protocol.schema import Response

API = ApiKey.LIST_CONFIG_RESOURCES
LANE = Lane.CONTROL
MAX_VERSION = 1

_TYPES = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


def handle(broker: Broker, request: ClientRequest[ListConfigResourcesRequest]) -> Response:
    """List the resources of the types; UNSUPPORTED_VERSION for an unknown type."""
    types = set(request.body.resource_types) or set(_TYPES)
    if request.version == 0:
        types = {CLIENT_METRICS}
    if not types <= set(_TYPES):
        return refuse(request, ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(types)
            for name in resource_names(broker, kind)
        ]
    )
