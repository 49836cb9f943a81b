"""Requests that tests of the broker's handlers ask again and again."""

from __future__ import annotations

from typing import Any

from kafkaprod.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from kafkaprod.protocol.messages.join_group import JoinGroupResponse
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafkaprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafkaprod.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from kafkaprod.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets

TOPIC = "orders"


def produce_request(
    batch: bytes | bytearray, *, topic: str = TOPIC, partition: int = 0, acks: int = -1, transaction: str | None = None
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=memoryview(bytearray(batch)))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(transactional_id=transaction, acks=acks, timeout_ms=1000, topic_data=topics)


def produce(
    box: BrokerWithoutSockets, batch: bytes | bytearray, version: int = 9, **change: Any
) -> PartitionProduceResponse:
    response = box.ask(produce_request(batch, **change), ProduceResponse, version)
    return response.responses[0].partition_responses[0]


def fetch_request(
    offset: int = 0, *, topic: str = TOPIC, partition: int = 0, max_bytes: int = 1 << 20, **change: Any
) -> FetchRequest:
    partition_change = {key: change.pop(key) for key in ("current_leader_epoch", "last_fetched_epoch") if key in change}
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, **partition_change)
    change.setdefault("max_wait_ms", 0)
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=[wanted])], **change)


def fetch(box: BrokerWithoutSockets, offset: int = 0, version: int = 11, **change: Any) -> PartitionData:
    return box.ask(fetch_request(offset, **change), FetchResponse, version).responses[0].partitions[0]


def metadata(box: BrokerWithoutSockets, names: list[str] | None, version: int = 9, **change: Any) -> MetadataResponse:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return box.ask(MetadataRequest(topics=topics, **change), MetadataResponse, version)


def commit(box: BrokerWithoutSockets, offset: int, member: JoinGroupResponse | None = None, **change: Any) -> int:
    wanted = OffsetCommitRequestPartition(
        partition_index=change.pop("partition", 0), committed_offset=offset, committed_metadata=change.pop("note", None)
    )
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1 if member is None else member.generation_id,
        member_id="" if member is None else member.member_id,
        topics=[OffsetCommitRequestTopic(name=change.pop("topic", TOPIC), partitions=[wanted])],
    )
    return box.ask(request, OffsetCommitResponse, 7).topics[0].partitions[0].error_code


def committed(box: BrokerWithoutSockets, partition: int = 0) -> int:
    topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[partition])]
    answer = box.ask(OffsetFetchRequest(group_id="g", topics=topics), OffsetFetchResponse, 5)
    return answer.topics[0].partitions[0].committed_offset
