"""What OffsetCommit and TxnOffsetCommit share: the checks of the offsets to store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.offset_log import Change
from kafkaprod.broker.coordinator.offsets import MAX_METADATA_BYTES
from kafkaprod.protocol.error_codes import ErrorCode

MAX_COMMIT_BYTES = 1 << 20
"""The size limit of the metadata of all offsets in a request.

Kafka's limit is that of a batch, message.max.bytes of 1 MiB. Up to 3.9 it answers INVALID_COMMIT_OFFSET_SIZE, as here;
from 4.0 on UNKNOWN_SERVER_ERROR, which says less.
"""


class WantedOffset(Protocol):
    """A partition of either request."""

    partition_index: int
    committed_metadata: str | None


def committed_offset_error(broker: Broker, topic: str | None, wanted: WantedOffset) -> ErrorCode:
    """Return why an offset may not be committed; NONE if it may.

    Args:
        broker: Knows the topics.
        topic: Name of the topic; None: the request has an id that no topic has.
        wanted: The offset.
    """
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if broker.topics.partition(topic, wanted.partition_index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len((wanted.committed_metadata or "").encode()) > MAX_METADATA_BYTES:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def are_too_large(changes: Sequence[Change]) -> bool:
    """Whether the offsets of a request are too large to be stored together."""
    return sum(len(committed.metadata.encode()) for _, committed in changes if committed is not None) > MAX_COMMIT_BYTES
