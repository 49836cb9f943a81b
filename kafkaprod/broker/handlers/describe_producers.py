"""DescribeProducers (61): the producers a partition remembers, and where their open transactions begin."""

from __future__ import annotations

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.topics import is_legal_name
from kafkaprod.broker.storage.producers.producer_entry import ProducerEntry
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

API = ApiKey.DESCRIBE_PRODUCERS
LANE = Lane.DATA
MAX_VERSION = 0


def handle(broker: Broker, request: ClientRequest[DescribeProducersRequest]) -> DescribeProducersResponse:
    """Look each partition up, once."""
    asked: dict[str, dict[int, None]] = {}
    for topic in request.body.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(name=name, partitions=[_describe(broker, name, index) for index in indexes])
            for name, indexes in asked.items()
        ]
    )


def _describe(broker: Broker, topic: str, index: int) -> PartitionResponse:
    partition = broker.topics.partition(topic, index)
    if partition is None:
        is_legal = is_legal_name(topic)
        return PartitionResponse(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION,
            error_message=f"This server does not host {topic}-{index}.",
        )
    if not partition.is_leader:
        return PartitionResponse(partition_index=index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.is_offline:
        return PartitionResponse(partition_index=index, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    producers = [_producer(entry) for entry in partition.log.producers()]
    return PartitionResponse(partition_index=index, active_producers=producers)


def _producer(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )
