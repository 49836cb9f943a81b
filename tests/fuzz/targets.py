"""What the fuzzer calls with each input: bytes of strangers are read or refused with CorruptDataError, nothing else."""

from __future__ import annotations

import struct

import crc32c

from kafkaprod._core.records.batch_reader import RecordBatchReader, read_batches
from kafkaprod.compression import decompress
from kafkaprod.errors import CorruptDataError

HEADER_BYTES = 61
LIMIT = 1 << 20


def read_batch(data: bytes) -> None:
    """Read a batch as it is, then with its length and CRC made right, so that the fuzzer gets behind them."""
    _read(data)
    if len(data) >= HEADER_BYTES:
        repaired = bytearray(data)
        repaired[8:12] = struct.pack(">i", len(data) - 12)
        repaired[16] = 2
        repaired[17:21] = struct.pack(">I", crc32c.crc32c(bytes(repaired[21:])))
        _read(bytes(repaired))


def _read(data: bytes) -> None:
    try:
        for reader in read_batches(data, decompress, True, LIMIT):
            scanned = reader.scan()
            records = reader.records()
            assert len(records) == reader.record_count
            if records and not reader.has_log_append_time:
                assert (
                    any(record.timestamp == scanned.max_timestamp for record in records) or scanned.max_timestamp == -1
                )
        RecordBatchReader(data, check_crc=False, decompress=decompress, limit=LIMIT).records()
    except CorruptDataError:
        return
