"""FindCoordinator (10): the broker that coordinates a group or a transactional id. Alone it is this
broker; in a cluster the leader of the internal topic's partition. The first request makes that topic, as in Kafka.

4    several keys in one request     6  share groups, which have no coordinator here: INVALID_REQUEST
"""

from __future__ import annotations

import logging

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.forwarding import create_in_background
from kafkaprod.broker.cluster.nodes import ReachableBroker, node_of, replicas_of
from kafkaprod.broker.coordinator.offset_log import OFFSETS_TOPIC
from kafkaprod.broker.coordinator.transaction_log import TRANSACTIONS_TOPIC
from kafkaprod.broker.listeners import Endpoint
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

logger = logging.getLogger(__name__)

API = ApiKey.FIND_COORDINATOR
LANE = Lane.CONTROL
MAX_VERSION = 6

_GROUP = 0
_TRANSACTION = 1
_FIRST_VERSION_WITH_KEYS = 4


def handle(broker: Broker, request: ClientRequest[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    """Name the broker.

    INVALID_REQUEST for a kind of key it does not know, or an empty transactional id; COORDINATOR_NOT_AVAILABLE without
    the topic.
    """
    body = request.body
    keys = body.coordinator_keys if request.version >= _FIRST_VERSION_WITH_KEYS else [body.key]
    if body.key_type not in (_GROUP, _TRANSACTION) or (body.key_type == _TRANSACTION and not all(keys)):
        return refuse(request, ErrorCode.INVALID_REQUEST)
    node = find_coordinator(broker, OFFSETS_TOPIC if body.key_type == _GROUP else TRANSACTIONS_TOPIC, request.endpoint)
    if node is None:
        return refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if request.version < _FIRST_VERSION_WITH_KEYS:
        return FindCoordinatorResponse(node_id=node.node_id, host=node.host, port=node.port)
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port) for key in keys]
    )


def find_coordinator(broker: Broker, topic: str, endpoint: Endpoint | None) -> ReachableBroker | None:
    """Return the leader of a coordinator's log, None without one; the topic is made if it is missing."""
    if broker.member is None:
        try:
            broker.make_internal_topic(topic)
        except BrokerError:
            logger.exception("cannot make the topic %s", topic)
            return None
        return ReachableBroker(broker.config.node_id, *(endpoint or broker.endpoint), None)
    partition = broker.topics.partition(topic, 0)
    if partition is None:
        create_in_background(broker, topic)
        return None
    return node_of(broker, replicas_of(broker, partition).leader_id, endpoint)


def refuse(request: ClientRequest[FindCoordinatorRequest], error_code: int) -> FindCoordinatorResponse:
    """Answer the error for every key."""
    if request.version < _FIRST_VERSION_WITH_KEYS:
        return FindCoordinatorResponse(error_code=error_code, node_id=-1, port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, port=-1, error_code=error_code) for key in request.body.coordinator_keys
        ]
    )
