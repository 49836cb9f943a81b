"""Offsets and group metadata for a transaction, as this and other clients spell them. Pure.

| group_metadata                                     | read as                                                     |
|----------------------------------------------------|-------------------------------------------------------------|
| str                                                | the group alone: a zombie consumer is not kept out (KIP-447) |
| kafka-python, an object or mapping with the fields | group_id, generation_id, member_id, group_instance_id       |
| confluent-kafka's bytes                            | CGMDv2: generation (native order), group, member, instance   |
| aiokafka's consumer                                | the fields of its coordinator                                |
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kafkaprod.errors import ArgumentTypeError, InvalidRecordError
from kafkaprod.structs import TopicPartition
from kafkaprod.text import why_unsendable

MAX_OFFSET: Final = (1 << 63) - 1
INT32_MAX: Final = (1 << 31) - 1
CONFLUENT_MAGIC: Final = b"CGMDv2:"
_GENERATION: Final = struct.Struct("=i")


class GroupMetadata(NamedTuple):
    """The consumer that read the input of a transaction, as its group knows it.

    `generation_id` -1 with an empty member id: not a member; offsets are then committed whoever owns the partitions.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetAndMetadata(NamedTuple):
    """The next offset to read, with a text of at most 4,096 bytes, and the leader epoch of the last record read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


def read_group_metadata(source: Any) -> GroupMetadata:
    """Read the group metadata of any client; see the module's table.

    Raises:
        InvalidRecordError: It is of an unknown kind, has no group, or has a generation without a member.
    """
    if isinstance(source, str):
        group = GroupMetadata(source)
    elif isinstance(source, bytes | bytearray | memoryview):
        group = _read_confluent(bytes(source))
    elif isinstance(source, Mapping):
        group = _from_fields({name: source.get(name, default) for name, default in _FIELDS.items()}, source)
    elif hasattr(source, "group_id") and hasattr(source, "member_id"):
        group = _from_fields({name: getattr(source, name, default) for name, default in _FIELDS.items()}, source)
    elif hasattr(source, "_coordinator") and hasattr(source, "getone"):
        group = _read_aiokafka(source)
    else:
        raise ArgumentTypeError(
            f"group_metadata of type {type(source).__name__} is not understood: give the group id, or what "
            "kafka-python's group_metadata(), confluent-kafka's consumer_group_metadata() or aiokafka's consumer gives"
        )
    if not group.group_id:
        raise InvalidRecordError("group_metadata has no group id: transactions commit offsets of a consumer group")
    if group.generation_id > 0 and not group.member_id:
        raise InvalidRecordError(
            f"group_metadata of group {group.group_id!r} has generation_id={group.generation_id} but no member_id"
        )
    _check_sendable(group)
    return group


def _check_sendable(group: GroupMetadata) -> None:
    """Raise InvalidRecordError for group metadata that no request can hold."""
    if not -1 <= group.generation_id <= INT32_MAX:
        raise InvalidRecordError(f"group_metadata: generation_id={group.generation_id} is not in [-1, {INT32_MAX}]")
    for name in ("group_id", "member_id", "group_instance_id"):
        problem = why_unsendable(getattr(group, name) or "")
        if problem is not None:
            raise InvalidRecordError(f"group_metadata: {name} {problem}")


_FIELDS: Final[dict[str, Any]] = {"group_id": "", "generation_id": -1, "member_id": "", "group_instance_id": None}


def _from_fields(fields: dict[str, Any], source: Any) -> GroupMetadata:
    group_id, generation, member, instance = fields.values()
    is_right = isinstance(group_id, str) and isinstance(member, str) and isinstance(instance, str | None)
    if not is_right or isinstance(generation, bool) or not isinstance(generation, int):
        raise InvalidRecordError(
            f"group_metadata {source!r}: group_id and member_id must be str, generation_id int, group_instance_id str "
            "or None"
        )
    return GroupMetadata(group_id, generation, member, instance)


def _read_aiokafka(consumer: Any) -> GroupMetadata:
    coordinator = consumer._coordinator
    if not hasattr(coordinator, "generation"):
        raise InvalidRecordError("the aiokafka consumer has no group: make it with group_id=..., and start() it")
    return GroupMetadata(
        coordinator.group_id,
        coordinator.generation,
        coordinator.member_id,
        getattr(coordinator, "_group_instance_id", None),
    )


def _read_confluent(data: bytes) -> GroupMetadata:
    """magic, generation i32 in native order, group, NUL, member, NUL, 1: no instance | 0: instance, NUL."""
    try:
        if not data.startswith(CONFLUENT_MAGIC):
            raise ValueError(f"it does not begin with {CONFLUENT_MAGIC!r}")
        rest = data[len(CONFLUENT_MAGIC) :]
        (generation,) = _GENERATION.unpack_from(rest)
        group, member, rest = rest[_GENERATION.size :].split(b"\0", 2)
        instance = None
        if rest[:1] == b"\0":
            text, end, rest = rest[1:].partition(b"\0")
            if not end:
                raise ValueError("the instance id has no end")
            instance = text.decode()
        elif rest[:1] == b"\1":
            rest = rest[1:]
        else:
            raise ValueError("it ends before the instance id")
        if rest:
            raise ValueError(f"{len(rest)} bytes too many")
        return GroupMetadata(group.decode(), generation, member.decode(), instance)
    except (ValueError, struct.error) as error:
        raise InvalidRecordError(
            f"group_metadata of {len(data)} bytes is not what confluent-kafka's consumer gives: {error}"
        ) from error


def read_offsets(source: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Read offsets: a mapping of partitions to offsets, or confluent-kafka's TopicPartition objects.

    Logical offsets of confluent-kafka (negative ones) are left out, as its own producer does.

    Raises:
        InvalidRecordError: Naming what is wrong.
    """
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    if isinstance(source, Mapping):
        for key, value in source.items():
            offsets[_partition(key)] = _offset(key, value)
        return offsets
    if isinstance(source, str | bytes) or not isinstance(source, Iterable):
        raise ArgumentTypeError(
            "offsets must be a mapping of partitions to offsets, or a list of TopicPartition, "
            f"not {type(source).__name__}"
        )
    for entry in source:
        if not hasattr(entry, "offset"):
            raise InvalidRecordError(f"offsets: {entry!r} has no offset")
        if entry.offset >= 0:
            offsets[_partition(entry)] = _offset(entry, entry)
    return offsets


def _partition(key: Any) -> TopicPartition:
    if hasattr(key, "topic") and hasattr(key, "partition"):
        topic, partition = key.topic, key.partition
    elif isinstance(key, tuple) and len(key) == 2:
        topic, partition = key
    else:
        raise InvalidRecordError(f"offsets: {key!r} is not a partition: give (topic, partition) or a TopicPartition")
    if not isinstance(topic, str) or not topic or isinstance(partition, bool) or not isinstance(partition, int):
        raise InvalidRecordError(f"offsets: {key!r} is not a partition: the topic must be str, the number int")
    if not 0 <= partition <= INT32_MAX:
        raise InvalidRecordError(f"offsets: partition {partition} of topic {topic!r} is not in [0, {INT32_MAX}]")
    problem = why_unsendable(topic)
    if problem is not None:
        raise InvalidRecordError(f"offsets: a topic name {problem}")
    return TopicPartition(topic, partition)


def _offset(key: Any, value: Any) -> OffsetAndMetadata:
    metadata: Any = ""
    leader_epoch: Any = -1
    if hasattr(value, "offset"):
        offset = value.offset
        metadata = getattr(value, "metadata", None)
        leader_epoch = getattr(value, "leader_epoch", None)
    elif isinstance(value, tuple) and 1 <= len(value) <= 3:
        offset, metadata, leader_epoch = (*value, *("", -1)[len(value) - 1 :]) if len(value) < 3 else value
    else:
        offset = value
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= MAX_OFFSET:
        raise InvalidRecordError(f"offsets: offset {offset!r} of {key!r} must be an int from 0 to 2**63 - 1")
    metadata = "" if metadata is None else metadata
    leader_epoch = -1 if leader_epoch is None else leader_epoch
    if not isinstance(metadata, str) or isinstance(leader_epoch, bool) or not isinstance(leader_epoch, int):
        raise InvalidRecordError(f"offsets: of {key!r} metadata must be str and leader_epoch int")
    if not -1 <= leader_epoch <= INT32_MAX:
        raise InvalidRecordError(f"offsets: leader_epoch {leader_epoch} of {key!r} is not in [-1, {INT32_MAX}]")
    problem = why_unsendable(metadata)
    if problem is not None:
        raise InvalidRecordError(f"offsets: the metadata of {key!r} {problem}")
    return OffsetAndMetadata(offset, metadata, leader_epoch)
