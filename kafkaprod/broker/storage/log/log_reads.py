"""The ways into a partition's segments: by offset, by timestamp, by aborted transaction.

Functions over a `SegmentList`; the caller holds the partition's lock and has checked the range. Any of them raises
CorruptDataError at damage. Source: Kafka storage, LocalLog.read, LogSegment.findOffsetByTimestamp.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkaprod.broker.storage.index.transaction_index import AbortedTransaction
from kafkaprod.broker.storage.log.batch_header import NO_TIMESTAMP, BatchHeader
from kafkaprod.broker.storage.log.records import open_batch
from kafkaprod.broker.storage.log.segment import FileSlice, Segment
from kafkaprod.broker.storage.log.segments import SegmentList


class ReadResult(NamedTuple):
    """What a read found.

    Attributes:
        records: whole batches, the last one possibly cut; None if there is nothing to read.
        first_offset: of the first batch in `records`, at or below the offset asked for.
        end_offset: no record in `records` has an offset at or above it; for `aborted_transactions`.
    """

    records: FileSlice | None
    first_offset: int
    end_offset: int


class RecordPosition(NamedTuple):
    """A record found by its timestamp (ms)."""

    offset: int
    timestamp: int
    leader_epoch: int


def read_slice(
    segments: SegmentList, offset: int, max_bytes: int, upper_bound: int, log_end_offset: int, min_one_batch: bool
) -> ReadResult:
    """The batches from the one that contains `offset` up to `max_bytes`, within one segment and below `upper_bound`.

    With `min_one_batch` the first batch is returned whole, whatever its size.
    """
    for segment in segments.starting_at(max(segments.position_of(offset), 0)):
        indexes = segments.indexes(segment)
        located = segment.locate(offset, indexes)
        if located is None:
            continue  # compacted away: the next segment has the next record
        position, header = located
        if header.base_offset >= upper_bound:
            break
        next_base = segments.next_base(segment)
        segment_end = log_end_offset if next_base is None else next_base
        limit = segment.size_bytes
        if upper_bound < segment_end:
            bound = segment.locate(upper_bound, indexes)
            limit = bound[0] if bound is not None else limit
        length = max(max_bytes, header.size_bytes) if min_one_batch else max_bytes
        records = segment.read(position, header.base_offset, min(length, limit - position))
        beyond = indexes.offsets.first_at_or_after_position(records.position + records.length)
        return ReadResult(records, header.base_offset, beyond.offset if beyond is not None else segment_end)
    return ReadResult(None, offset, offset)


def find_timestamp(segments: SegmentList, timestamp: int, min_offset: int) -> RecordPosition | None:
    """The first record at or after `timestamp` (ms) with an offset not below `min_offset`, or None."""
    for segment in segments.starting_at(max(segments.position_of(min_offset), 0)):
        if segments.largest_timestamp(segment).timestamp < timestamp:
            continue
        for position, header in segment.locate_timestamp(timestamp, min_offset, segments.indexes(segment)):
            batch = _read_batch(segment, position, header)
            found = open_batch(batch).find_timestamp(timestamp, min_offset)
            if found is not None:
                return RecordPosition(found[0], found[1], header.partition_leader_epoch)
    return None


def find_max_timestamp(segments: SegmentList, min_offset: int) -> RecordPosition | None:
    """The first record with the largest timestamp of the log (KIP-734), None if no record has one."""
    candidates = segments.starting_at(max(segments.position_of(min_offset), 0))
    largest = max((segments.largest_timestamp(segment).timestamp for segment in candidates), default=NO_TIMESTAMP)
    return find_timestamp(segments, largest, min_offset) if largest >= 0 else None


def collect_aborted(segments: SegmentList, fetch_offset: int, upper_bound: int) -> list[AbortedTransaction]:
    """The aborted transactions with records in [fetch_offset, upper_bound), by the offset of their markers."""
    found: list[AbortedTransaction] = []
    for segment in segments.starting_at(max(segments.position_of(fetch_offset), 0)):
        entries, is_complete = segments.indexes(segment).transactions.collect(fetch_offset, upper_bound)
        found.extend(entries)
        if is_complete:
            break
    return found


def _read_batch(segment: Segment, position: int, header: BatchHeader) -> memoryview:
    return memoryview(segment.read(position, header.base_offset, header.size_bytes).read())
