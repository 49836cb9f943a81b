"""DescribeQuorum: the controller is a quorum of one, and brokers observe it."""

from __future__ import annotations

from typing import Final

from kafkaprod.broker.controller.controller import Controller
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Node,
    QuorumPartition,
    QuorumTopic,
    ReplicaState,
)

METADATA_TOPIC: Final = "__cluster_metadata"


def describe_quorum(controller: Controller, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Describe partition 0 of the metadata; UNKNOWN_TOPIC_OR_PARTITION for any other."""
    topics = [
        QuorumTopic(
            topic_name=topic.topic_name,
            partitions=[
                _partition(controller, topic.topic_name, wanted.partition_index) for wanted in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DescribeQuorumResponse(topics=topics, nodes=[Node(node_id=controller.context.voter_id, listeners=[])])


def _partition(controller: Controller, topic: str, index: int) -> QuorumPartition:
    if (topic, index) != (METADATA_TOPIC, 0):
        return QuorumPartition(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    end_offset, applied = controller.log.end_offset, controller.context.applied
    return QuorumPartition(
        partition_index=0,
        leader_id=controller.context.voter_id,
        leader_epoch=controller.epoch,
        high_watermark=end_offset,
        current_voters=[ReplicaState(replica_id=controller.context.voter_id, log_end_offset=end_offset)],
        observers=[
            ReplicaState(replica_id=broker_id, log_end_offset=applied.get(broker_id, 0))
            for broker_id in sorted(controller.context.image.brokers)
            if broker_id != controller.context.voter_id
        ],
    )
