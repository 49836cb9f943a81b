"""What a replica fetcher asks and gets as Kafka's Fetch and ListOffsets. Pure functions."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping

from kafkaprod.broker.calls.file_records import records_field
from kafkaprod.broker.controller.wire import error_of
from kafkaprod.broker.metadata.image import ClusterImage, PartitionKey
from kafkaprod.broker.replication.fetcher import FetchAnswer, OffsetAnswer, Question
from kafkaprod.broker.replication.fetcher import FetchRequest as WantedFetch
from kafkaprod.broker.replication.partition import FetchOutcome, FollowerFetch
from kafkaprod.broker.replication.partition_replica_log import MAX_READ_BYTES, ReadBatches, fetched_batches
from kafkaprod.broker.storage.log.segment import FileSlice
from kafkaprod.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from kafkaprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

MAX_ANSWER_BYTES = 16 * 1024 * 1024


def fetch_request(wanted: WantedFetch) -> FetchRequest:
    """Return the request for what a fetcher wants, all of it fetches."""
    topics: dict[uuid.UUID, list[FetchPartition]] = defaultdict(list)
    for (topic_id, index), question in wanted.questions.items():
        if isinstance(question, FollowerFetch):
            topics[topic_id].append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=question.leader_epoch,
                    fetch_offset=question.offset,
                    last_fetched_epoch=question.last_fetched_epoch,
                    log_start_offset=question.log_start_offset,
                    partition_max_bytes=MAX_READ_BYTES,
                    high_watermark=question.high_watermark,
                )
            )
    forgotten: dict[uuid.UUID, list[int]] = defaultdict(list)
    for topic_id, index in wanted.forgotten:
        forgotten[topic_id].append(index)
    return FetchRequest(
        replica_state=ReplicaState(replica_id=wanted.follower, replica_epoch=wanted.broker_epoch),
        max_wait_ms=wanted.wait_ms,
        min_bytes=1,
        max_bytes=MAX_ANSWER_BYTES,
        session_id=wanted.session_id,
        session_epoch=wanted.session_epoch,
        topics=[FetchTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
        forgotten_topics_data=[
            ForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in forgotten.items()
        ],
    )


def wanted_fetch(body: FetchRequest) -> WantedFetch:
    """Return what a follower's request wants."""
    state = body.replica_state
    questions: dict[PartitionKey, Question] = {
        (topic.topic_id, wanted.partition): FollowerFetch(
            state.replica_id,
            state.replica_epoch,
            wanted.current_leader_epoch,
            wanted.fetch_offset,
            wanted.last_fetched_epoch,
            wanted.high_watermark,
            wanted.log_start_offset,
        )
        for topic in body.topics
        if topic.topic_id is not None
        for wanted in topic.partitions
    }
    forgotten = frozenset(
        (topic.topic_id, index)
        for topic in body.forgotten_topics_data
        if topic.topic_id is not None
        for index in topic.partitions
    )
    return WantedFetch(
        questions,
        forgotten,
        state.replica_id,
        state.replica_epoch,
        body.session_id,
        body.session_epoch,
        body.max_wait_ms,
    )


def fetch_response(
    outcomes: Mapping[PartitionKey, FetchOutcome], session_id: int, ranges: list[FileSlice]
) -> FetchResponse:
    """Return the answer to a follower; the records' places in the files are added to `ranges`."""
    topics: dict[uuid.UUID, list[PartitionData]] = defaultdict(list)
    for (topic_id, index), outcome in outcomes.items():
        data = PartitionData(
            partition_index=index,
            error_code=outcome.error,
            high_watermark=outcome.high_watermark,
            last_stable_offset=outcome.high_watermark,
            log_start_offset=outcome.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )
        if outcome.diverging is not None:
            data.diverging_epoch = EpochEndOffset(epoch=outcome.diverging[0], end_offset=outcome.diverging[1])
        for batches in outcome.batches:
            if isinstance(batches, ReadBatches):
                data.records = records_field(batches.source, ranges)
        topics[topic_id].append(data)
    return FetchResponse(
        session_id=session_id,
        responses=[
            FetchableTopicResponse(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()
        ],
    )


def fetch_answer(response: FetchResponse) -> FetchAnswer:
    """Return what a fetcher gets."""
    outcomes = {
        (topic.topic_id, data.partition_index): _outcome(data)
        for topic in response.responses
        if topic.topic_id is not None
        for data in topic.partitions
    }
    return FetchAnswer(outcomes, response.session_id, error_of(response.error_code))


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
