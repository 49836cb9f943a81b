"""Transaction markers: control batches with one record, written by the transaction coordinator.

    key = int16 version 0 | int16 type (0 ABORT, 1 COMMIT)      value = int16 version 0 | int32 coordinatorEpoch
Source: KIP-98; EndTxnMarker. Pure: no I/O.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafkaprod.broker.storage.format.records import iterate_records
from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.batch_header import (
    CONTROL,
    HEADER_BYTES,
    MAGIC,
    NO_SEQUENCE,
    OVERHEAD_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    seal_header,
)

_ABORT = 0
_COMMIT = 1
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_RECORD_BODY_BYTES = (
    1 + 1 + 1 + 1 + 4 + 1 + 6 + 1
)  # attributes, two deltas, key length, key, value length, value, headers


class EndTransactionMarker(NamedTuple):
    """The content of a marker."""

    is_commit: bool
    coordinator_epoch: int


def build_marker(producer_id: int, producer_epoch: int, marker: EndTransactionMarker, timestamp: int) -> bytearray:
    """Return a marker batch with base offset 0, ready for the log. `timestamp` in ms."""
    control_type = _COMMIT if marker.is_commit else _ABORT
    key = _KEY.pack(0, control_type)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    # varints of small numbers n are the byte 2n: lengths 16, 4 and 6, deltas and header count 0
    record = b"".join((bytes((2 * _RECORD_BODY_BYTES, 0, 0, 0, 2 * 4)), key, bytes((2 * 6,)), value, b"\x00"))
    batch = bytearray(HEADER_BYTES) + record
    header = BatchHeader(
        base_offset=0,
        batch_length=len(batch) - OVERHEAD_BYTES,
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL | CONTROL,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    seal_header(memoryview(batch), header)
    return batch


def parse_marker(batch: memoryview, header: BatchHeader) -> EndTransactionMarker | None:
    """Return the marker in a control batch, or None if it ends no transaction (empty, or another type).

    Raises:
        CorruptDataError: Key or value is too short.
    """
    record = next(iterate_records(batch), None)
    if record is None:
        return None
    if record.key is None or len(record.key) < _KEY.size:
        raise CorruptDataError(f"control record key at offset {header.base_offset} is shorter than {_KEY.size} bytes")
    control_type = _KEY.unpack_from(record.key)[1]
    if control_type not in (_ABORT, _COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptDataError(f"marker value at offset {header.base_offset} is shorter than {_VALUE.size} bytes")
    return EndTransactionMarker(control_type == _COMMIT, _VALUE.unpack_from(record.value)[1])
