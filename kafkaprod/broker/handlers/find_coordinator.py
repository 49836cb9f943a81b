"""FindCoordinator (10): the broker that coordinates a group or a transactional id. There is one broker, so it is this.

4    several keys in one request     6  share groups, which have no coordinator here: 42
"""

from __future__ import annotations

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.server.request import ClientRequest, Lane
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

API = ApiKey.FIND_COORDINATOR
LANE = Lane.CONTROL
MAX_VERSION = 6

_GROUP = 0
_TRANSACTION = 1
_FIRST_VERSION_WITH_KEYS = 4


def handle(broker: Broker, request: ClientRequest[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    """Name this broker; 42 for a kind of key it does not know, or an empty transactional id."""
    body = request.body
    keys = body.coordinator_keys if request.version >= _FIRST_VERSION_WITH_KEYS else [body.key]
    if body.key_type not in (_GROUP, _TRANSACTION) or (body.key_type == _TRANSACTION and not all(keys)):
        return refuse(request, ErrorCode.INVALID_REQUEST)
    node_id, endpoint = broker.config.node_id, request.endpoint or broker.endpoint
    if request.version < _FIRST_VERSION_WITH_KEYS:
        return FindCoordinatorResponse(node_id=node_id, host=endpoint.host, port=endpoint.port)
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key=key, node_id=node_id, host=endpoint.host, port=endpoint.port) for key in keys]
    )


def refuse(request: ClientRequest[FindCoordinatorRequest], error_code: int) -> FindCoordinatorResponse:
    """Answer the error for every key."""
    if request.version < _FIRST_VERSION_WITH_KEYS:
        return FindCoordinatorResponse(error_code=error_code, node_id=-1, port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, port=-1, error_code=error_code) for key in request.body.coordinator_keys
        ]
    )
