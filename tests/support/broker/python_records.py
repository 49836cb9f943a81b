"""A second reading of a batch's records, in plain Python: the oracle of the compiled reader's tests.

A record: length varint | attributes int8 | timestampDelta varlong | offsetDelta varint | key | value | headers.
Source: Kafka protocol guide, "Record".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafkaprod._core.records.batch_reader import KEYLESS, MISTIMED, RecordScan
from kafkaprod.compression import decompress
from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.batch_header import HEADER_BYTES, BatchHeader

_MAX_PLAIN_BYTES = 512 * 1024 * 1024


class Record(NamedTuple):
    """One record; deltas are relative to the batch header, None is a null key or value."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None


def scan_records(
    batch: memoryview, header: BatchHeader, earliest: int, latest: int, needs_key: bool, refuses_append_time: bool
) -> RecordScan:
    """What `RecordBatchReader.scan` returns, with all failing records listed."""
    largest, offset_of_largest, is_consecutive = -1, -1, True
    failing: list[tuple[int, int]] = []
    for index, record in enumerate(iterate_records(batch, header)):
        timestamp = header.base_timestamp + record.timestamp_delta
        if timestamp > largest or offset_of_largest < 0:
            largest, offset_of_largest = timestamp, header.base_offset + record.offset_delta
        if record.offset_delta != index:
            is_consecutive = False
        fault = KEYLESS if needs_key and record.key is None else 0
        is_claimed = refuses_append_time and header.has_log_append_time
        if is_claimed or (timestamp != -1 and not earliest <= timestamp <= latest):
            fault |= MISTIMED
        if fault:
            failing.append((index, fault))
    has_mistimed_with_key = any(fault == MISTIMED for _, fault in failing)
    return RecordScan(largest, offset_of_largest, is_consecutive, len(failing), has_mistimed_with_key, tuple(failing))


def find_timestamp(batch: memoryview, header: BatchHeader, timestamp: int, min_offset: int) -> tuple[int, int] | None:
    """What `RecordBatchReader.find_timestamp` returns."""
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
        section = bytes(decompress(header.codec, section, _MAX_PLAIN_BYTES))
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
