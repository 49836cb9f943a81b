"""The segments of one partition, in order: find, read, roll, replace, drop, and their indexes when needed.

Not thread-safe: the partition's lock guards it. Source: Kafka storage, LogSegments, LocalLog.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.log_files import (
    CLEANED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kafkaprod.broker.storage.index.index_rule import IndexRule
from kafkaprod.broker.storage.index.time_index import TimestampOffset
from kafkaprod.broker.storage.index.transaction_index import AbortedTransaction
from kafkaprod.broker.storage.log.compaction import CleanedSegment
from kafkaprod.broker.storage.log.segment import FileSlice, Segment, SegmentIndexes
from kafkaprod.broker.storage.lru_cache import LruCache
from kafkaprod.broker.storage.recovery.checkpoints import IndexChecksums
from kafkaprod.broker.storage.recovery.recovery import DiskImage, RecoveredSegment, checksum_scan, derive_indexes
from kafkaprod.storage.batch_header import NO_TIMESTAMP, BatchHeader
from kafkaprod.storage.crc import crc32c
from kafkaprod.storage.disk import Disk, LogFile, replace_file

_OPEN_FILES = 512  # .log files of inactive segments and indexes of active ones; for all partitions together
_LOADED_INDEXES = 32  # and with indexes in memory: 5 MiB for a segment of 1 GiB


@dataclass(slots=True)
class OpenHandles:
    """The bounded open files and loaded indexes of all partitions of a broker. Thread-safe."""

    files: LruCache[LogFile] = field(default_factory=lambda: LruCache(_OPEN_FILES))
    indexes: LruCache[SegmentIndexes] = field(default_factory=lambda: LruCache(_LOADED_INDEXES))


class ReadResult(NamedTuple):
    """What a read found.

    Attributes:
        records: Whole batches, the last one possibly cut; None if there is nothing to read.
        first_offset: The first offset of the first batch in `records`, at or below the requested offset.
        end_offset: No record in `records` has an offset at or above it; for `aborted_transactions`.
    """

    records: FileSlice | None
    first_offset: int
    end_offset: int


class RecordPosition(NamedTuple):
    """A record found by its timestamp (ms)."""

    offset: int
    timestamp: int
    leader_epoch: int


class CandidateBatch(NamedTuple):
    """A batch that may hold the record that is looked for; `data` is a copy of it."""

    header: BatchHeader
    data: bytes


class SegmentList:
    """All segments of a partition; the last one is active. Reads raise CorruptDataError where they meet damage."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        handles: OpenHandles,
        recovered: list[RecoveredSegment],
        checksums: Mapping[int, IndexChecksums],
        has_gaps: bool,
    ) -> None:
        self.config = config
        self.directory = directory
        self._disk = disk
        self._handles = handles
        self.has_gaps = has_gaps
        self._checksums = dict(checksums)
        self._segments = [self._make(segment.base_offset, segment.size_bytes) for segment in recovered]
        for segment, state in zip(self._segments, recovered, strict=True):
            segment.rule = state.rule
            if state.is_checked:
                segment.mark_checked()

    @property
    def active(self) -> Segment:
        """The segment that takes appends."""
        return self._segments[-1]

    @property
    def all(self) -> list[Segment]:
        """The segments, oldest first; a copy."""
        return self._segments.copy()

    @property
    def size_bytes(self) -> int:
        """Bytes of records in all segments."""
        return sum(segment.size_bytes for segment in self._segments)

    def position_of(self, offset: int) -> int:
        """Index of the segment with the largest base offset not above `offset`; -1 if all are above."""
        return bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1

    def starting_at(self, position: int) -> list[Segment]:
        """The segments from index `position` on."""
        return self._segments[position:]

    def next_base(self, segment: Segment) -> int | None:
        """Base offset of the segment after `segment`, None for the active one."""
        position = self.position_of(segment.base_offset) + 1
        return self._segments[position].base_offset if position < len(self._segments) else None

    def read(
        self, offset: int, max_bytes: int, upper_bound: int, log_end_offset: int, *, min_one_batch: bool
    ) -> ReadResult:
        """Return the batches from the one with `offset` up to `max_bytes`, within one segment and below `upper_bound`.

        With `min_one_batch` the first batch is returned whole, whatever its size.
        """
        for segment in self.starting_at(max(self.position_of(offset), 0)):
            indexes = self.indexes(segment)
            located = segment.locate(offset, indexes)
            if located is None:
                continue  # compacted away: the next segment has the next record
            position, header = located
            if header.base_offset >= upper_bound:
                break
            next_base = self.next_base(segment)
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

    def find_batch(self, timestamp: int, min_offset: int) -> CandidateBatch | None:
        """Return the first batch that may hold a record at or after both `timestamp` (ms) and `min_offset`, or None."""
        for segment in self.starting_at(max(self.position_of(min_offset), 0)):
            if self.largest_timestamp(segment).timestamp < timestamp:
                continue
            for position, header in segment.locate_timestamp(timestamp, min_offset, self.indexes(segment)):
                return CandidateBatch(header, segment.read(position, header.base_offset, header.size_bytes).read())
        return None

    def max_timestamp(self, min_offset: int) -> int:
        """Return the largest timestamp of the segments from the one that contains `min_offset` on, -1 if none has one.

        See KIP-734.
        """
        candidates = self.starting_at(max(self.position_of(min_offset), 0))
        return max((self.largest_timestamp(segment).timestamp for segment in candidates), default=NO_TIMESTAMP)

    def collect_aborted(self, fetch_offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [fetch_offset, upper_bound), by their markers' offsets."""
        found: list[AbortedTransaction] = []
        for segment in self.starting_at(max(self.position_of(fetch_offset), 0)):
            entries, is_complete = self.indexes(segment).transactions.collect(fetch_offset, upper_bound)
            found.extend(entries)
            if is_complete:
                break
        return found

    def roll(self, base_offset: int, now_ms: int) -> Segment:
        """Sync and close the active segment and begin another at `base_offset`; an empty one is used on.

        Raises:
            OSError: The new segment could not be made; the old one stays active.
        """
        old = self.active
        if old.size_bytes == 0 and old.base_offset == base_offset:
            return old
        segment = self._make(base_offset, 0)
        segment.activate(self.config, IndexRule(base_offset, self.config.index_interval_bytes), now_ms)
        self._disk.sync_dir(self.directory)
        self._close(old)
        self._segments.append(segment)
        return segment

    def close(self) -> None:
        """Close the active segment."""
        self._close(self.active)

    def drop_first(self, count: int) -> None:
        """Delete the files of the `count` oldest segments.

        Raises:
            OSError: A file could not be deleted; its segment and all later ones are still in the list.
        """
        for _ in range(count):
            self._delete(self._segments[0])
            del self._segments[0]

    def drop_last(self) -> None:
        """Delete the files of the newest segment.

        Raises:
            OSError: A file could not be deleted.
        """
        self._delete(self._segments.pop())

    def replace(self, group: Sequence[Segment], cleaned: CleanedSegment) -> None:
        """Put a compacted segment, which is in its `.cleaned` file, in the place of some closed ones.

        Raises:
            OSError: Some files may be exchanged; the next start completes it.
        """
        first = group[0]
        position = self._segments.index(first)
        path = first.path(LOG_SUFFIX)
        self._disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
        self._disk.sync_dir(self.directory)
        for segment in group[1:]:
            self._delete(segment)
        self.forget(first)
        self._disk.rename(path + SWAP_SUFFIX, path)
        segment = self._make(cleaned.base_offset, cleaned.scan.valid_bytes)
        segment.rule = cleaned.scan.rule
        segment.mark_checked()
        self._segments[position : position + len(group)] = [segment]
        scan = cleaned.scan
        contents = (bytes(scan.offset_entries), bytes(scan.time_entries), scan.transaction_entries())
        for suffix, content in zip(INDEX_SUFFIXES, contents, strict=True):
            self._replace_index(segment, suffix, content)
        self._checksums[segment.base_offset] = checksum_scan(scan)
        self._disk.sync_dir(self.directory)

    def forget(self, segment: Segment) -> None:
        """Drop what is cached of a segment, before its files change."""
        segment.forget_files()
        self._handles.indexes.forget(segment.path(OFFSET_INDEX_SUFFIX))

    def indexes(self, segment: Segment) -> SegmentIndexes:
        """A segment's indexes; those of an inactive one are checked when loaded, and rebuilt if they are wrong."""
        if segment.active_indexes is not None:
            return segment.active_indexes
        return self._handles.indexes.get(segment.path(OFFSET_INDEX_SUFFIX), lambda: self._load_indexes(segment))

    def largest_timestamp(self, segment: Segment) -> TimestampOffset:
        """The largest timestamp of a segment and the last offset of the batch that holds it; -1 if it has none."""
        if segment.rule is not None:
            return segment.rule.largest
        return self.indexes(segment).times.last

    def checksums(self) -> dict[int, IndexChecksums]:
        """The index checksums of the closed segments."""
        bases = {segment.base_offset for segment in self._segments}
        return {base: sums for base, sums in sorted(self._checksums.items()) if base in bases}

    def _make(self, base_offset: int, size_bytes: int) -> Segment:
        is_dense = not (self.config.is_compacted or self.has_gaps)
        return Segment(self._disk, self.directory, base_offset, size_bytes, is_dense, self._handles.files)

    def _close(self, segment: Segment) -> None:
        indexes = segment.active_indexes
        if indexes is None:
            return
        segment.close()
        if segment.has_whole_indexes:
            self._checksums[segment.base_offset] = _checksum(segment, indexes)
        else:
            self._checksums.pop(segment.base_offset, None)

    def _load_indexes(self, segment: Segment) -> SegmentIndexes:
        indexes = segment.open_indexes(self.config)
        if self._checksums.get(segment.base_offset) == _checksum(segment, indexes):
            return indexes
        scan = derive_indexes(DiskImage(self.directory), self.config, segment.base_offset)
        contents = (bytes(scan.offset_entries), bytes(scan.time_entries), scan.transaction_entries())
        indexes.offsets.file.preload(contents[0])
        indexes.times.file.preload(contents[1])
        indexes.transactions.entries[:] = scan.aborted
        for suffix, content in zip(INDEX_SUFFIXES, contents, strict=True):
            self._replace_index(segment, suffix, content)
        self._checksums[segment.base_offset] = checksum_scan(scan)
        return indexes

    def _replace_index(self, segment: Segment, suffix: str, content: bytes) -> None:
        try:
            if suffix == TRANSACTION_INDEX_SUFFIX and not content:
                self._disk.unlink(segment.path(suffix))
            else:
                replace_file(self._disk, segment.path(suffix), content)
        except OSError:
            return  # the entries in memory serve; the file fails its checksum and is rebuilt next time

    def _delete(self, segment: Segment) -> None:
        self.forget(segment)
        for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX):
            self._disk.unlink(segment.path(suffix))
        self._checksums.pop(segment.base_offset, None)


def _checksum(segment: Segment, indexes: SegmentIndexes) -> IndexChecksums:
    return IndexChecksums(
        segment.size_bytes,
        crc32c(indexes.offsets.file.content()),
        crc32c(indexes.times.file.content()),
        crc32c(indexes.transactions.content()),
    )
