"""The bytes of a journal's entries: batches as they are stored and as they are sent, control entries.

Each entry is a record batch of magic 2. Four fields of a batch have another meaning in a journal:

| field                | in the journal                                           | when it is sent                 |
|----------------------|----------------------------------------------------------|---------------------------------|
| baseOffset           | the entry's offset, without gaps                         | 0                               |
| partitionLeaderEpoch | the slot's mark: bytes inside a record cannot be an entry | -1                              |
| producerId           | reference of the partition in the journal's table        | the producer id                 |
| producerEpoch        | 0                                                        | the producer epoch              |
| baseSequence         | rank of the first record in its partition, mod 2^31      | rank - first rank of the epoch  |

A control entry has the control attribute, no producer id, and one record: key = int16 version | int16 type.
Pure: no I/O.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from kafkaprod._core.records.batch_reader import RecordBatchReader
from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.batch_header import CONTROL, BatchHeader, parse_header, seal_header
from kafkaprod.storage.internal_records import build_batch
from kafkaprod.structs import INT32_MAX

FORMAT_VERSION: Final = 1
RANK_MASK: Final = INT32_MAX  # a rank as a sequence: its low 31 bits

_KEY: Final = struct.Struct(">hh")
_TOPIC: Final = struct.Struct(">i16sii")
_INCARNATION: Final = struct.Struct(">iqhq")
_PROGRESS: Final = struct.Struct(">iqq")
_PARTITION: Final = struct.Struct(">qqqqhq")
_COUNT: Final = struct.Struct(">i")
_SLOT: Final = struct.Struct(">i16sQQqhh")


class EntryType(IntEnum):
    """What a control entry says."""

    SNAPSHOT = 100
    TOPIC = 101
    INCARNATION = 102
    PROGRESS = 103
    CLUSTER = 104


class Control(NamedTuple):
    """A control entry: its type, and the bytes of its value."""

    type: EntryType
    value: bytes


class Incarnation(NamedTuple):
    """Producer id and epoch of a partition's batches, and the rank that has sequence 0."""

    producer_id: int
    producer_epoch: int
    first_rank: int


NO_INCARNATION: Final = Incarnation(-1, -1, 0)
UNKNOWN_BOOT: Final = bytes(16)


class JournalPlace(NamedTuple):
    """Where a journal was written: the slot's device and inode, and the boot of the system, of which none is 0.

    In another place, or after another boot, the cache of the disk may have been lost: the brokers may have records that
    the journal does not have.
    """

    boot_id: bytes = UNKNOWN_BOOT
    device: int = 0
    inode: int = 0


class SlotFacts(NamedTuple):
    """What a snapshot says of its slot.

    Attributes:
        mark: The slot's mark; None: no snapshot was read.
        place: Where the process that wrote it was.
        producer_id: The last one that a batch was sent under; -1: none was.
        producer_epoch: Its epoch.
        cluster_id: The cluster that gave it; "": not known.
    """

    mark: int | None = None
    place: JournalPlace = JournalPlace()
    producer_id: int = -1
    producer_epoch: int = -1
    cluster_id: str = ""


NO_FACTS: Final = SlotFacts()


@dataclass(slots=True)
class SpooledPartition:
    """What a journal says of one partition.

    Attributes:
        partition_count: How many partitions the topic has.
        next_rank: The rank of the next record.
        resolved_rank: Records below it are in the topic, or will never be.
        last_offset: The offset of the last record that is known to be in the topic; -1: none is.
    """

    topic: str
    topic_id: bytes
    partition: int
    partition_count: int = 0
    next_rank: int = 0
    resolved_rank: int = 0
    last_offset: int = -1
    incarnation: Incarnation = NO_INCARNATION


def store_control(control: Control, offset: int, mark: int, wall_ms: int) -> bytearray:
    """Return a control entry. `wall_ms` is when a broker last answered, 0: it is not known."""
    batch = build_batch([(_KEY.pack(FORMAT_VERSION, control.type), control.value)], wall_ms)
    header = parse_header(batch)._replace(base_offset=offset, partition_leader_epoch=mark, attributes=CONTROL)
    seal_header(memoryview(batch), header)
    return batch


def parse_control(entry: memoryview, header: BatchHeader) -> tuple[int, Control | None]:
    """Return the format version of a control entry and, if this release can read it, its content.

    Raises:
        CorruptDataError: It is no control entry of a journal.
    """
    record = next(iter(RecordBatchReader(entry, 0, None, False)), None)
    if record is None or record.key is None or len(record.key) != _KEY.size or record.value is None:
        raise CorruptDataError(f"entry at offset {header.base_offset} is no control entry of a journal")
    version, number = _KEY.unpack(record.key)
    if version > FORMAT_VERSION:
        return version, None
    if number not in tuple(EntryType):
        raise CorruptDataError(f"control entry at offset {header.base_offset} has the unknown type {number}")
    return version, Control(EntryType(number), record.value)


def topic_entry(reference: int, partition: SpooledPartition) -> Control:
    """Enter a partition in the table."""
    head = _TOPIC.pack(reference, partition.topic_id, partition.partition, partition.partition_count)
    return Control(EntryType.TOPIC, head + partition.topic.encode())


def parse_topic(value: bytes) -> tuple[int, SpooledPartition]:
    """Return the reference and the partition of a TOPIC entry."""
    reference, topic_id, number, count = _TOPIC.unpack_from(value)
    return reference, SpooledPartition(value[_TOPIC.size :].decode(), topic_id, number, count)


def incarnation_entry(reference: int, incarnation: Incarnation) -> Control:
    """Give a partition's batches a producer id and an epoch."""
    return Control(EntryType.INCARNATION, _INCARNATION.pack(reference, *incarnation))


def parse_incarnation(value: bytes) -> tuple[int, Incarnation]:
    """Return the reference and the content of an INCARNATION entry."""
    reference, *fields = _INCARNATION.unpack(value)
    return reference, Incarnation(*fields)


def progress_entry(resolved: dict[int, tuple[int, int]]) -> Control:
    """Say how far partitions are resolved: reference -> (resolved rank, last offset)."""
    return Control(EntryType.PROGRESS, b"".join(_PROGRESS.pack(key, *value) for key, value in resolved.items()))


def parse_progress(value: bytes) -> dict[int, tuple[int, int]]:
    """Return what a PROGRESS entry says."""
    return {reference: (rank, offset) for reference, rank, offset in _PROGRESS.iter_unpack(value)}


def cluster_entry(cluster_id: str) -> Control:
    """Say which cluster gives the producer ids, and gets the records."""
    return Control(EntryType.CLUSTER, cluster_id.encode())


def snapshot_entry(slot: SlotFacts, table: dict[int, SpooledPartition]) -> Control:
    """Repeat what is known by all entries before it, and the slot's mark where a checksum covers it."""
    cluster_id = slot.cluster_id.encode()
    assert slot.mark is not None
    numbers = (*slot.place, slot.producer_id, slot.producer_epoch)
    parts = [_SLOT.pack(slot.mark, *numbers, len(cluster_id)), cluster_id]
    for reference, item in table.items():
        topic = topic_entry(reference, item).value
        facts = _PARTITION.pack(item.next_rank, item.resolved_rank, item.last_offset, *item.incarnation)
        parts += [_COUNT.pack(len(topic)), topic, facts]
    return Control(EntryType.SNAPSHOT, b"".join(parts))


def parse_snapshot(value: bytes) -> tuple[SlotFacts, dict[int, SpooledPartition]]:
    """Return the facts of the slot and the table in a SNAPSHOT entry."""
    mark, boot_id, device, inode, producer_id, producer_epoch, size = _SLOT.unpack_from(value)
    at = _SLOT.size + size
    cluster_id = value[_SLOT.size : at].decode()
    slot = SlotFacts(mark, JournalPlace(boot_id, device, inode), producer_id, producer_epoch, cluster_id)
    table = {}
    while at < len(value):
        (size,) = _COUNT.unpack_from(value, at)
        at += _COUNT.size
        reference, item = parse_topic(value[at : at + size])
        at += size
        next_rank, resolved_rank, last_offset, *numbers = _PARTITION.unpack_from(value, at)
        at += _PARTITION.size
        item.next_rank, item.resolved_rank, item.last_offset = next_rank, resolved_rank, last_offset
        item.incarnation = Incarnation(*numbers)
        table[reference] = item
    return slot, table
