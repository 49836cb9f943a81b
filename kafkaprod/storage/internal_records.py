"""Record batches the broker writes for itself: uncompressed, without sequence, keys always set.

Source: Kafka protocol guide, "Record Batch" and "Record". Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafkaprod.storage.batch_header import (
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    OVERHEAD_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    seal_header,
)

KeyValue = tuple[bytes, bytes | None]
"""A record's key and value; None deletes the key."""


class TransactionOwner(NamedTuple):
    """The producer whose transaction a batch belongs to."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


NOT_TRANSACTIONAL = TransactionOwner()


def build_batch(
    records: Sequence[tuple[bytes | None, bytes | None]],
    timestamp_ms: int,
    writer: TransactionOwner = NOT_TRANSACTIONAL,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytearray:
    """Return a batch of at least one record, base offset 0, ready for `append_internal`; each has the headers."""
    batch = bytearray(HEADER_BYTES)
    fields = b"".join(_field(name.encode(errors="surrogatepass")) + _field(value) for name, value in headers)
    further = _varint(len(headers)) + fields
    for offset_delta, (key, value) in enumerate(records):
        body = b"".join((b"\x00\x00", _varint(offset_delta), _field(key), _field(value), further))
        batch += _varint(len(body)) + body
    header = BatchHeader(
        base_offset=0,
        batch_length=len(batch) - OVERHEAD_BYTES,
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=0 if writer == NOT_TRANSACTIONAL else TRANSACTIONAL,
        last_offset_delta=len(records) - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=writer.producer_id,
        producer_epoch=writer.epoch,
        base_sequence=NO_SEQUENCE,
        record_count=len(records),
    )
    seal_header(memoryview(batch), header)
    return batch


def _field(content: bytes | None) -> bytes:
    return b"\x01" if content is None else _varint(len(content)) + content  # 1 is the varint of -1


def _varint(number: int) -> bytes:
    """Zigzag varint of a number that is not negative."""
    raw = number << 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)
