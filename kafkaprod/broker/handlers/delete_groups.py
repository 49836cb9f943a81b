"""DeleteGroups (42): forget empty groups and their offsets."""

from __future__ import annotations

from functools import partial

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.calls.steps import Pause, PausingSteps, run_in_control_steps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.coordinators import GROUPS
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

API = ApiKey.DELETE_GROUPS
LANE = Lane.CONTROL
MAX_VERSION = 3
COORDINATED_BY = GROUPS


def handle(broker: Broker, request: ClientRequest[DeleteGroupsRequest]) -> Outcome:
    """Delete each group: GROUP_ID_NOT_FOUND if there is none, NON_EMPTY_GROUP if it has members."""
    return run_in_control_steps(broker, _delete_all(broker, request.body), partial(refuse, request))


def _delete_all(broker: Broker, body: DeleteGroupsRequest) -> PausingSteps[DeleteGroupsResponse]:
    results = []
    for group_id in body.groups_names:
        results.append(DeletableGroupResult(group_id=group_id, error_code=_delete(broker, group_id)))
        yield Pause.SHORT
    return DeleteGroupsResponse(results=results)


def _delete(broker: Broker, group_id: str) -> ErrorCode:
    error_code = broker.groups.delete(group_id)
    if error_code is ErrorCode.NONE:
        keys = broker.offsets.table.keys(group_id=group_id)
        try:
            broker.offsets.write([(key, None) for key in keys], broker.clock.wall_ms())
        except BrokerError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error_code
