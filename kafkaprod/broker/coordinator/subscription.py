"""Reads what a consumer sends as its metadata in JoinGroup. Source: Kafka, ConsumerProtocolSubscription."""

from __future__ import annotations

from kafkaprod.protocol.primitives import Buffer, Reader

CONSUMER_PROTOCOL_TYPE = "consumer"
_MAX_TOPICS = 50_000


def read_subscription(metadata: Buffer) -> list[str]:
    """Return the names of the topics; all versions begin with the version and these.

    Raises:
        CorruptDataError: The metadata is damaged.
    """
    reader = Reader(metadata, _MAX_TOPICS)
    reader.read_int16()
    return [reader.read_string() for _ in range(reader.checked_count(reader.read_int32(), 2))]
