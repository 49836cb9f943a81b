"""Compaction (cleanup.policy=compact): rewrite the closed segments of a log to keep the last record of each key.

    clean part | dirty part | not cleanable: the active segment, open transactions, records younger than the lag
               ^ cleaned_to
1. `plan_compaction` (under the partition's lock) decides whether the dirty part is worth it.
2. `LastOffsets.fill` reads the dirty part: the last offset of each key, as far as memory for keys goes.
3. `rewrite_group` reads clean and dirty part, and writes what stays to `<base>.log.cleaned`, a segment at a time; small
   neighbours become one. It needs no lock: closed segments do not change.
4. `LogStore.replace_segments` (under the lock) renames it to `.swap`, from where on the next start completes what a
   crash interrupts, deletes the old files and gives the new one its name.

What stays: offsets, control batches, of data batches the last record of each key, records of open transactions. A
record without a value (tombstone) stays for delete.retention.ms after its first compaction: its batch then gets the
attribute "has delete horizon", and the horizon as base timestamp. Records of aborted transactions go. The last batch of
each producer stays, even without records: it is what retries are compared with.
Source: Kafka storage, LogCleanerManager, Cleaner, MemoryRecords.filterTo; KIP-534.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.log_files import CLEANED_SUFFIX, LOG_SUFFIX
from kafkaprod.broker.storage.format.records import open_batch
from kafkaprod.broker.storage.index.transaction_index import AbortedTransaction
from kafkaprod.broker.storage.log.segment import Segment
from kafkaprod.broker.storage.recovery.segment_scan import SegmentScan, start_scan
from kafkaprod.compression import CODEC_NAMES, make_codec
from kafkaprod.errors import CorruptDataError, KafkaError
from kafkaprod.storage.batch_checks import valid_batch_at
from kafkaprod.storage.batch_header import (
    CODEC_MASK,
    HAS_DELETE_HORIZON,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    BatchHeader,
    parse_header,
    seal_header,
)
from kafkaprod.storage.disk import Disk, open_for_read, write_at
from kafkaprod.structs import INT32_MAX

MAX_KEYS = 500_000
"""The most keys of one pass: about 100 MB. A longer dirty part takes several passes."""
_READ_BYTES = 4 * 1024 * 1024
_WRITE_BYTES = 1024 * 1024


class CompactionStoppedError(KafkaError):
    """The broker ends, or the log changed: the rewritten part is thrown away."""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What to compact.

    Attributes:
        segments: Closed ones from the start of the log on, those that may be cleaned.
        dirty_offset: Below it each key has one record.
        end_offset: The end offset of the last segment.
        aborted: Transactions whose records go, by the id of their producer.
        last_offsets: The last offset of the last batch of each producer, by its id.
        now_ms: Wall time.
    """

    segments: Sequence[Segment]
    dirty_offset: int
    end_offset: int
    config: LogConfig
    aborted: Mapping[int, Sequence[AbortedTransaction]]
    last_offsets: Mapping[int, int]
    now_ms: int

    def is_aborted(self, header: BatchHeader) -> bool:
        """The batch belongs to an aborted transaction."""
        return header.is_transactional and any(
            each.first_offset <= header.base_offset <= each.last_offset
            for each in self.aborted.get(header.producer_id, ())
        )

    def aborted_in(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions whose markers are in a range, by offset."""
        every = [each for entries in self.aborted.values() for each in entries]
        found = [each for each in every if start_offset <= each.last_offset < end_offset]
        return sorted(found, key=lambda each: each.last_offset)


class CleanedSegment(NamedTuple):
    """A rewritten segment in its `.cleaned` file, and what its indexes hold."""

    base_offset: int
    scan: SegmentScan


@dataclass(slots=True)
class LastOffsets:
    """The last offset of each key in the dirty part.

    Attributes:
        noted_offset: The records after it were not read.
    """

    noted_offset: int
    by_key: dict[bytes, int] = field(default_factory=dict)

    def fill(self, plan: CompactionPlan, should_stop: Callable[[], bool]) -> None:
        """Read the dirty part.

        Raises:
            CorruptDataError: A batch is damaged.
            CompactionStoppedError: `should_stop` returned True.
        """
        for segment, end in _with_ends(plan):
            if end <= plan.dirty_offset:
                continue
            for header, batch in read_batches(segment, should_stop):
                if header.last_offset < plan.dirty_offset or header.is_control or plan.is_aborted(header):
                    continue
                noted_offset, is_full = open_batch(batch).note_keys(self.by_key, MAX_KEYS, plan.dirty_offset)
                if is_full:
                    self.noted_offset = max(self.noted_offset, noted_offset)
                    return
            self.noted_offset = end - 1


def plan_is_due(clean_bytes: int, dirty_bytes: int, first_dirty_timestamp: int, config: LogConfig, now_ms: int) -> bool:
    """Whether the dirty part is large or old enough (min.cleanable.dirty.ratio, max.compaction.lag.ms)."""
    if not dirty_bytes:
        return False
    if dirty_bytes / (clean_bytes + dirty_bytes) > config.min_cleanable_dirty_ratio:
        return True
    return 0 <= first_dirty_timestamp < now_ms - config.max_compaction_lag_ms


def group_segments(plan: CompactionPlan, noted_offset: int) -> Iterator[list[Segment]]:
    """Yield runs of neighbours that together fit into one segment; those after `noted_offset` are left out."""
    group: list[Segment] = []
    size = 0
    for segment, end in _with_ends(plan):
        if segment.base_offset > noted_offset:
            break
        fits = group and size + segment.size_bytes <= plan.config.segment_bytes
        if not fits or end - group[0].base_offset > INT32_MAX:
            if group:
                yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size_bytes
    if group:
        yield group


def rewrite_group(
    plan: CompactionPlan, group: Sequence[Segment], last: LastOffsets, disk: Disk, should_stop: Callable[[], bool]
) -> CleanedSegment | None:
    """Write what stays of some segments to a `.cleaned` file, and sync it; None if nothing changes.

    Raises:
        CorruptDataError: A batch is damaged.
        CompactionStoppedError: `should_stop` returned True.
        OSError: The disk refused; the file may be left.
    """
    base_offset = group[0].base_offset
    scan = start_scan(base_offset, plan.config, is_dense=False)
    file = disk.create(group[0].path(LOG_SUFFIX + CLEANED_SUFFIX))
    disk.truncate(file, 0)
    pending, position, is_changed = bytearray(), 0, len(group) > 1
    dropped: BatchHeader | None = None
    for segment in group:
        for header, batch in read_batches(segment, should_stop):
            kept = _compact_batch(plan, last, header, batch)
            if kept is None:
                dropped, is_changed = header, True
                continue
            is_changed = is_changed or kept is not batch
            scan.add(*_add(pending, kept, position + len(pending)))
            if len(pending) >= _WRITE_BYTES:
                write_at(disk, file, pending, position)
                position += len(pending)
                pending = bytearray()
    if not position and not pending and dropped is not None:  # a segment is never empty: its offsets would be unknown
        scan.add(*_add(pending, _empty_batch(dropped), 0))
    end_offset = _end_of(plan, group[-1])
    scan.aborted = plan.aborted_in(base_offset, end_offset)
    if not is_changed:
        disk.unlink(file.path)
        return None
    write_at(disk, file, pending, position)
    if position + len(pending) > INT32_MAX:
        raise CompactionStoppedError(
            f"{file.path} would have {position + len(pending)} bytes, the limit is {INT32_MAX}"
        )
    disk.fdatasync(file)
    scan.close()
    return CleanedSegment(base_offset, scan)


def read_batches(segment: Segment, should_stop: Callable[[], bool]) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a closed segment, checked.

    Raises:
        CorruptDataError: A batch is damaged.
        CompactionStoppedError: `should_stop` returned True.
    """
    file = open_for_read(segment.path(LOG_SUFFIX))
    position, wanted_bytes = 0, _READ_BYTES
    while position < segment.size_bytes:
        block = memoryview(os.pread(file.fd, min(wanted_bytes, segment.size_bytes - position), position))
        used = 0
        while (header := valid_batch_at(block, used, segment.base_offset)) is not None:
            if should_stop():
                raise CompactionStoppedError("compaction was stopped")
            yield header, block[used : used + header.size_bytes]
            used += header.size_bytes
        if not used and wanted_bytes >= segment.size_bytes - position:
            raise CorruptDataError(f"damaged batch at byte {position} of {file.path}")
        wanted_bytes = _READ_BYTES if used else segment.size_bytes - position  # a batch larger than the block
        position += used


def _end_of(plan: CompactionPlan, wanted: Segment) -> int:
    return next(end for segment, end in _with_ends(plan) if segment is wanted)


def _with_ends(plan: CompactionPlan) -> Iterator[tuple[Segment, int]]:
    ends = [segment.base_offset for segment in plan.segments[1:]]
    return zip(plan.segments, [*ends, plan.end_offset], strict=True)


def _add(out: bytearray, batch: memoryview | bytearray, position: int) -> tuple[BatchHeader, int]:
    out += batch
    return parse_header(batch), position


def _compact_batch(
    plan: CompactionPlan, last: LastOffsets, header: BatchHeader, batch: memoryview
) -> memoryview | bytearray | None:
    """Return what stays of a batch: the batch itself, another one, or None."""
    if header.is_control or header.base_offset > last.noted_offset:
        return batch
    attributes, base_timestamp = header.attributes, header.base_timestamp
    count, section, max_timestamp = 0, bytearray(), header.max_timestamp
    if header.record_count and not plan.is_aborted(header):
        reader = open_batch(batch)
        is_past_horizon = bool(attributes & HAS_DELETE_HORIZON) and plan.now_ms >= base_timestamp
        found = reader.compact(last.by_key, last.noted_offset, is_past_horizon, base_timestamp)
        if found.tombstone_count and not attributes & HAS_DELETE_HORIZON:
            attributes |= HAS_DELETE_HORIZON
            base_timestamp = plan.now_ms + plan.config.delete_retention_ms
            found = reader.compact(last.by_key, last.noted_offset, False, base_timestamp)
        count, section = found.record_count, found.section
        max_timestamp = header.max_timestamp if header.has_log_append_time else found.max_timestamp
    if count == header.record_count and attributes == header.attributes and count:
        return batch
    if not count:
        is_last = plan.last_offsets.get(header.producer_id) == header.last_offset
        return (batch if not header.record_count else _empty_batch(header)) if is_last else None
    return _rebuilt(
        header._replace(
            attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, record_count=count
        ),
        section,
    )


def _empty_batch(header: BatchHeader) -> bytearray:
    """The header of a batch that lost its records: offsets and the producer's fields stay."""
    attributes = header.attributes & ~CODEC_MASK & ~HAS_DELETE_HORIZON
    return _rebuilt(
        header._replace(attributes=attributes, base_timestamp=header.max_timestamp, record_count=0), bytearray()
    )


def _rebuilt(header: BatchHeader, section: bytearray) -> bytearray:
    codec = make_codec(CODEC_NAMES[header.codec], may_be_slow=True)
    batch = bytearray(HEADER_BYTES) + (codec.compress([section]) if codec else section)
    seal_header(memoryview(batch), header._replace(batch_length=len(batch) - OVERHEAD_BYTES))
    return batch
