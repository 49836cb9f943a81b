"""Heartbeat (12): a member is alive; REBALANCE_IN_PROGRESS asks it to join again."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

API = ApiKey.HEARTBEAT
LANE = Lane.CONTROL
MAX_VERSION = 4
COORDINATED_BY = GROUPS


def handle(broker: Broker, request: ClientRequest[HeartbeatRequest]) -> HeartbeatResponse:
    """Start the member's session again."""
    body = request.body
    error_code = broker.groups.heartbeat(
        body.group_id, body.member_id, body.group_instance_id, body.generation_id, broker.clock.now_ms()
    )
    return HeartbeatResponse(error_code=error_code)
