"""The record of a classic group in `__consumer_offsets`: its generation, members and assignments.

    key    int16 2 | group STRING
    value  int16 3 | the message, not flexible (null: the group is gone)

It is written when an assignment is complete and when the last member has left. A coordinator that reads it continues
with the same generation, so that members need not join again. Of a member's protocols only the chosen one is kept.
Source: Kafka, GroupMetadataKey, GroupMetadataValue and GroupMetadataManager. Pure.
"""

from __future__ import annotations

import struct
from typing import Final, cast

from kafkaprod.broker.coordinator.group import Group, GroupState
from kafkaprod.broker.coordinator.member import GroupConfig, Member
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.field_types import BYTES, INT32, INT64, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.primitives import Reader, Writer
from kafkaprod.protocol.schema import Struct, field
from kafkaprod.storage.internal_records import KeyValue

_KEY_VERSION: Final = 2
_WRITTEN_VERSION: Final = 3
_FIRST_FLEXIBLE_VERSION: Final = 4
_INT16 = struct.Struct(">h")


class _MemberMetadata(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(NULLABLE_STRING, since=3, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, since=1, default=-1, ignorable=True)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


class _GroupMetadata(Struct):
    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(NULLABLE_STRING)
    leader: str | None = field(NULLABLE_STRING)
    current_state_timestamp: int = field(INT64, since=2, default=-1, ignorable=True)
    members: list[_MemberMetadata] = field(array(_MemberMetadata))


def group_record(group: Group, wall_ms: int) -> KeyValue:
    """Return the record of a group that is stable, or empty."""
    value = _GroupMetadata(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=wall_ms,
        members=[
            _MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.protocols[str(group.protocol_name)],
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
    writer = Writer()
    writer.write_int16(_WRITTEN_VERSION)
    _GroupMetadata.codec(_WRITTEN_VERSION, False).write(writer, value)
    return encode_key(group.group_id), writer.getvalue()


def group_tombstone(group_id: str) -> KeyValue:
    """Return the record that removes a group."""
    return encode_key(group_id), None


def encode_key(group_id: str) -> bytes:
    """Return the key of a group's record."""
    writer = Writer()
    writer.write_int16(_KEY_VERSION)
    writer.write_string(group_id)
    return writer.getvalue()


def decode_key(key: bytes) -> str | None:
    """Return the id of the group that a record is about; None if it is a record of another kind.

    Raises:
        CorruptDataError: The key ends early.
    """
    if len(key) < _INT16.size or _INT16.unpack_from(key) != (_KEY_VERSION,):
        return None
    reader = Reader(key)
    reader.skip(_INT16.size)
    return reader.read_string()


def read_group(group_id: str, raw: bytes, config: GroupConfig, now_ms: int) -> Group:
    """Return a group as its record has it, stable or empty; the sessions of its members begin now.

    Raises:
        CorruptDataError: The record ends early, or its version is unknown.
    """
    reader = Reader(raw)
    version = reader.read_int16()
    if not 0 <= version <= _FIRST_FLEXIBLE_VERSION:
        raise CorruptDataError(f"the record of group {group_id!r} has version {version}, known are 0 to 4")
    codec = _GroupMetadata.codec(version, version >= _FIRST_FLEXIBLE_VERSION)
    value = cast(_GroupMetadata, codec.read(reader))
    group = Group(group_id, config)
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    if not value.members:
        return group
    group.state, group.protocol_name = GroupState.STABLE, value.protocol
    for saved in value.members:
        group.roster.place(_member(saved, str(value.protocol), now_ms))
    if value.leader in group.members:
        group.roster.leader_id = value.leader
    return group


def _member(saved: _MemberMetadata, protocol: str, now_ms: int) -> Member:
    return Member(
        saved.member_id,
        saved.group_instance_id,
        saved.client_id,
        saved.client_host,
        saved.session_timeout,
        saved.session_timeout if saved.rebalance_timeout < 0 else saved.rebalance_timeout,
        {protocol: bytes(saved.subscription)},
        now_ms + saved.session_timeout,
        bytes(saved.assignment),
        has_joined=True,
    )
