"""DeleteGroups (42): forget empty groups and their offsets."""

from __future__ import annotations

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.server.request import ClientRequest, Lane
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

API = ApiKey.DELETE_GROUPS
LANE = Lane.CONTROL
MAX_VERSION = 2


def handle(broker: Broker, request: ClientRequest[DeleteGroupsRequest]) -> DeleteGroupsResponse:
    """Delete each group: 69 if there is none, 68 if it has members."""
    results = [
        DeletableGroupResult(group_id=group_id, error_code=_delete(broker, group_id))
        for group_id in request.body.groups_names
    ]
    return DeleteGroupsResponse(results=results)


def refuse(request: ClientRequest[DeleteGroupsRequest], error_code: int) -> DeleteGroupsResponse:
    """Answer the error for every group."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error_code) for group_id in request.body.groups_names
        ]
    )


def _delete(broker: Broker, group_id: str) -> ErrorCode:
    error_code = broker.groups.delete(group_id)
    if error_code is ErrorCode.NONE:
        keys = broker.offsets.table.keys(group_id=group_id)
        try:
            broker.offsets.write([(key, None) for key in keys], broker.clock.wall_ms())
        except BrokerError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error_code
