"""OffsetCommit (8): store a group's offsets; answered when they are in the log.

6    leader epochs (KIP-320)     7  static members     9  members of consumer groups (KIP-848)
10   topic ids instead of names (KIP-848)
"""

from __future__ import annotations

from typing import cast

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.broker.coordinator.offset_log import OffsetChange
from kafkaprod.broker.handlers.committed_offsets import are_too_large, check_offsets, give_error
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

API = ApiKey.OFFSET_COMMIT
LANE = Lane.CONTROL
MAX_VERSION = 10
COORDINATED_BY = GROUPS


def handle(broker: Broker, request: ClientRequest[OffsetCommitRequest]) -> OffsetCommitResponse:
    """Check each partition, then the sender if any is left; store what is right."""
    now_ms = broker.clock.wall_ms()
    response = cast(OffsetCommitResponse, refuse(request, ErrorCode.NONE))
    changes = check_offsets(broker, request.body, response, now_ms)
    if changes:
        give_error(response, _write(broker, request, changes, now_ms))
    return response


def _write(
    broker: Broker, request: ClientRequest[OffsetCommitRequest], changes: list[OffsetChange], now_ms: int
) -> ErrorCode:
    """Write the offsets, if the group takes them from this member."""
    body = request.body
    error_code = broker.groups.check_commit(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id_or_member_epoch,
        broker.clock.now_ms(),
        request.version,
    )
    if error_code is not ErrorCode.NONE:
        return error_code
    if are_too_large(changes):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    try:
        broker.offsets.write(changes, now_ms)
    except BrokerError:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NONE
