"""AlterPartitionReassignments (45): the controller answers.

Of a broker alone the only possible replicas are the present ones.
"""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kafkaprod.protocol.schema import Response

API = ApiKey.ALTER_PARTITION_REASSIGNMENTS
LANE = Lane.CONTROL
MAX_VERSION = 1


def handle(broker: Broker, request: ClientRequest[AlterPartitionReassignmentsRequest]) -> Outcome:
    """Begin or cancel reassignments.

    INVALID_REPLICA_ASSIGNMENT for impossible replicas, NO_REASSIGNMENT_IN_PROGRESS where there is nothing to cancel.
    """
    return broker.standing.forward(request.body, lambda answer: _finish(request, answer))


def _finish(request: ClientRequest[AlterPartitionReassignmentsRequest], answer: Response | None) -> Response:
    if isinstance(answer, AlterPartitionReassignmentsResponse):
        return answer
    return refuse(request, ErrorCode.REQUEST_TIMED_OUT)
