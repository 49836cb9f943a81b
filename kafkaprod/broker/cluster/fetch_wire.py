"""What a replica fetcher asks and gets as Kafka's Fetch and ListOffsets. Pure functions."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping

from kafkaprod.broker.controller.wire import error_of
from kafkaprod.broker.metadata.image import ClusterImage, PartitionKey
from kafkaprod.broker.replication.fetcher import FetchRequest as WantedFetch
from kafkaprod.broker.replication.fetcher import OffsetAnswer
from kafkaprod.broker.replication.partition import FetchOutcome, FollowerFetch, PartitionReplica
from kafkaprod.broker.replication.partition_replica_log import MAX_READ_BYTES, fetched_batches
from kafkaprod.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from kafkaprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_MAX_ANSWER_BYTES = 16 * 1024 * 1024


def fetch_request(
    wanted: WantedFetch, replicas: Mapping[PartitionKey, PartitionReplica], name: str, broker_epoch: int, wait_ms: int
) -> FetchRequest:
    """Return the request for what a fetcher wants, all of it fetches."""
    topics: dict[uuid.UUID, list[FetchPartition]] = defaultdict(list)
    for key, question in wanted.questions.items():
        replica = replicas.get(key)
        if replica is None or not isinstance(question, FollowerFetch):
            continue
        topics[key[0]].append(
            FetchPartition(
                partition=key[1],
                current_leader_epoch=question.leader_epoch,
                fetch_offset=question.offset,
                last_fetched_epoch=question.last_fetched_epoch,
                log_start_offset=replica.log.log_start_offset,
                partition_max_bytes=MAX_READ_BYTES,
                high_watermark=replica.log.high_watermark,
            )
        )
    return FetchRequest(
        replica_state=ReplicaState(replica_id=int(name), replica_epoch=broker_epoch),
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=_MAX_ANSWER_BYTES,
        topics=[FetchTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
    )


def answers_of(response: FetchResponse) -> dict[PartitionKey, FetchOutcome]:
    """Return what a fetcher gets."""
    return {
        (topic.topic_id, data.partition_index): _outcome(data)
        for topic in response.responses
        if topic.topic_id is not None
        for data in topic.partitions
    }


def offset_request(
    wanted: WantedFetch, keys: Iterable[PartitionKey], image: ClusterImage, broker_id: int, timestamp: int
) -> ListOffsetsRequest:
    """Return the request for where logs start (-2) or end (-1)."""
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for key in keys:
        if key[0] in image.topics:
            topics[image.topics[key[0]].name].append(
                ListOffsetsPartition(
                    partition_index=key[1],
                    current_leader_epoch=wanted.questions[key].leader_epoch,
                    timestamp=timestamp,
                )
            )
    return ListOffsetsRequest(
        replica_id=broker_id,
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


def offset_answers(
    starts: ListOffsetsResponse, ends: ListOffsetsResponse, image: ClusterImage
) -> dict[PartitionKey, OffsetAnswer]:
    """Return what a fetcher gets from both answers."""
    found = {}
    end_of = {(topic.name, part.partition_index): part for topic in ends.topics for part in topic.partitions}
    for topic in starts.topics:
        for part in topic.partitions:
            end = end_of.get((topic.name, part.partition_index))
            topic_id = image.topic_ids.get(topic.name)
            if end is not None and topic_id is not None:
                error = error_of(part.error_code or end.error_code)
                found[topic_id, part.partition_index] = OffsetAnswer(error, part.offset, end.offset)
    return found


def _outcome(data: PartitionData) -> FetchOutcome:
    diverging = data.diverging_epoch
    return FetchOutcome(
        error_of(data.error_code),
        () if data.records is None else tuple(fetched_batches(memoryview(data.records))),
        data.high_watermark,
        data.log_start_offset,
        None if diverging.epoch < 0 else (diverging.epoch, diverging.end_offset),
    )
