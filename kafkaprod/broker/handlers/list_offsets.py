"""ListOffsets (2): the offset of a partition's start, end, or of a timestamp.

-1 latest: the high watermark, for read-committed clients the last stable offset     -3 of the largest timestamp (7)
-2 earliest                                                                          -4 earliest local: as -2 (8)
-5 latest tiered (9), -6 earliest pending upload (11): none, as in a Kafka without tiered storage
"""

from __future__ import annotations

from collections import Counter

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.calls.steps import Pause, PausingSteps, run_in_steps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.leadership import check_leader_epoch
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.log.segments import RecordPosition
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

API = ApiKey.LIST_OFFSETS
LANE = Lane.DATA
MAX_VERSION = 11

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_FIRST_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

_FIRST_VERSION_WITH_EPOCH = 4
_READ_COMMITTED = 1


def handle(broker: Broker, request: ClientRequest[ListOffsetsRequest]) -> Outcome:
    """Look each partition up; offset -1 where no record is that young. A partition that is named twice is refused."""
    return run_in_steps(
        _look_up_all(broker, request),
        broker.clock,
        broker.run_long,
        lambda response: response,
        lambda error_code: refuse(request, error_code),
    )


def _look_up_all(broker: Broker, request: ClientRequest[ListOffsetsRequest]) -> PausingSteps[ListOffsetsResponse]:
    named = Counter(
        (topic.name, wanted.partition_index) for topic in request.body.topics for wanted in topic.partitions
    )
    topics = []
    for topic in request.body.topics:
        partitions = []
        for wanted in topic.partitions:
            if named[topic.name, wanted.partition_index] > 1:
                index, error_code = wanted.partition_index, ErrorCode.INVALID_REQUEST
                partitions.append(ListOffsetsPartitionResponse(partition_index=index, error_code=error_code))
                continue
            # A time is looked for within a batch, which is decompressed.
            yield Pause.LONG if wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP else Pause.SHORT
            partitions.append(_look_up(broker, request, topic.name, wanted))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _look_up(
    broker: Broker, request: ClientRequest[ListOffsetsRequest], topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    response = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    partition = broker.topics.partition(topic, wanted.partition_index)
    if partition is None:
        response.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return response
    if request.version < _FIRST_VERSION_OF.get(wanted.timestamp, 0):
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        return response
    response.error_code = check_leader_epoch(partition, wanted.current_leader_epoch)
    if response.error_code != ErrorCode.NONE:
        return response
    try:
        if request.is_peer and wanted.timestamp == LATEST:
            response.offset = partition.log.log_end_offset  # a follower asks
            return response
        is_latest = wanted.timestamp in (LATEST, MAX_TIMESTAMP)
        if is_latest and partition.log.high_watermark < partition.epoch_start_offset:
            # What an earlier leader acknowledged may lie above the high watermark for a while (KAFKA-2334).
            response.error_code = ErrorCode.OFFSET_NOT_AVAILABLE
            return response
        position = _find(partition.log, wanted.timestamp, request.body.isolation_level, partition.leader_epoch)
    except BrokerError as error:
        response.error_code = error.code
        return response
    response.offset, response.timestamp = position.offset, position.timestamp
    if request.version >= _FIRST_VERSION_WITH_EPOCH:
        response.leader_epoch = position.leader_epoch
    return response


def _find(log: PartitionLog, timestamp: int, isolation_level: int, leader_epoch: int) -> RecordPosition:
    end_offset = log.last_stable_offset if isolation_level == _READ_COMMITTED else log.high_watermark
    if timestamp == LATEST:
        return RecordPosition(end_offset, -1, leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return RecordPosition(log.log_start_offset, -1, leader_epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return RecordPosition(-1, -1, -1)
    found = log.find_max_timestamp() if timestamp == MAX_TIMESTAMP else log.find_timestamp(timestamp)
    if found is None or found.offset >= end_offset:
        return RecordPosition(-1, -1, -1)
    return found
