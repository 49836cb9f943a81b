"""ListPartitionReassignments (46): there is one broker, so none are in progress."""

from __future__ import annotations

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.server.request import ClientRequest, Lane
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

API = ApiKey.LIST_PARTITION_REASSIGNMENTS
LANE = Lane.CONTROL
MAX_VERSION = 0


def handle(
    broker: Broker, request: ClientRequest[ListPartitionReassignmentsRequest]
) -> ListPartitionReassignmentsResponse:
    """Answer an empty list."""
    return ListPartitionReassignmentsResponse()


def refuse(
    request: ClientRequest[ListPartitionReassignmentsRequest], error_code: int
) -> ListPartitionReassignmentsResponse:
    """Answer the error."""
    return ListPartitionReassignmentsResponse(error_code=error_code)
