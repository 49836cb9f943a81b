"""What OffsetCommit and TxnOffsetCommit share: the checks of the offsets to store."""

from __future__ import annotations

from collections.abc import Sequence

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.offset_log import OffsetChange
from kafkaprod.broker.coordinator.offsets import MAX_METADATA_BYTES, OffsetCommitValue, OffsetKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafkaprod.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafkaprod.structs import TopicPartition

MAX_COMMIT_BYTES = 1 << 20
"""The size limit of the metadata of all offsets in a request.

Kafka's limit is that of a batch, message.max.bytes of 1 MiB. Up to 3.9 it answers INVALID_COMMIT_OFFSET_SIZE, as here;
from 4.0 on UNKNOWN_SERVER_ERROR, which says less.
"""


def check_offsets(
    broker: Broker,
    body: OffsetCommitRequest | TxnOffsetCommitRequest,
    response: OffsetCommitResponse | TxnOffsetCommitResponse,
    now_ms: int,
) -> list[OffsetChange]:
    """Return the offsets of a request that may be committed; the others get their error in the response.

    Args:
        broker: Knows the topics.
        body: The request.
        response: Has an outcome for each partition of the request, in the same order.
        now_ms: Wall time.
    """
    changes: list[OffsetChange] = []
    errors: list[ErrorCode] = []
    for topic in body.topics:
        name = broker.topics.name_of(topic.name, topic.topic_id)
        for wanted in topic.partitions:
            index, metadata = wanted.partition_index, wanted.committed_metadata or ""
            if name is None:
                errors.append(ErrorCode.UNKNOWN_TOPIC_ID)
            elif broker.topics.partition(name, index) is None:
                errors.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif len(metadata.encode()) > MAX_METADATA_BYTES:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                value = OffsetCommitValue(wanted.committed_offset, wanted.committed_leader_epoch, metadata, now_ms)
                changes.append((OffsetKey(body.group_id, TopicPartition(name, index)), value))
                errors.append(ErrorCode.NONE)
    left = iter(errors)
    for answered in response.topics:
        for outcome in answered.partitions:
            outcome.error_code = next(left)
    return changes


def give_error(response: OffsetCommitResponse | TxnOffsetCommitResponse, error_code: ErrorCode) -> None:
    """Give an error to all partitions that have none yet."""
    for topic in response.topics:
        for outcome in topic.partitions:
            outcome.error_code = outcome.error_code or error_code


def are_too_large(changes: Sequence[OffsetChange]) -> bool:
    """Whether the offsets of a request are too large to be stored together."""
    return sum(len(committed.metadata.encode()) for _, committed in changes if committed is not None) > MAX_COMMIT_BYTES
