"""OffsetForLeaderEpoch (23): where a leader's epoch ended; shows clients whether their log was cut (KIP-320)."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.leadership import check_leader_epoch
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

API = ApiKey.OFFSET_FOR_LEADER_EPOCH
LANE = Lane.DATA
MAX_VERSION = 4


def handle(broker: Broker, request: ClientRequest[OffsetForLeaderEpochRequest]) -> OffsetForLeaderEpochResponse:
    """Look each partition up; epoch and offset -1 where the log does not know the epoch."""
    topics = [
        OffsetForLeaderTopicResult(
            topic=topic.topic, partitions=[_look_up(broker, topic.topic, wanted) for wanted in topic.partitions]
        )
        for topic in request.body.topics
    ]
    return OffsetForLeaderEpochResponse(topics=topics)


def _look_up(broker: Broker, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = broker.topics.partition(topic, wanted.partition)
    if partition is None:
        return EpochEndOffset(partition=wanted.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error_code = check_leader_epoch(partition, wanted.current_leader_epoch)
    if error_code is not ErrorCode.NONE:
        return EpochEndOffset(partition=wanted.partition, error_code=error_code)
    if wanted.leader_epoch == partition.leader_epoch:
        # The epoch that lasts: its end is the log's, even if it has no record yet.
        return EpochEndOffset(
            partition=wanted.partition, leader_epoch=wanted.leader_epoch, end_offset=partition.log.log_end_offset
        )
    epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
