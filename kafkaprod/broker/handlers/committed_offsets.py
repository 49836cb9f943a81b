"""What OffsetCommit and TxnOffsetCommit share: the check of one partition's offset."""

from __future__ import annotations

from typing import Protocol

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.offsets import MAX_METADATA_BYTES
from kafkaprod.protocol.error_codes import ErrorCode


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
