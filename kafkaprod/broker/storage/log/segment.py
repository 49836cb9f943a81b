"""One .log file and its indexes: append, locate, read.

The segment at the end of a log is active: its .log file stays open for appends. All other files are opened when needed
and kept in a bounded cache. Positions are bytes in the .log file. Not thread-safe: the partition's lock guards it; a
`FileSlice` once returned may be used without the lock, from any thread, after the segment is closed or its file is
deleted. Source: Kafka storage, LogSegment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from kafkaprod.broker.storage.errors import PartitionFencedError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.log_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from kafkaprod.broker.storage.index.index_rule import IndexRule
from kafkaprod.broker.storage.index.offset_index import OffsetIndex, OffsetPosition
from kafkaprod.broker.storage.index.time_index import TimeIndex
from kafkaprod.broker.storage.index.transaction_index import AbortedTransaction, TransactionIndex, read_entries
from kafkaprod.broker.storage.lru_cache import LruCache
from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.batch_checks import follows, valid_batch_at
from kafkaprod.storage.batch_header import HEADER_BYTES, MAGIC, OVERHEAD_BYTES, BatchHeader, parse_header
from kafkaprod.storage.disk import Disk, LogFile, open_for_read, write_at
from kafkaprod.structs import INT32_MAX

_CHECK_BYTES = 1024 * 1024  # one read of the checksum scan; a larger batch is read whole
_SCAN_BYTES = 16 * 1024  # one read of the header scan: a few batches between two index entries


class FileSlice(NamedTuple):
    """A range of a .log file, for `os.sendfile(socket, slice.file.fileno(), slice.position, slice.length)`.

    Keep it until the bytes are sent: it keeps the descriptor open. Whole batches, the last one possibly cut.
    """

    file: LogFile
    position: int
    length: int

    def read(self) -> bytes:
        """A copy of the bytes; shorter than `length` only if the log was truncated meanwhile."""
        return os.pread(self.file.fd, self.length, self.position)


class SegmentIndexes(NamedTuple):
    """The three indexes of a segment."""

    offsets: OffsetIndex
    times: TimeIndex
    transactions: TransactionIndex


class Segment:
    """The segment whose first offset is `base_offset`.

    Attributes:
        size_bytes: Length of the valid part of the .log file.
        created_ms: Wall time it became active in this process; decides rolling where records have no timestamps.
        rule: State of the index rule; known while active.
        active_indexes: Open for appends while active, else None.
        has_whole_indexes: False once an index write failed: entries are missing, the index gets no checksum and is
        rebuilt.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        size_bytes: int,
        is_dense: bool,
        open_files: LruCache[LogFile],
    ) -> None:
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.directory = directory
        self.created_ms = 0
        self.rule: IndexRule | None = None
        self.active_indexes: SegmentIndexes | None = None
        self.has_whole_indexes = True
        self._is_dense = is_dense  # offsets have no gaps: the log is not compacted
        self._disk = disk
        self._open_files = open_files
        self._file: LogFile | None = None  # while active
        self._checked = (size_bytes, size_bytes)  # from, to: bytes whose checksums are known to be right

    def path(self, suffix: str) -> str:
        """The path of one of the segment's files."""
        return os.path.join(self.directory, file_name(self.base_offset, suffix))

    def activate(self, config: LogConfig, rule: IndexRule, now_ms: int) -> None:
        """Open the files for appends, creating what is missing.

        Raises:
            OSError: A file could not be made; the segment stays inactive.
        """
        indexes = self.open_indexes(config)
        log_file = self._disk.create(self.path(LOG_SUFFIX))
        indexes.offsets.file.activate()
        indexes.times.file.activate()
        self.rule, self.created_ms = rule, now_ms
        self._file, self.active_indexes = log_file, indexes

    def open_indexes(self, config: LogConfig) -> SegmentIndexes:
        """The indexes as their files are, unchecked."""
        limit = config.segment_index_bytes
        transactions = self.path(TRANSACTION_INDEX_SUFFIX)
        return SegmentIndexes(
            OffsetIndex(self._disk, self.path(OFFSET_INDEX_SUFFIX), self.base_offset, limit, self._open_files),
            TimeIndex(self._disk, self.path(TIME_INDEX_SUFFIX), self.base_offset, limit, self._open_files),
            TransactionIndex(self._disk, transactions, read_entries(transactions)),
        )

    def close(self) -> None:
        """Make the segment inactive: last time entry, trimmed indexes. Never fails: what it loses is derived data."""
        if self.active_indexes is None or self.rule is None:
            return
        indexes, self.active_indexes, self._file = self.active_indexes, None, None
        try:
            indexes.times.maybe_append(*self.rule.largest)
            indexes.offsets.file.close()
            indexes.times.file.close()
        except OSError:
            self.has_whole_indexes = False

    def should_roll(
        self, config: LogConfig, batch_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether a batch with these properties must go to a new segment; for the active segment."""
        assert self.rule is not None
        assert self.active_indexes is not None
        if self.rule.first_timestamp >= 0:
            waited_ms = max_timestamp - self.rule.first_timestamp
        else:
            waited_ms = now_ms - self.created_ms
        return (
            self.size_bytes > config.segment_bytes - batch_bytes
            or (self.size_bytes > 0 and waited_ms > config.max_segment_ms)
            or self.active_indexes.offsets.is_full
            or self.active_indexes.times.is_full
            or last_offset - self.base_offset > INT32_MAX
        )

    def append(self, batch: memoryview, header: BatchHeader) -> None:
        """Write one batch, its offset assigned, at the end of the active segment.

        Raises:
            OSError: The batch could not be written. What was written of it has been cut off again.
            PartitionFencedError: It could not even be cut off: the file ends in garbage.
        """
        assert self._file is not None, f"append to inactive segment {self.base_offset}"
        try:
            write_at(self._disk, self._file, batch, self.size_bytes)
        except OSError:
            self._cut_to(self.size_bytes)
            raise
        position = self.size_bytes
        self.size_bytes += header.size_bytes
        if self._checked[1] == position:
            self._checked = (self._checked[0], self.size_bytes)
        assert self.rule is not None
        if self.rule.add(header):
            self._add_index_entries(header.last_offset, position)

    def append_aborted(self, aborted: AbortedTransaction) -> None:
        """Note an aborted transaction whose marker was just appended."""
        assert self.active_indexes is not None
        try:
            self.active_indexes.transactions.append(aborted)
        except OSError:
            self.has_whole_indexes = False

    def cut_at(self, offset: int, indexes: SegmentIndexes) -> None:
        """Cut the .log file at the batch that contains `offset`; the segment has to be loaded again afterwards.

        Raises:
            OSError: Nothing was cut.
        """
        located = self.locate(offset, indexes)
        if located is not None:
            self._disk.truncate(self._disk.create(self.path(LOG_SUFFIX)), located[0])

    def locate(self, offset: int, indexes: SegmentIndexes) -> tuple[int, BatchHeader] | None:
        """Position and header of the first batch whose last offset is at or above `offset`, or None.

        Raises:
            CorruptDataError: A header on the way is damaged.
        """
        for position, header in self.headers(indexes.offsets.lookup(offset)):
            if header.last_offset >= offset:
                return position, header
        return None

    def locate_timestamp(
        self, timestamp: int, min_offset: int, indexes: SegmentIndexes
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The batches, in order, that may hold a record at or after both `timestamp` and `min_offset`.

        Raises:
            CorruptDataError: A header on the way is damaged.
        """
        from_offset = max(indexes.times.lookup(timestamp).offset, min_offset)
        for position, header in self.headers(indexes.offsets.lookup(from_offset)):
            if header.max_timestamp >= timestamp and header.last_offset >= min_offset:
                yield position, header

    def headers(self, start: OffsetPosition) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from `start`, an index entry or the segment's start, to the end.

        Raises:
            CorruptDataError: A header cannot be right where it is.
        """
        file, position = self.file(), start.position
        block, block_at = b"", 0
        next_offset = self.base_offset if position == 0 else None
        while position < self.size_bytes:
            if position + HEADER_BYTES > block_at + len(block):
                block, block_at = os.pread(file.fd, _SCAN_BYTES, position), position
                if len(block) < HEADER_BYTES:
                    raise self._damage(position)
            header = parse_header(block, position - block_at)
            if next_offset is None:
                is_due = header.last_offset == start.offset
            else:
                is_due = follows(header, next_offset, self._is_dense)
            if not is_due or header.magic != MAGIC or header.batch_length < HEADER_BYTES - OVERHEAD_BYTES:
                raise self._damage(position)
            yield position, header
            position += header.size_bytes
            next_offset = header.last_offset + 1

    def read(self, position: int, first_offset: int, length: int) -> FileSlice:
        """A slice from the batch at `position`, which `locate` found to start with `first_offset`.

        It ends at the segment's end or before damage. Bytes that this process has neither written nor checked are
        checked now, once: a flipped bit is not served.

        Raises:
            CorruptDataError: The batch at `position` is damaged.
        """
        end = min(position + length, self.size_bytes)
        if position < self._checked[0] or end > self._checked[1]:
            valid_end = self._check(position, first_offset, end)
            if valid_end == position < end:
                raise self._damage(position)
            end = min(end, valid_end)
        return FileSlice(self.file(), position, end - position)

    def mark_checked(self) -> None:
        """Note that the whole segment has passed its checksums."""
        self._checked = (0, self.size_bytes)

    def _check(self, position: int, next_offset: int, end: int) -> int:
        """Check the batches from `position` on until `end` is covered; return where valid bytes stop."""
        at = start = position
        block = memoryview(b"")
        while at < end:
            header = valid_batch_at(block, at - start, self.base_offset)
            if header is None:  # it may continue behind the block
                block, start = self._block_at(at), at
                header = valid_batch_at(block, 0, self.base_offset)
            if header is None or not follows(header, next_offset, self._is_dense):
                break
            at += header.size_bytes
            next_offset = header.last_offset + 1
        low, high = self._checked
        touches = position <= high and low <= at
        self._checked = (min(low, position), max(high, at)) if touches else (position, at)
        return at

    def _block_at(self, position: int) -> memoryview:
        """Read what begins at `position`: the whole batch at least, unless the segment ends before."""
        fd, left_bytes = self.file().fd, self.size_bytes - position
        block = os.pread(fd, min(_CHECK_BYTES, left_bytes), position)
        if len(block) >= HEADER_BYTES and len(block) < parse_header(block).size_bytes <= left_bytes:
            block = os.pread(fd, parse_header(block).size_bytes, position)
        return memoryview(block)

    def _damage(self, position: int) -> CorruptDataError:
        return CorruptDataError(f"damaged batch at byte {position} of {self.path(LOG_SUFFIX)}")

    def file(self) -> LogFile:
        """The .log file, open."""
        path = self.path(LOG_SUFFIX)
        return self._file or self._open_files.get(path, lambda: open_for_read(path))

    def sync(self) -> None:
        """Bring the .log file to the disk.

        Raises:
            PartitionFencedError: The bytes may be lost; a second call would report success, so there must be none.
        """
        try:
            self._disk.fdatasync(self.file())
        except OSError as error:
            raise PartitionFencedError(f"cannot sync {self.path(LOG_SUFFIX)}: {error}") from error

    def forget_files(self) -> None:
        """Drop cached descriptors, before the files are deleted."""
        self._open_files.forget(self.path(LOG_SUFFIX))
        self._file = None
        if self.active_indexes is not None:
            self.active_indexes.offsets.file.forget_file()
            self.active_indexes.times.file.forget_file()
        self.active_indexes = None

    def _add_index_entries(self, last_offset: int, position: int) -> None:
        """A failed index write loses an entry, not a record: the index is derived, the batch is in the log."""
        assert self.active_indexes is not None
        assert self.rule is not None
        try:
            self.active_indexes.offsets.append(last_offset, position)
            self.active_indexes.times.maybe_append(*self.rule.largest)
        except OSError:
            self.has_whole_indexes = False

    def _cut_to(self, size: int) -> None:
        assert self._file is not None
        try:
            self._disk.truncate(self._file, size)
        except OSError as error:
            raise PartitionFencedError(f"cannot cut {self._file.path} back to {size} bytes") from error
