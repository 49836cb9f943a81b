"""ElectLeaders (43), answered by the controller.

ELECTION_NOT_NEEDED where the leader is the preferred one, as at a broker alone; unnamed partitions that need no
election are left out, as in Kafka.
"""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode, describe
from kafkaprod.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kafkaprod.protocol.schema import Response

API = ApiKey.ELECT_LEADERS
LANE = Lane.CONTROL
MAX_VERSION = 2

_ELECTION_TYPES = (0, 1)  # preferred, unclean


def handle(broker: Broker, request: ClientRequest[ElectLeadersRequest]) -> Outcome:
    """Answer each partition."""
    if request.body.election_type not in _ELECTION_TYPES:
        return refuse(request, ErrorCode.INVALID_REQUEST)
    return broker.standing.forward(request.body, lambda answer: _finish(request, answer))


def _finish(request: ClientRequest[ElectLeadersRequest], answer: Response | None) -> Response:
    """Add messages, and an error for each partition that the controller does not know."""
    if not isinstance(answer, ElectLeadersResponse):
        return refuse(request, ErrorCode.REQUEST_TIMED_OUT)
    found = {topic.topic: topic for topic in answer.replica_election_results}
    known = {(name, result.partition_id) for name, topic in found.items() for result in topic.partition_result}
    for wanted in request.body.topic_partitions or []:
        topic = found.setdefault(wanted.topic, ReplicaElectionResult(topic=wanted.topic))
        for index in wanted.partitions:
            if (wanted.topic, index) not in known:
                known.add((wanted.topic, index))
                unknown = PartitionResult(partition_id=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                topic.partition_result.append(unknown)
    for topic in found.values():
        for result in topic.partition_result:
            result.error_message = describe(result.error_code).text if result.error_code else None
    return ElectLeadersResponse(error_code=answer.error_code, replica_election_results=list(found.values()))
