"""SyncGroup (14): the leader brings the assignment, every member gets its own; answered when it is there.

3    static members     5  protocol type and name, checked (KIP-559)
"""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Deferred, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.broker.coordinator.member import SyncAttempt, SyncResult
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

API = ApiKey.SYNC_GROUP
LANE = Lane.CONTROL
MAX_VERSION = 5
COORDINATED_BY = GROUPS


def handle(broker: Broker, request: ClientRequest[SyncGroupRequest]) -> Deferred:
    """Hand the sync to the group."""
    body = request.body
    attempt = SyncAttempt(
        body.member_id,
        body.group_instance_id,
        body.generation_id,
        body.protocol_type,
        body.protocol_name,
        {assignment.member_id: assignment.assignment for assignment in body.assignments},
    )
    deferred = Deferred()
    broker.groups.sync(
        body.group_id, attempt, broker.clock.now_ms(), lambda result: deferred.complete(_response(result))
    )
    return deferred


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error_code,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
