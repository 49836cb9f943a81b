"""The fixed 61-byte header of a record batch: parse, check, and the few fields a broker may rewrite in place.

    off len field                    under CRC     off len field                under CRC
      0   8 baseOffset                  no          27   8 baseTimestamp          yes
      8   4 batchLength (size - 12)     no          35   8 maxTimestamp           yes
     12   4 partitionLeaderEpoch        no          43   8 producerId             yes
     16   1 magic (2)                   no          51   2 producerEpoch          yes
     17   4 crc (CRC-32C of 21..end)    no          53   4 baseSequence           yes
     21   2 attributes                  yes         57   4 recordCount            yes
     23   4 lastOffsetDelta             yes         61   - records                yes
Source: Kafka protocol guide, "Record Batch", magic 2; KIP-98. Pure: no I/O.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafkaprod.storage.crc import crc32c
from kafkaprod.structs import INT32_MAX, BytesLike

HEADER_BYTES = 61
OVERHEAD_BYTES = 12  # baseOffset + batchLength, not counted by batchLength
MAGIC = 2
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
INT16_MAX = 2**15 - 1

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
HAS_DELETE_HORIZON = 0x40

LOW_ATTRIBUTES = 22
"""Position of the byte of a batch that holds these bits."""
_CRC_POSITION = 17
_ATTRIBUTES_POSITION = 21
_HEADER = struct.Struct(">qiibIhiqqqhii")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")


class BatchHeader(NamedTuple):
    """The header fields under Kafka's names; timestamps in ms, offsets in the log."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """Offset of the last record as produced (compaction may have removed the record)."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapped at INT32_MAX; NO_SEQUENCE if the batch has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> int:
        """Compression id, 0 to 7."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        """The batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """The batch holds a marker, not application records."""
        return bool(self.attributes & CONTROL)

    @property
    def has_log_append_time(self) -> bool:
        """All records carry max_timestamp, set by the broker."""
        return bool(self.attributes & LOG_APPEND_TIME)


def increment_sequence(sequence: int, count: int) -> int:
    """`sequence + count` in the 31-bit space of sequences, which wraps INT32_MAX -> 0."""
    total = sequence + count
    return total if total <= INT32_MAX else total - INT32_MAX - 1


def decrement_sequence(sequence: int, count: int) -> int:
    """`sequence - count` in the 31-bit space of sequences."""
    return sequence - count if sequence >= count else sequence - count + INT32_MAX + 1


def parse_header(buffer: BytesLike, position: int = 0) -> BatchHeader:
    """Read the header at `position`; the caller makes sure that 61 bytes are there. Nothing is checked."""
    return BatchHeader._make(_HEADER.unpack_from(buffer, position))


def compute_crc(buffer: BytesLike, position: int, size_bytes: int) -> int:
    """CRC-32C over attributes to the end of the batch of `size_bytes` that starts at `position`.

    By the package crc32c and not the producer's own code: a fault of one cannot hide in the other.
    """
    return crc32c(memoryview(buffer)[position + _ATTRIBUTES_POSITION : position + size_bytes])


def assign_offset(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write the log's offset and the leader epoch into a batch, in place; neither is under the CRC."""
    _INT64.pack_into(batch, 0, base_offset)
    _INT32.pack_into(batch, 12, leader_epoch)


def assign_max_timestamp(batch: memoryview, attributes: int, max_timestamp: int) -> None:
    """Write attributes and maxTimestamp (ms) into a batch, in place, and recompute its CRC."""
    _INT16.pack_into(batch, _ATTRIBUTES_POSITION, attributes)
    _INT64.pack_into(batch, 35, max_timestamp)
    _UINT32.pack_into(batch, _CRC_POSITION, compute_crc(batch, 0, len(batch)))


def seal_header(batch: memoryview, header: BatchHeader) -> None:
    """Write a whole header and the right CRC into `batch`, whose records are in place from byte 61 on."""
    _HEADER.pack_into(batch, 0, *header)
    _UINT32.pack_into(batch, _CRC_POSITION, compute_crc(batch, 0, len(batch)))
