"""What consumers of the classic protocol write about themselves, in JoinGroup and SyncGroup.

Source: Kafka, ConsumerProtocolSubscription and ConsumerProtocolAssignment. A newer version is read as the newest known:
versions only add fields at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkaprod.protocol.primitives import Reader, Writer
from kafkaprod.structs import BytesLike

CONSUMER_PROTOCOL_TYPE = "consumer"
_MAX_ELEMENTS = 50_000
_FIRST_VERSION_WITH_OWNED = 1
_FIRST_VERSION_WITH_RACK = 3

PartitionsByTopic = Mapping[str, Sequence[int]]


class Subscription(NamedTuple):
    """A consumer's metadata in JoinGroup.

    Attributes:
        owned: The partitions it holds.
    """

    version: int
    topics: list[str]
    owned: PartitionsByTopic
    rack_id: str | None


class ClassicAssignment(NamedTuple):
    """A consumer's partitions in SyncGroup."""

    partitions: PartitionsByTopic
    user_data: bytes


def read_topics(metadata: BytesLike) -> list[str]:
    """Return the names of the topics; all versions begin with the version and these.

    Raises:
        CorruptDataError: The metadata is damaged.
    """
    return _read_topics(_reader(metadata))[1]


def read_subscription(metadata: BytesLike) -> Subscription:
    """Return all that a consumer writes in JoinGroup.

    Raises:
        CorruptDataError: The metadata is damaged.
    """
    reader = _reader(metadata)
    version, topics = _read_topics(reader)
    reader.read_nullable_bytes()
    owned: PartitionsByTopic = _read_partitions(reader) if version >= _FIRST_VERSION_WITH_OWNED else {}
    rack_id = None
    if version >= _FIRST_VERSION_WITH_RACK:
        reader.read_int32()  # the generation of `owned`
        rack_id = reader.read_nullable_string()
    return Subscription(version, topics, owned, rack_id)


def read_assignment(assignment: BytesLike) -> ClassicAssignment:
    """Return a consumer's assignment; none if there are no bytes.

    Raises:
        CorruptDataError: It is damaged.
    """
    if not assignment:
        return ClassicAssignment({}, b"")
    reader = _reader(assignment)
    reader.read_int16()
    return ClassicAssignment(_read_partitions(reader), reader.read_nullable_bytes() or b"")


def write_assignment(version: int, partitions: PartitionsByTopic) -> bytes:
    """Return an assignment without user data; `version` is that of the consumer's subscription."""
    writer = Writer()
    writer.write_int16(min(version, _FIRST_VERSION_WITH_RACK))
    writer.write_int32(len(partitions))
    for topic, indexes in partitions.items():
        writer.write_string(topic)
        writer.write_int32(len(indexes))
        for index in indexes:
            writer.write_int32(index)
    writer.write_nullable_bytes(None)
    return writer.getvalue()


def _reader(content: BytesLike) -> Reader:
    return Reader(content, _MAX_ELEMENTS)


def _read_topics(reader: Reader) -> tuple[int, list[str]]:
    version = reader.read_int16()
    return version, [reader.read_string() for _ in range(reader.checked_count(reader.read_int32(), 2))]


def _read_partitions(reader: Reader) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for _ in range(reader.checked_count(reader.read_int32(), 6)):
        topic = reader.read_string()
        count = reader.checked_count(reader.read_int32(), 4)
        found.setdefault(topic, []).extend(reader.read_int32() for _ in range(count))
    return found
