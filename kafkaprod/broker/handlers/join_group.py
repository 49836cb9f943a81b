"""JoinGroup (11): become or stay a member; answered when the join phase ends.

4    a first join is answered with MEMBER_ID_REQUIRED and an id (KIP-394)     5  static members (KIP-345)
7    protocol type; a null protocol name is legal                             9  SkipAssignment (KIP-814)
"""

from __future__ import annotations

from kafkaprod.broker.calls.limits import MAX_ID_CHARS
from kafkaprod.broker.calls.request import ClientRequest, Deferred, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.broker.coordinator.member import JoinAttempt, JoinResult
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

API = ApiKey.JOIN_GROUP
LANE = Lane.CONTROL
MAX_VERSION = 9
COORDINATED_BY = GROUPS

_FIRST_VERSION_WITH_KNOWN_IDS = 4
_FIRST_VERSION_WITH_NULL_NAME = 7
_FIRST_VERSION_WITH_SKIP = 9


def handle(broker: Broker, request: ClientRequest[JoinGroupRequest]) -> Deferred:
    """Hand the join to the group."""
    body = request.body
    attempt = JoinAttempt(
        body.member_id,
        body.group_instance_id,
        request.client_id[:MAX_ID_CHARS],
        request.client_host,
        body.session_timeout_ms,
        body.session_timeout_ms if body.rebalance_timeout_ms < 0 else body.rebalance_timeout_ms,
        body.protocol_type,
        {protocol.name: protocol.metadata for protocol in body.protocols},
        needs_known_id=request.version >= _FIRST_VERSION_WITH_KNOWN_IDS and body.group_instance_id is None,
        can_skip_assignment=request.version >= _FIRST_VERSION_WITH_SKIP,
    )
    deferred = Deferred()

    def reply(result: JoinResult) -> None:
        deferred.complete(_response(result, request.version))

    deferred.on_abandon = lambda: broker.groups.abandon_join(body.group_id, reply, broker.clock.now_ms())
    broker.groups.join(body.group_id, attempt, broker.clock.now_ms(), reply)
    return deferred


def refuse(request: ClientRequest[JoinGroupRequest], error_code: int) -> JoinGroupResponse:
    """Answer the error."""
    return _response(JoinResult(error_code, request.body.member_id), request.version)


def _response(result: JoinResult, version: int) -> JoinGroupResponse:
    name = result.protocol_name
    return JoinGroupResponse(
        error_code=result.error_code,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name="" if name is None and version < _FIRST_VERSION_WITH_NULL_NAME else name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )
