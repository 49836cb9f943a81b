"""What a partition remembers of one producer, and the snapshot file that holds all of them.

    .snapshot:  int16 version 1 | uint32 crc (CRC-32C of what follows) | int32 count | entries | older batches
    entry, 46:  int64 producerId | int16 epoch | int32 lastSequence | int64 lastOffset | int32 offsetDelta
                | int64 timestamp | int32 coordinatorEpoch | int64 currentTxnFirstOffset (-1 none)
    older, 32:  int64 producerId | int32 lastSequence | int64 lastOffset | int32 offsetDelta | int64 timestamp
Kafka's format ends after the entries, so a Kafka broker remembers only the last batch of a producer after a restart and
refuses the retry of an earlier one. The older batches that follow here (oldest first; Kafka's reader ignores them) keep
the whole window. Source: Kafka storage, ProducerSnapshot.json, ProducerStateEntry. Pure: bytes in, bytes out.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.batch_header import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    decrement_sequence,
)
from kafkaprod.storage.crc import crc32c

CACHED_BATCHES = 5  # a producer has at most this many batches in flight
NO_TRANSACTION = -1

_VERSION = 1
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_OLDER = struct.Struct(">qiqiq")


class BatchMetadata(NamedTuple):
    """A batch that was appended: its last sequence and offset, the distance to its first ones, its max timestamp."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence of the first record."""
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta


def _empty_window() -> deque[BatchMetadata]:
    return deque(maxlen=CACHED_BATCHES)


@dataclass(slots=True)
class ProducerEntry:
    """One producer's state: epoch, its last batches (oldest first) and its open transaction."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    transaction_first_offset: int = NO_TRANSACTION
    batches: deque[BatchMetadata] = field(default_factory=_empty_window)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record of this epoch, NO_SEQUENCE if it has none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def has_transaction(self) -> bool:
        """A transaction is open."""
        return self.transaction_first_offset != NO_TRANSACTION

    def copy(self) -> ProducerEntry:
        """An independent copy."""
        return replace(self, batches=self.batches.copy())

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The remembered batch with the epoch and the exact sequence range of `header`, or None."""
        if header.producer_epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                return batch
        return None

    def advance_epoch(self, epoch: int) -> None:
        """Move to `epoch`; batches of another epoch are forgotten."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    def add_batch(self, header: BatchHeader, base_offset: int, last_offset: int) -> None:
        """Remember a data batch now in the log at `base_offset`."""
        self.advance_epoch(header.producer_epoch)
        metadata = BatchMetadata(header.last_sequence, last_offset, last_offset - base_offset, header.max_timestamp)
        self.batches.append(metadata)
        self.last_timestamp = header.max_timestamp


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The bytes of a .snapshot file."""
    recent: list[bytes] = []
    older: list[bytes] = []
    for entry in entries:
        batches = list(entry.batches)
        last = batches[-1] if batches else BatchMetadata(NO_SEQUENCE, -1, 0, entry.last_timestamp)
        recent.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
        )
        older.extend(_OLDER.pack(entry.producer_id, *batch) for batch in batches[:-1])
    body = b"".join((_COUNT.pack(len(recent)), *recent, *older))
    return _PREFIX.pack(_VERSION, crc32c(body)) + body


def parse_snapshot(content: bytes) -> list[ProducerEntry]:
    """Parse a .snapshot file, Kafka's or ours.

    Raises:
        CorruptDataError: Too short, another version, or the checksum or a size is wrong.
    """
    if len(content) < _PREFIX.size + _COUNT.size:
        raise CorruptDataError(f"producer snapshot of {len(content)} bytes is too short")
    version, crc = _PREFIX.unpack_from(content)
    if version != _VERSION:
        raise CorruptDataError(f"producer snapshot has version {version}, not {_VERSION}")
    if crc32c(memoryview(content)[_PREFIX.size :]) != crc:
        raise CorruptDataError("producer snapshot fails its checksum")
    (count,) = _COUNT.unpack_from(content, _PREFIX.size)
    entries_at = _PREFIX.size + _COUNT.size
    older_at = entries_at + count * _ENTRY.size
    if count < 0 or older_at > len(content) or (len(content) - older_at) % _OLDER.size:
        raise CorruptDataError(f"producer snapshot of {len(content)} bytes cannot hold {count} entries")
    older: dict[int, list[BatchMetadata]] = {}
    for producer_id, *fields in _OLDER.iter_unpack(memoryview(content)[older_at:]):
        older.setdefault(producer_id, []).append(BatchMetadata(*fields))
    return [_entry(fields, older) for fields in _ENTRY.iter_unpack(memoryview(content)[entries_at:older_at])]


def _entry(fields: tuple[int, ...], older: dict[int, list[BatchMetadata]]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, transaction = fields
    entry = ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, transaction)
    entry.batches.extend(older.get(producer_id, ()))
    if last_offset >= 0:
        entry.batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp))
    return entry
