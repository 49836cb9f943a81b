"""Committed offsets of all groups, and the records that carry them through a restart.

    key     int16 1 | group STRING | topic STRING | partition int32
    value   int16 3 | offset int64 | leaderEpoch int32 | metadata STRING | commitTimestamp int64     (null: deleted)
    STRING = int16 length | UTF-8
An offset that is committed in a transaction is pending until the transaction's marker. Then the later of the two
records wins: a commit outside the transaction may have come in between.
Source: Kafka OffsetCommitKey.json, OffsetCommitValue.json; KIP-98, KIP-447. Pure: no I/O, no clock. The control thread
owns it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.batch_header import NO_PRODUCER_ID
from kafkaprod.storage.internal_records import KeyValue
from kafkaprod.structs import TopicPartition

MAX_METADATA_BYTES = 4096  # offset.metadata.max.bytes

_OFFSET_KEY_VERSIONS = (0, 1)  # 2 and above: group metadata
_VALUE_VERSION = 3
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_VALUE_HEAD = struct.Struct(">hqi")
_INT64 = struct.Struct(">q")


class OffsetCommitValue(NamedTuple):
    """What a group committed for one partition; `timestamp_ms` is when, by the wall clock."""

    offset: int
    leader_epoch: int
    metadata: str
    timestamp_ms: int


class OffsetKey(NamedTuple):
    """Whose offset of which partition."""

    group_id: str
    topic_partition: TopicPartition


Offsets = Mapping[TopicPartition, OffsetCommitValue]


class PendingOffset(NamedTuple):
    """An offset of an open transaction, and the offset of its record in the log."""

    committed: OffsetCommitValue
    record_offset: int


class OffsetTable:
    """Committed offsets by group and partition, and those of open transactions."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, OffsetCommitValue]] = {}
        self._record_offsets: dict[OffsetKey, int] = {}  # of the committed ones
        self._pending: dict[int, dict[OffsetKey, PendingOffset]] = {}  # by producer id
        self._last_active_ms: dict[str, int] = {}  # wall time; for groups that had members when `expired` last looked

    def __len__(self) -> int:
        return sum(map(len, self._groups.values())) + sum(map(len, self._pending.values()))

    def has_group(self, group_id: str) -> bool:
        """The group has at least one offset, committed or pending."""
        return group_id in self._groups or self._is_pending_group(group_id)

    def group_ids(self) -> list[str]:
        """The groups with offsets, committed or pending."""
        pending = (key.group_id for offsets in self._pending.values() for key in offsets)
        return list(dict.fromkeys((*self._groups, *pending)))

    def of_group(self, group_id: str) -> Offsets:
        """All committed offsets of a group; empty if it has none."""
        return self._groups.get(group_id, {})

    def is_pending(self, key: OffsetKey) -> bool:
        """An open transaction will perhaps change this offset."""
        return any(key in offsets for offsets in self._pending.values())

    def put(self, key: OffsetKey, committed: OffsetCommitValue | None, record_offset: int = -1) -> None:
        """Set an offset; None removes it, and what is pending for it."""
        if committed is not None:
            self._groups.setdefault(key.group_id, {})[key.topic_partition] = committed
            self._record_offsets[key] = record_offset
            return
        for producer_id in list(self._pending):
            self._pending[producer_id].pop(key, None)
            if not self._pending[producer_id]:
                del self._pending[producer_id]
        self._record_offsets.pop(key, None)
        if key.group_id in self._groups:
            self._groups[key.group_id].pop(key.topic_partition, None)
            if not self._groups[key.group_id]:
                del self._groups[key.group_id]

    def put_pending(self, producer_id: int, key: OffsetKey, committed: OffsetCommitValue, record_offset: int) -> None:
        """Keep an offset until the producer's transaction ends."""
        self._pending.setdefault(producer_id, {})[key] = PendingOffset(committed, record_offset)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Commit or drop what waits for the producer's transaction."""
        for key, (committed, record_offset) in self._pending.pop(producer_id, {}).items():
            if is_commit and record_offset > self._record_offsets.get(key, -1):
                self.put(key, committed, record_offset)

    def keys(self, *, group_id: str | None = None, topic: str | None = None) -> list[OffsetKey]:
        """The keys of one group, of one topic, or all; with those that are only pending."""
        groups = self._groups if group_id is None else {group_id: self.of_group(group_id)}
        committed = (OffsetKey(group, place) for group, offsets in groups.items() for place in offsets)
        pending = (key for offsets in self._pending.values() for key in offsets)
        return [
            key
            for key in dict.fromkeys((*committed, *pending))
            if group_id in (None, key.group_id) and topic in (None, key.topic_partition.topic)
        ]

    def items(self) -> Iterator[tuple[OffsetKey, OffsetCommitValue]]:
        """Everything that is committed."""
        for group, offsets in self._groups.items():
            for topic_partition, committed in offsets.items():
                yield OffsetKey(group, topic_partition), committed

    def in_log_order(self) -> list[tuple[int, OffsetKey, OffsetCommitValue]]:
        """Everything in the order of the records: producer id of the open transaction or -1, key, offset."""
        found = [(self._record_offsets.get(key, -1), NO_PRODUCER_ID, key, committed) for key, committed in self.items()]
        for producer_id, offsets in self._pending.items():
            found.extend((offset, producer_id, key, committed) for key, (committed, offset) in offsets.items())
        found.sort(key=lambda entry: entry[0])
        return [(producer_id, key, committed) for _, producer_id, key, committed in found]

    def expired(self, active_ids: Collection[str], since_ms: int, now_ms: int, retention_ms: int) -> list[OffsetKey]:
        """The keys whose time is over: `retention_ms` after the commit and after the group was last seen with members.

        Args:
            active_ids: Groups that have members now.
            since_ms: When this broker started; it cannot know what was before.
            now_ms: Wall time.
            retention_ms: offsets.retention.minutes, in ms.
        """
        self._last_active_ms = {group: at for group, at in self._last_active_ms.items() if group in self._groups}
        self._last_active_ms.update(dict.fromkeys(active_ids, now_ms))
        pending_ids = {key.group_id for offsets in self._pending.values() for key in offsets}
        return [
            key
            for key, committed in self.items()
            if key.group_id not in pending_ids
            and max(committed.timestamp_ms, since_ms, self._last_active_ms.get(key.group_id, 0)) + retention_ms
            <= now_ms
        ]

    def _is_pending_group(self, group_id: str) -> bool:
        return any(key.group_id == group_id for offsets in self._pending.values() for key in offsets)


def encode_offsets(entries: Iterable[tuple[OffsetKey, OffsetCommitValue | None]]) -> list[KeyValue]:
    """The records that make these changes."""
    return [(_encode_key(key), None if committed is None else _encode_value(committed)) for key, committed in entries]


def decode_offset(key: bytes, value: bytes | None) -> tuple[OffsetKey, OffsetCommitValue | None] | None:
    """The change a record makes; None if it is of another kind.

    Raises:
        CorruptDataError: Key or value ends early.
    """
    try:
        (version,) = _INT16.unpack_from(key)
        if version not in _OFFSET_KEY_VERSIONS:
            return None
        group_id, position = _read_string(key, 2)
        topic, position = _read_string(key, position)
        (partition,) = _INT32.unpack_from(key, position)
        offset_key = OffsetKey(group_id, TopicPartition(topic, partition))
        return offset_key, None if value is None else _decode_value(value)
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptDataError(f"offset record with a key of {len(key)} bytes ends early or is no text") from error


def _encode_key(key: OffsetKey) -> bytes:
    topic, partition = key.topic_partition
    return b"".join((_INT16.pack(1), _string(key.group_id), _string(topic), _INT32.pack(partition)))


def _encode_value(committed: OffsetCommitValue) -> bytes:
    head = _VALUE_HEAD.pack(_VALUE_VERSION, committed.offset, committed.leader_epoch)
    return b"".join((head, _string(committed.metadata), _INT64.pack(committed.timestamp_ms)))


def _decode_value(value: bytes) -> OffsetCommitValue:
    version, offset, leader_epoch = _VALUE_HEAD.unpack_from(value)
    if version < _VALUE_VERSION:  # versions 0-2 have no leader epoch
        metadata, position = _read_string(value, _VALUE_HEAD.size - _INT32.size)
        leader_epoch = -1
    else:
        metadata, position = _read_string(value, _VALUE_HEAD.size)
    return OffsetCommitValue(offset, leader_epoch, metadata, _INT64.unpack_from(value, position)[0])


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _read_string(buffer: bytes, position: int) -> tuple[str, int]:
    (length,) = _INT16.unpack_from(buffer, position)
    end = position + 2 + length
    if length < 0 or end > len(buffer):
        raise struct.error(f"string of {length} bytes")
    return buffer[position + 2 : end].decode(), end
