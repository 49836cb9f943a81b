"""ElectLeaders (43): each partition has one replica, which leads it already: 84 for those that are named.

Where no partitions are named, those that need no election are left out of the answer, as Kafka does.
"""

from __future__ import annotations

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.server.request import ClientRequest, Lane
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

API = ApiKey.ELECT_LEADERS
LANE = Lane.CONTROL
MAX_VERSION = 2

_FIRST_VERSION_WITH_ERROR = 1
_ELECTION_TYPES = (0, 1)  # preferred, unclean
_MESSAGES = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
}


def handle(broker: Broker, request: ClientRequest[ElectLeadersRequest]) -> ElectLeadersResponse:
    """Answer each partition."""
    if request.body.election_type not in _ELECTION_TYPES:
        return refuse(request, ErrorCode.INVALID_REQUEST)
    results = []
    for topic in request.body.topic_partitions or []:
        outcomes = []
        for index in topic.partitions:
            is_known = broker.topics.partition(topic.topic, index) is not None
            code = ErrorCode.ELECTION_NOT_NEEDED if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            outcomes.append(PartitionResult(partition_id=index, error_code=code, error_message=_MESSAGES[code]))
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=outcomes))
    return ElectLeadersResponse(replica_election_results=results)


def refuse(request: ClientRequest[ElectLeadersRequest], error_code: int) -> ElectLeadersResponse:
    """Answer the error, at the top where the version has a place for it, and for every partition."""
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[PartitionResult(partition_id=index, error_code=error_code) for index in topic.partitions],
        )
        for topic in request.body.topic_partitions or []
    ]
    top_code = error_code if request.version >= _FIRST_VERSION_WITH_ERROR else ErrorCode.NONE
    return ElectLeadersResponse(error_code=top_code, replica_election_results=results)
