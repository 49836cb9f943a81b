"""The records of consumer groups in `__consumer_offsets`, in the formats of Kafka 4.1.

    key    int16 kind | group STRING [| member STRING]
    value  int16 0 | the message, flexible
    kinds  3 the group's epoch      5 a member           8 what it has now
           6 the target's epoch     7 a member's target    16 the topics of a regular expression

The key of kind 16 has the expression where others have the member. Kind 4 (metadata of topics, before 4.1) is not used.
Pure.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

from kafkaprod.broker.coordinator.consumer_member import (
    Assignment,
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    TopicIdPartition,
)
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.field_types import (
    BYTES,
    INT8,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UUID,
    array,
    struct_of,
)
from kafkaprod.protocol.primitives import Reader, Writer
from kafkaprod.protocol.schema import Struct, field
from kafkaprod.storage.internal_records import KeyValue

_INT16 = struct.Struct(">h")
_VERSION: Final = 0
_PRESENT: Final = 1
_ValueT = TypeVar("_ValueT", bound=Struct)


class RecordType(IntEnum):
    """What a record is about."""

    GROUP = 3
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


_NAMED: Final = frozenset({RecordType.MEMBER, RecordType.TARGET, RecordType.CURRENT, RecordType.REGEX})
_KINDS: Final = frozenset(RecordType)


class RecordKey(NamedTuple):
    """A record's key; `name` is the member's id or the regular expression, empty in records of the group."""

    kind: RecordType
    group_id: str
    name: str = ""

    def encode(self) -> bytes:
        """Return the key as bytes."""
        writer = Writer()
        writer.write_int16(self.kind)
        writer.write_string(self.group_id)
        if self.kind in _NAMED:
            writer.write_string(self.name)
        return writer.getvalue()


class _TopicPartitions(Struct):
    topic_id: uuid.UUID | None = field(UUID)
    partitions: list[int] = field(array(INT32))


class _GroupValue(Struct):
    epoch: int = field(INT32)
    metadata_hash: int = field(INT64, tag=0)


class _ClassicProtocol(Struct):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


class _ClassicMetadata(Struct):
    presence: int = field(INT8)  # 1: a nullable struct in a tagged field begins so (KIP-893)
    session_timeout_ms: int = field(INT32)
    supported_protocols: list[_ClassicProtocol] = field(array(_ClassicProtocol))


class _MemberValue(Struct):
    instance_id: str | None = field(NULLABLE_STRING)
    rack_id: str | None = field(NULLABLE_STRING)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(NULLABLE_STRING)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    server_assignor: str | None = field(NULLABLE_STRING)
    classic_member_metadata: _ClassicMetadata = field(struct_of(_ClassicMetadata), tag=0)


class _TargetEpochValue(Struct):
    assignment_epoch: int = field(INT32)


class _TargetValue(Struct):
    topic_partitions: list[_TopicPartitions] = field(array(_TopicPartitions))


class _CurrentValue(Struct):
    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    assigned_partitions: list[_TopicPartitions] = field(array(_TopicPartitions))
    partitions_pending_revocation: list[_TopicPartitions] = field(array(_TopicPartitions))


class _RegexValue(Struct):
    topics: list[str] = field(array(STRING))
    version: int = field(INT64)
    timestamp: int = field(INT64)


class GroupImage(NamedTuple):
    """A group as its records have it."""

    epoch: int
    metadata_hash: int
    target_epoch: int
    members: dict[str, ConsumerMember]
    targets: dict[str, Assignment]
    regexes: dict[str, frozenset[str]]


def group_record(group_id: str, epoch: int, metadata_hash: int) -> KeyValue:
    """The epoch of a group, and a hash of the topics it is subscribed to."""
    return RecordKey(RecordType.GROUP, group_id).encode(), _encode(
        _GroupValue(epoch=epoch, metadata_hash=metadata_hash)
    )


def member_record(group_id: str, member: ConsumerMember) -> KeyValue:
    """What a member wants."""
    value = _MemberValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
    )
    if member.classic is not None:
        value.classic_member_metadata = _ClassicMetadata(
            presence=_PRESENT,
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                _ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols
            ],
        )
    return RecordKey(RecordType.MEMBER, group_id, member.member_id).encode(), _encode(value)


def target_epoch_record(group_id: str, epoch: int) -> KeyValue:
    """The epoch that the targets belong to."""
    return RecordKey(RecordType.TARGET_EPOCH, group_id).encode(), _encode(_TargetEpochValue(assignment_epoch=epoch))


def target_record(group_id: str, member_id: str, target: Assignment) -> KeyValue:
    """What a member shall get."""
    value = _TargetValue(topic_partitions=_grouped(target))
    return RecordKey(RecordType.TARGET, group_id, member_id).encode(), _encode(value)


def current_record(group_id: str, member: ConsumerMember) -> KeyValue:
    """What a member has."""
    value = _CurrentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_grouped(member.assigned),
        partitions_pending_revocation=_grouped(member.revoking),
    )
    return RecordKey(RecordType.CURRENT, group_id, member.member_id).encode(), _encode(value)


def regex_record(group_id: str, regex: str, topics: frozenset[str]) -> KeyValue:
    """The topics that a regular expression matches."""
    return RecordKey(RecordType.REGEX, group_id, regex).encode(), _encode(_RegexValue(topics=sorted(topics)))


def regex_tombstone(group_id: str, regex: str) -> KeyValue:
    """Remove a regular expression that no member has."""
    return RecordKey(RecordType.REGEX, group_id, regex).encode(), None


def member_tombstones(group_id: str, member_id: str) -> list[KeyValue]:
    """Remove a member; Kafka wants this order."""
    kinds = (RecordType.CURRENT, RecordType.TARGET, RecordType.MEMBER)
    return [(RecordKey(kind, group_id, member_id).encode(), None) for kind in kinds]


def group_tombstones(group_id: str) -> list[KeyValue]:
    """Remove a group without members."""
    return [(RecordKey(kind, group_id).encode(), None) for kind in (RecordType.TARGET_EPOCH, RecordType.GROUP)]


def decode_key(key: bytes) -> RecordKey | None:
    """Return what a record is about; None if it is no record of a consumer group.

    Raises:
        CorruptDataError: The key ends early.
    """
    (kind,) = _INT16.unpack_from(key) if len(key) >= _INT16.size else (-1,)
    if kind not in _KINDS:
        return None
    reader = Reader(key)
    reader.skip(_INT16.size)
    group_id = reader.read_string()
    return RecordKey(RecordType(kind), group_id, reader.read_string() if kind in _NAMED else "")


def read_group(records: Mapping[bytes, bytes]) -> GroupImage:
    """Return a group from its records.

    Raises:
        CorruptDataError: A record ends early, or its version is unknown.
    """
    group, target_epoch = _GroupValue(), 0
    wishes: dict[str, ConsumerMember] = {}
    currents: dict[str, _CurrentValue] = {}
    targets: dict[str, Assignment] = {}
    regexes: dict[str, frozenset[str]] = {}
    for raw_key, value in records.items():
        key = decode_key(raw_key)
        if key is None:
            continue
        if key.kind is RecordType.GROUP:
            group = _decode(_GroupValue, value)
        elif key.kind is RecordType.TARGET_EPOCH:
            target_epoch = _decode(_TargetEpochValue, value).assignment_epoch
        elif key.kind is RecordType.TARGET:
            targets[key.name] = _flat(_decode(_TargetValue, value).topic_partitions)
        elif key.kind is RecordType.CURRENT:
            currents[key.name] = _decode(_CurrentValue, value)
        elif key.kind is RecordType.REGEX:
            regexes[key.name] = frozenset(_decode(_RegexValue, value).topics)
        else:
            wishes[key.name] = _member(key.name, _decode(_MemberValue, value))
    members = {member_id: _with_current(member, currents.get(member_id)) for member_id, member in wishes.items()}
    return GroupImage(group.epoch, group.metadata_hash, target_epoch, members, targets, regexes)


def _member(member_id: str, value: _MemberValue) -> ConsumerMember:
    return ConsumerMember(
        member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=_classic(value.classic_member_metadata),
    )


def _classic(value: _ClassicMetadata) -> ClassicMetadata | None:
    if value.presence != _PRESENT:
        return None
    protocols = tuple((protocol.name, protocol.metadata) for protocol in value.supported_protocols)
    return ClassicMetadata(value.session_timeout_ms, protocols)


def _with_current(member: ConsumerMember, value: _CurrentValue | None) -> ConsumerMember:
    if value is None:
        return member
    if value.state not in set(MemberState):
        raise CorruptDataError(f"record of member {member.member_id!r} has the unknown state {value.state}")
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=_flat(value.assigned_partitions),
        revoking=_flat(value.partitions_pending_revocation),
    )


def _grouped(assignment: Assignment) -> list[_TopicPartitions]:
    by_topic: dict[uuid.UUID, list[int]] = {}
    for topic_id, partition in sorted(assignment):
        by_topic.setdefault(topic_id, []).append(partition)
    return [_TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic.items()]


def _flat(topics: Iterable[_TopicPartitions]) -> Assignment:
    return frozenset(
        TopicIdPartition(topic.topic_id, index)
        for topic in topics
        if topic.topic_id is not None
        for index in topic.partitions
    )


def _encode(value: Struct) -> bytes:
    writer = Writer()
    writer.write_int16(_VERSION)
    type(value).codec(_VERSION, True).write(writer, value)
    return writer.getvalue()


def _decode(value_class: type[_ValueT], raw: bytes) -> _ValueT:
    reader = Reader(raw)
    version = reader.read_int16()
    if version != _VERSION:
        raise CorruptDataError(f"{value_class.__name__} has version {version}, not {_VERSION}")
    value: Any = value_class.codec(_VERSION, True).read(reader)
    return value  # type: ignore[no-any-return]
