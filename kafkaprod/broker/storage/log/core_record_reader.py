"""The broker's `RecordReader`: the compiled reader walks a batch's records without making an object per record."""

from __future__ import annotations

from kafkaprod._core.records.batch_reader import RecordBatchReader
from kafkaprod.broker.storage.log.batch_header import BatchHeader
from kafkaprod.broker.storage.log.records import PythonRecordReader, RecordRules, RecordsReport
from kafkaprod.compression import decompress

_INT64_MAX = 2**63 - 1


class CoreRecordReader:
    """`RecordReader` over the core. Thread-safe: no state."""

    def __init__(self) -> None:
        self._listing = PythonRecordReader()

    def inspect(self, batch: memoryview, header: BatchHeader, rules: RecordRules) -> RecordsReport:
        """See `RecordReader.inspect`. A batch with failing records is read a second time to list all of them."""
        earliest, latest = max(rules.earliest, -_INT64_MAX), min(rules.latest, _INT64_MAX)
        scan = RecordBatchReader(batch, 0, decompress, False).scan(earliest, latest)
        is_keyless = rules.needs_key and scan.first_null_key >= 0
        if is_keyless or scan.first_early >= 0 or scan.first_late >= 0:
            return self._listing.inspect(batch, header, rules)
        return RecordsReport(scan.max_timestamp, scan.has_consecutive_offsets, (), ())

    def find_timestamp(
        self, batch: memoryview, header: BatchHeader, timestamp: int, min_offset: int
    ) -> tuple[int, int] | None:
        """See `RecordReader.find_timestamp`."""
        for record in RecordBatchReader(batch, 0, decompress, False).records():
            if record.timestamp >= timestamp and record.offset >= min_offset:
                return record.offset, record.timestamp
        return None
