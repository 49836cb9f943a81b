"""The records inside a batch that is in the log, or about to enter it: the compiled reader with the broker's limits."""

from __future__ import annotations

from collections.abc import Iterator

from kafkaprod._core.records.batch_reader import Record, RecordBatchReader
from kafkaprod.compression import decompress

MAX_PLAIN_BYTES = 100 * 1024 * 1024
"""Most bytes of a records section; a batch that expands beyond is treated as a decompression bomb."""


def open_batch(batch: memoryview | bytearray | bytes, max_plain_bytes: int = MAX_PLAIN_BYTES) -> RecordBatchReader:
    """Return a reader of the batch, whose checksum the caller has checked.

    Args:
        batch: One batch.
        max_plain_bytes: Most bytes of records to decompress.

    Raises:
        CorruptDataError: The header is damaged.
    """
    return RecordBatchReader(batch, 0, decompress, False, max_plain_bytes)


def iterate_records(batch: memoryview | bytearray | bytes) -> Iterator[Record]:
    """Yield the records of a batch, with their offsets in the log and timestamps in ms.

    Raises:
        CorruptDataError: The batch does not hold exactly `record_count` well-formed records.
    """
    return iter(open_batch(batch))
