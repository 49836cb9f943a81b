"""AlterPartitionReassignments (45): in a cluster the controller answers.

Of a broker alone the only possible replicas are the present ones.
"""

from __future__ import annotations

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.forwarding import forward
from kafkaprod.broker.server.request import ClientRequest, Lane, Outcome
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kafkaprod.protocol.schema import Response

API = ApiKey.ALTER_PARTITION_REASSIGNMENTS
LANE = Lane.CONTROL
MAX_VERSION = 1


def handle(broker: Broker, request: ClientRequest[AlterPartitionReassignmentsRequest]) -> Outcome:
    """Check each partition; 39 for other replicas than this broker, 85 where there is nothing to cancel."""
    if broker.member is not None:
        return forward(broker, request.body, lambda answer: _finish(request, answer))
    return AlterPartitionReassignmentsResponse(
        responses=[
            ReassignableTopicResponse(
                name=topic.name, partitions=[_check(broker, topic.name, wanted) for wanted in topic.partitions]
            )
            for topic in request.body.topics
        ]
    )


def _finish(
    request: ClientRequest[AlterPartitionReassignmentsRequest], answer: Response | None
) -> AlterPartitionReassignmentsResponse:
    if isinstance(answer, AlterPartitionReassignmentsResponse):
        return answer
    return refuse(request, ErrorCode.REQUEST_TIMED_OUT)


def refuse(
    request: ClientRequest[AlterPartitionReassignmentsRequest], error_code: int
) -> AlterPartitionReassignmentsResponse:
    """Answer the error at the top."""
    return AlterPartitionReassignmentsResponse(error_code=error_code)


def _check(broker: Broker, topic: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
    response = ReassignablePartitionResponse(partition_index=wanted.partition_index)
    node_id = broker.config.node_id
    if broker.topics.partition(topic, wanted.partition_index) is None:
        response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response.error_message = "This server does not host this topic-partition."
    elif wanted.replicas is None:
        response.error_code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        response.error_message = "No partition reassignment is in progress."
    elif wanted.replicas != [node_id]:
        response.error_code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        response.error_message = f"Replicas {wanted.replicas} are impossible: broker {node_id} is the only one."
    return response
