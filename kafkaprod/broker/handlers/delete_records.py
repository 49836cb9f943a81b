"""DeleteRecords (21): raise a log's start; -1 means to the high watermark."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kafkaprod.structs import TopicPartition

API = ApiKey.DELETE_RECORDS
LANE = Lane.CONTROL
MAX_VERSION = 2


def handle(broker: Broker, request: ClientRequest[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    """Raise the start of each log."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_delete(broker, topic.name, wanted) for wanted in topic.partitions]
            )
            for topic in request.body.topics
        ]
    )


def _delete(broker: Broker, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    known = broker.topics.get(topic)
    partition = broker.topics.partition(topic, wanted.partition_index)
    if known is None or partition is None:
        return _failed(wanted.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if known.is_internal:
        return _failed(wanted.partition_index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not partition.is_leader:  # followers follow the leader's log start
        return _failed(wanted.partition_index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    try:
        low_watermark = partition.log.delete_records(wanted.offset)
        broker.purgatory.notify(TopicPartition(topic, wanted.partition_index))  # followers wait for it
    except BrokerError as error:
        return _failed(wanted.partition_index, error.code)
    return DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=low_watermark)


def _failed(index: int, error_code: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error_code)
