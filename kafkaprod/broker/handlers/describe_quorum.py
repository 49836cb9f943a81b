"""DescribeQuorum (55): in a cluster the controller answers, a quorum of one.

A broker alone has its controller inside: the same node is the only voter.
"""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.forwarding import forward
from kafkaprod.broker.controller.quorum import METADATA_TOPIC
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    QuorumPartition,
    QuorumTopic,
    ReplicaState,
)
from kafkaprod.protocol.schema import Response

API = ApiKey.DESCRIBE_QUORUM
LANE = Lane.CONTROL
MAX_VERSION = 2

_FIRST_VERSION_WITH_NODES = 2


def handle(broker: Broker, request: ClientRequest[DescribeQuorumRequest]) -> Outcome:
    """Describe partition 0 of the metadata; UNKNOWN_TOPIC_OR_PARTITION for any other."""
    if broker.member is not None:
        return forward(broker, request.body, lambda answer: _finish(request, answer))
    topics = [
        QuorumTopic(
            topic_name=topic.topic_name,
            partitions=[_describe(broker, topic.topic_name, wanted.partition_index) for wanted in topic.partitions],
        )
        for topic in request.body.topics
    ]
    response = DescribeQuorumResponse(topics=topics)
    if request.version >= _FIRST_VERSION_WITH_NODES:
        endpoint = request.endpoint or broker.endpoint
        listener = Listener(name="CONTROLLER", host=endpoint.host, port=endpoint.port)
        response.nodes = [Node(node_id=broker.config.node_id, listeners=[listener])]
    return response


def _finish(request: ClientRequest[DescribeQuorumRequest], answer: Response | None) -> DescribeQuorumResponse:
    if not isinstance(answer, DescribeQuorumResponse):
        return refuse(request, ErrorCode.REQUEST_TIMED_OUT)
    if request.version < _FIRST_VERSION_WITH_NODES:
        answer.nodes = []
    return answer


def refuse(request: ClientRequest[DescribeQuorumRequest], error_code: int) -> DescribeQuorumResponse:
    """Answer the error at the top."""
    return DescribeQuorumResponse(error_code=error_code)


def _describe(broker: Broker, topic: str, index: int) -> QuorumPartition:
    if (topic, index) != (METADATA_TOPIC, 0):
        return QuorumPartition(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert broker.controller is not None
    now_ms, end_offset = broker.clock.wall_ms(), broker.image.end_offset
    voter = ReplicaState(
        replica_id=broker.config.node_id,
        log_end_offset=end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return QuorumPartition(
        partition_index=0,
        leader_id=broker.config.node_id,
        leader_epoch=broker.controller.epoch,
        high_watermark=end_offset,
        current_voters=[voter],
    )
