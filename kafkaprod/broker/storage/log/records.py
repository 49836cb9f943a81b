"""What the log needs to know of the records inside a batch, and a reader of them in plain Python.

The log takes any `RecordReader`. The one the broker uses runs in the core and makes no Python object per record;
`PythonRecordReader` is its slow twin: the reference in tests and the fallback where the core is not built.
A record: length varint | attributes int8 | timestampDelta varlong | offsetDelta varint | key | value | headers.
Source: Kafka protocol guide, "Record". Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from kafkaprod.broker.storage.log.batch_header import HEADER_BYTES, BatchHeader
from kafkaprod.compression import decompress
from kafkaprod.errors import CorruptDataError

_MAX_PLAIN_BYTES = 512 * 1024 * 1024  # a records section that expands beyond this is treated as an attack


class RecordsReport(NamedTuple):
    """Facts about all records of a batch, gathered in one pass."""

    max_timestamp: int
    """Largest record timestamp in ms; -1 if the batch has no record or none has a timestamp."""
    has_consecutive_offsets: bool
    """The offset deltas are 0, 1, 2, ..."""
    keyless: tuple[int, ...]
    """Indexes of the records without a key; empty where keys do not matter."""
    out_of_range: tuple[int, ...]
    """Indexes of the records whose timestamp is outside the range asked for; -1 is always inside."""


class RecordRules(NamedTuple):
    """What a topic asks of each record: timestamps in ms, both bounds inclusive, and whether a key must be there."""

    earliest: int
    latest: int
    needs_key: bool


class RecordReader(Protocol):
    """Reads the records section of a batch whose header and CRC have been checked."""

    def inspect(self, batch: memoryview, header: BatchHeader, rules: RecordRules) -> RecordsReport:
        """Check every record's structure and report on the batch.

        Raises:
            CorruptDataError: a length, count or varint is wrong, or the compressed data is damaged.
        """
        ...

    def find_timestamp(
        self, batch: memoryview, header: BatchHeader, timestamp: int, min_offset: int
    ) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after both `timestamp` and `min_offset`, or None.

        Raises:
            CorruptDataError: as `inspect`.
        """
        ...


class Record(NamedTuple):
    """One record; deltas are relative to the batch header, None is a null key or value."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None


class PythonRecordReader:
    """`RecordReader` in plain Python. Thread-safe: no state."""

    def inspect(self, batch: memoryview, header: BatchHeader, rules: RecordRules) -> RecordsReport:
        """See `RecordReader.inspect`."""
        largest, is_consecutive = -1, True
        keyless: list[int] = []
        out_of_range: list[int] = []
        for index, record in enumerate(iterate_records(batch, header)):
            timestamp = header.base_timestamp + record.timestamp_delta
            largest = max(largest, timestamp)
            if record.offset_delta != index:
                is_consecutive = False
            if rules.needs_key and record.key is None:
                keyless.append(index)
            if timestamp != -1 and not rules.earliest <= timestamp <= rules.latest:
                out_of_range.append(index)
        return RecordsReport(largest, is_consecutive, tuple(keyless), tuple(out_of_range))

    def find_timestamp(
        self, batch: memoryview, header: BatchHeader, timestamp: int, min_offset: int
    ) -> tuple[int, int] | None:
        """See `RecordReader.find_timestamp`."""
        for record in iterate_records(batch, header):
            offset = header.base_offset + record.offset_delta
            own = header.max_timestamp if header.has_log_append_time else header.base_timestamp + record.timestamp_delta
            if own >= timestamp and offset >= min_offset:
                return offset, own
        return None


def iterate_records(batch: memoryview, header: BatchHeader) -> Iterator[Record]:
    """Yield the records of a batch.

    Raises:
        CorruptDataError: the section does not hold exactly `header.record_count` well-formed records.
    """
    section = bytes(batch[HEADER_BYTES:])
    if header.codec:
        section = decompress(header.codec, section, _MAX_PLAIN_BYTES)
    position = 0
    for index in range(header.record_count):
        try:
            length, start = _read_varint(section, position)
            end = start + length
            if length < 0 or end > len(section):
                raise CorruptDataError(f"record {index} claims {length} bytes, {len(section) - start} are left")
            yield _read_record(section, start, end)
        except IndexError as error:
            raise CorruptDataError(f"record {index} ends in the middle of a field") from error
        position = end
    if position != len(section):
        raise CorruptDataError(f"{len(section) - position} bytes after the last of {header.record_count} records")


def _read_record(section: bytes, start: int, end: int) -> Record:
    timestamp_delta, position = _read_varint(section, start + 1, max_bytes=10)
    offset_delta, position = _read_varint(section, position)
    key, position = _read_bytes(section, position, end)
    value, position = _read_bytes(section, position, end)
    header_count, position = _read_varint(section, position)
    if header_count < 0 or header_count > end - position:
        raise CorruptDataError(f"record with {header_count} headers in {end - position} bytes")
    for _ in range(header_count):
        name, position = _read_bytes(section, position, end)
        if name is None:
            raise CorruptDataError("record header with a null key")
        _, position = _read_bytes(section, position, end)
    if position != end:
        raise CorruptDataError(f"record ends at byte {position}, its length says {end}")
    return Record(timestamp_delta, offset_delta, key, value)


def _read_bytes(section: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(section, position)
    if length < 0:
        if length != -1:
            raise CorruptDataError(f"negative length {length}")
        return None, position
    if length > end - position:
        raise CorruptDataError(f"field of {length} bytes with {end - position} left in the record")
    return section[position : position + length], position + length


def _read_varint(section: bytes, position: int, max_bytes: int = 5) -> tuple[int, int]:
    raw = shift = 0
    for _ in range(max_bytes):
        byte = section[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise CorruptDataError(f"varint of more than {max_bytes} bytes")
