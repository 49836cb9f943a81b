"""FindCoordinator (10): the broker that coordinates a group or a transactional id. Alone it is this
broker; in a cluster the leader of the internal topic's partition. The first request makes that topic, as in Kafka.

4    several keys in one request     6  share groups, which have no coordinator here: INVALID_REQUEST
"""

from __future__ import annotations

from typing import Any

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.offset_log import OFFSETS_TOPIC
from kafkaprod.broker.coordinator.transaction_log import TRANSACTIONS_TOPIC
from kafkaprod.broker.handlers.authorization import ERRORS, Authorizer, Handle, ItemRight, RefuseRequest
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import GROUP, TRANSACTIONAL_ID
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kafkaprod.protocol.schema import Response

API = ApiKey.FIND_COORDINATOR
LANE = Lane.CONTROL
MAX_VERSION = 6

_GROUP = 0
_TRANSACTION = 1
_FIRST_VERSION_WITH_KEYS = 4


def handle(broker: Broker, request: ClientRequest[FindCoordinatorRequest]) -> Response:
    """Name the broker; INVALID_REQUEST for an unknown kind of key or an empty transactional id.

    COORDINATOR_NOT_AVAILABLE without the topic.
    """
    body = request.body
    keys = body.coordinator_keys if request.version >= _FIRST_VERSION_WITH_KEYS else [body.key]
    if body.key_type not in (_GROUP, _TRANSACTION) or (body.key_type == _TRANSACTION and not all(keys)):
        return refuse(request, ErrorCode.INVALID_REQUEST)
    topic = OFFSETS_TOPIC if body.key_type == _GROUP else TRANSACTIONS_TOPIC
    found = broker.standing.find_coordinator(topic, request.endpoint)
    if found is None:
        return refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    node_id, host, port = found
    if request.version < _FIRST_VERSION_WITH_KEYS:
        return FindCoordinatorResponse(node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key=key, node_id=node_id, host=host, port=port) for key in keys]
    )


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Check the keys."""
    body = authorizer.request.body
    resource_type = {0: GROUP, 1: TRANSACTIONAL_ID}.get(body.key_type)
    if resource_type is None:
        return call(authorizer.request)
    if authorizer.request.version < 4:
        if not authorizer.may(acls.DESCRIBE, resource_type, body.key):
            return deny(authorizer.request, ERRORS[resource_type])
        return call(authorizer.request)
    right = ItemRight(acls.DESCRIBE, resource_type, "coordinator_keys", "coordinators", "")
    return authorizer.split(call, deny, right)
