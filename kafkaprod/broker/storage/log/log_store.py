"""The state of one partition's log and its files, without lock, acknowledgement or watermark: those are
`partition_log`'s.

Not thread-safe. A method that fails leaves state and files as they were, but for derived files in its docstring.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from kafkaprod.broker.storage.directory_health import ALWAYS_USABLE, DirectoryHealth
from kafkaprod.broker.storage.errors import PartitionFencedError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.log_files import (
    COMPACTION,
    INDEX_CHECKSUMS,
    LEADER_EPOCHS,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    file_name,
    parse_file_name,
)
from kafkaprod.broker.storage.index.offset_index import OffsetPosition
from kafkaprod.broker.storage.index.transaction_index import AbortedTransaction
from kafkaprod.broker.storage.log.compaction import (
    CleanedSegment,
    CompactionPlan,
    CompactionStoppedError,
    plan_is_due,
)
from kafkaprod.broker.storage.log.group_commit import FlushPolicy
from kafkaprod.broker.storage.log.retention import count_expired
from kafkaprod.broker.storage.log.segment import Segment
from kafkaprod.broker.storage.log.segments import OpenHandles, SegmentList
from kafkaprod.broker.storage.recovery.checkpoints import IndexChecksums, encode_epochs, encode_index_checksums
from kafkaprod.broker.storage.recovery.recovery import (
    DiskImage,
    Recovery,
    apply_recovery,
    finish_swaps,
    make_lost_snapshot,
    recover,
)
from kafkaprod.clock import Clock
from kafkaprod.storage.batch_header import NO_TIMESTAMP, BatchHeader
from kafkaprod.storage.disk import Disk, read_file, replace_file, replace_file_durably
from kafkaprod.structs import TopicPartition


class LogEnvironment(NamedTuple):
    """What all logs of a broker share; disk, health and partitions are those of the log directory.

    Attributes:
        unsynced: The partitions that were appended to since `LogDir.flush_due` looked at them. Whoever appends adds the
            partition behind the append, and whoever syncs takes it out before it looks for what there is to sync.
    """

    disk: Disk
    clock: Clock
    policy: FlushPolicy
    handles: OpenHandles
    health: DirectoryHealth = ALWAYS_USABLE
    unsynced: set[TopicPartition] = set()  # noqa: RUF012  # each log directory has its own


class LogStore:
    """Segments, producer state, leader epochs and bounds of one partition.

    Attributes:
        log_start_offset: The first offset that can be read.
        log_end_offset: The offset the next record gets.
        damage: Set if the log ends before damaged bytes; it must not be written to.
        cleaned_to: Below it compaction left one record of each key; None if the log was never compacted.
    """

    def __init__(self, directory: str, config: LogConfig, environment: LogEnvironment, recovery: Recovery) -> None:
        self.directory = directory
        self.environment = environment
        self.log_start_offset = self.log_end_offset = 0
        self._written_checksums: dict[int, IndexChecksums] = {}
        self._config = config
        self._disk = environment.disk
        self.cleaned_to = _read_cleaned_to(directory)
        self._load(recovery)

    @property
    def config(self) -> LogConfig:
        """The topic's options."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = self.segments.config = config

    def write(self, batch: memoryview, header: BatchHeader) -> None:
        """Append a batch that has its offset and epoch, rolling first if it is time.

        Raises:
            OSError: Nothing was written.
            PartitionFencedError: A part was written and could not be removed.
        """
        active, now_ms = self.segments.active, self.environment.clock.wall_ms()
        if active.should_roll(self._config, len(batch), header.last_offset, header.max_timestamp, now_ms):
            active.sync()
            self.roll(header.base_offset)
        if header.partition_leader_epoch > self.epochs.latest_epoch:
            self.begin_epoch(header.partition_leader_epoch, header.base_offset)
        self.segments.active.append(batch, header)
        self.log_end_offset = header.last_offset + 1

    def roll(self, base_offset: int) -> None:
        """Begin a segment; the old one has been synced.

        Raises:
            OSError: The old segment stays active.
        """
        self.segments.roll(base_offset, self.environment.clock.wall_ms())
        self._write_snapshot(base_offset)

    def roll_now(self) -> None:
        """Begin a segment at the end of the log.

        Raises:
            OSError: The old segment stays active.
            PartitionFencedError: The sync failed.
        """
        self.segments.active.sync()
        self.roll(self.log_end_offset)

    def skip_to(self, offset: int) -> None:
        """Continue at a higher offset, as a log does whose last records compaction has removed.

        Raises:
            OSError: The log ends where it did.
            PartitionFencedError: The sync failed.
        """
        if not self.segments.size_bytes:
            self.restart_at(offset)
        else:
            self.segments.active.sync()
            self.roll(offset)
            self.log_end_offset = offset

    def truncate_to(self, offset: int) -> None:
        """Drop all records at or above `offset`, with the whole batch that holds it.

        Raises:
            OSError: Run recovery again.
        """
        if offset >= self.log_end_offset:
            return
        first_base = self.segments.all[0].base_offset
        if offset < first_base:
            self.restart_at(offset)
            return
        self.segments.close()
        while self.segments.active.base_offset >= offset and self.segments.active.base_offset > first_base:
            self.segments.drop_last()
        # Their names must be gone before the cut is durable, or a crash leaves a hole before them.
        self._disk.sync_dir(self.directory)
        last = self.segments.active
        last.cut_at(offset, self.segments.indexes(last))
        self.segments.forget(last)
        self._reload(last.base_offset, min(self.log_start_offset, offset))

    def restart_at(self, offset: int) -> None:
        """Drop all records; the log continues, empty, at `offset`.

        Raises:
            OSError: Run recovery again.
        """
        self.segments.close()
        for segment in reversed(self.segments.all):
            self.segments.forget(segment)
        for name in sorted(os.listdir(self.directory), reverse=True):  # from the end: a crash leaves a whole log
            if parse_file_name(name) is not None:
                self._disk.unlink(os.path.join(self.directory, name))
        self._reload(offset, offset)

    def delete_old_segments(self, high_watermark: int, now_ms: int | None = None) -> int:
        """Delete what is past retention, now or at another time; return how many segments went.

        Raises:
            OSError: Some may be left.
        """
        every = self.segments.all
        count = count_expired(
            every,
            self._config,
            self.log_start_offset,
            self.log_end_offset,
            high_watermark,
            self.environment.clock.wall_ms() if now_ms is None else now_ms,
            self._age_timestamp,
        )
        if count == len(every):
            self.segments.active.sync()
            self.roll(self.log_end_offset)
        if count:
            start = self.segments.all[count].base_offset
            self._keep_snapshot(start)
            self.segments.drop_first(count)
            self.raise_log_start(start)
        return count

    def plan_compaction(self, stable_offset: int, *, is_forced: bool = False) -> CompactionPlan | None:
        """Return what to compact now, None if nothing is due.

        Args:
            stable_offset: Records at or above it stay as they are: open transactions, not replicated.
            is_forced: Compact whatever is dirty.
        """
        config, now_ms = self._config, self.environment.clock.wall_ms()
        every = self.segments.all
        segments: list[Segment] = []
        for segment, following in pairwise(every):
            is_young = self.segments.largest_timestamp(segment).timestamp > now_ms - config.min_compaction_lag_ms
            if following.base_offset > stable_offset or (config.min_compaction_lag_ms and is_young):
                break
            segments.append(segment)
        if not segments:
            return None
        end_offset = every[len(segments)].base_offset
        dirty_offset = max(self.cleaned_to or 0, segments[0].base_offset)
        dirty = [each for each in every[: len(segments)] if self._end_of(each) > dirty_offset]
        dirty_bytes = sum(segment.size_bytes for segment in dirty)
        clean_bytes = sum(segment.size_bytes for segment in segments) - dirty_bytes
        first = next((header.max_timestamp for each in dirty[:1] for _, header in each.headers(_start(each))), -1)
        if not dirty_bytes or not (is_forced or plan_is_due(clean_bytes, dirty_bytes, first, config, now_ms)):
            return None
        aborted: dict[int, list[AbortedTransaction]] = {}
        for each in every:
            for entry in self.segments.indexes(each).transactions.entries:
                aborted.setdefault(entry.producer_id, []).append(entry)
        last_offsets = {
            producer_id: producer.batches[-1].last_offset
            for producer_id, producer in self.producers.producers.items()
            if producer.batches
        }
        return CompactionPlan(segments, dirty_offset, end_offset, config, aborted, last_offsets, now_ms)

    def note_cleaned(self, offset: int) -> None:
        """Note, durably, up to where the log is compacted. To be called before the first gap, too: gaps are damage
        elsewhere.

        Raises:
            OSError: The old file stays.
        """
        offset = min(offset, self.log_end_offset)  # the log may have been cut meanwhile
        replace_file_durably(self._disk, self._path(COMPACTION), f"0\n{offset}\n".encode())
        self.cleaned_to = offset
        self.segments.has_gaps = True

    def replace_segments(self, group: Sequence[Segment], cleaned: CleanedSegment) -> None:
        """Put a compacted segment in the place of others.

        Raises:
            CompactionStoppedError: They are not in the log any more; nothing was changed.
            PartitionFencedError: The disk failed half-way; the next start completes it.
        """
        every = self.segments.all
        if any(segment not in every for segment in group):
            raise CompactionStoppedError(f"segments of {self.directory} were deleted while they were compacted")
        try:
            self.segments.replace(group, cleaned)
        except OSError as error:
            raise PartitionFencedError(f"cannot exchange compacted segments of {self.directory}: {error}") from error

    def _end_of(self, segment: Segment) -> int:
        following = self.segments.next_base(segment)
        return self.log_end_offset if following is None else following

    def raise_log_start(self, offset: int) -> None:
        """Records below `offset` are gone."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            if self.epochs.truncate_from_start(offset):
                self.write_epochs()

    def write_epochs(self) -> None:
        """Write the leader epochs, durably: after a clean shutdown they are not derived again.

        Raises:
            OSError: The old file stays.
        """
        replace_file_durably(self._disk, self._path(LEADER_EPOCHS), encode_epochs(self.epochs.entries))

    def write_index_checksums(self) -> None:
        """Write the checksums of the closed segments' indexes.

        Raises:
            OSError: The old file stays; indexes it does not cover are rebuilt when used.
        """
        checksums = self.segments.checksums()
        if checksums != self._written_checksums:
            replace_file(self._disk, self._path(INDEX_CHECKSUMS), encode_index_checksums(checksums))
            self._written_checksums = checksums

    def close(self) -> None:
        """Leave the files as a clean shutdown needs them; the data has been synced.

        Raises:
            OSError: The next start has to check the log.
        """
        self.segments.close()
        self._write_snapshot(self.log_end_offset)
        if self.log_end_offset:  # an empty log has none to keep, and 10,000 of them are closed in time
            self.write_epochs()
        self.write_index_checksums()

    def forget_files(self) -> None:
        """Drop all cached descriptors; the log cannot be used any more."""
        self.segments.close()
        for segment in self.segments.all:
            self.segments.forget(segment)

    def _load(self, recovery: Recovery) -> None:
        handles = self.environment.handles
        self.segments = SegmentList(
            self._disk,
            self.directory,
            self._config,
            handles,
            recovery.segments,
            recovery.index_checksums,
            self.cleaned_to is not None,
        )
        self._written_checksums = recovery.index_checksums
        self.producers = recovery.producers
        self.epochs = recovery.epochs
        self.log_start_offset = recovery.log_start_offset
        self.log_end_offset = recovery.log_end_offset
        self.damage = recovery.damage
        if self.cleaned_to is not None and self.cleaned_to > self.log_end_offset:
            self.note_cleaned(self.log_end_offset)  # what comes in the place of records that were cut is dirty
        rule = recovery.segments[-1].rule
        if self.damage is None and rule is not None:
            self.segments.active.activate(self._config, rule, self.environment.clock.wall_ms())

    def _reload(self, recovery_point: int, log_start_offset: int) -> None:
        self._load(_recover(self.directory, self._config, self._disk, False, recovery_point, log_start_offset))

    def begin_epoch(self, epoch: int, offset: int) -> None:
        """Note, durably, that records from `offset` on belong to a leader epoch.

        Raises:
            OSError: Nothing was changed.
        """
        before = self.epochs.entries.copy()
        if not self.epochs.assign(epoch, offset):
            return
        try:
            self.write_epochs()
        except OSError:
            self.epochs.entries[:] = before
            raise

    def _write_snapshot(self, offset: int) -> None:
        replace_file(self._disk, self._path(file_name(offset, SNAPSHOT_SUFFIX)), self.producers.snapshot())

    def _keep_snapshot(self, offset: int) -> None:
        """Make a snapshot durable, and write it again if it is lost: once the segments before it are gone, nothing else
        knows their producers and open transactions.
        """
        path = self._path(file_name(offset, SNAPSHOT_SUFFIX))
        lost = make_lost_snapshot(DiskImage(self.directory), self._config, offset)
        if lost is None:
            self._disk.fdatasync(self._disk.create(path))
        else:
            replace_file_durably(self._disk, path, lost)

    def _age_timestamp(self, segment: Segment) -> int:
        timestamp = self.segments.largest_timestamp(segment).timestamp
        if timestamp != NO_TIMESTAMP:
            return timestamp
        return int(os.stat(segment.path(LOG_SUFFIX)).st_mtime * 1000)

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)


def _start(segment: Segment) -> OffsetPosition:
    return OffsetPosition(segment.base_offset, 0)


def _read_cleaned_to(directory: str) -> int | None:
    path = os.path.join(directory, COMPACTION)
    if not os.path.lexists(path):
        return None
    lines = read_file(path).split()
    return int(lines[1]) if len(lines) == 2 and lines[1].isdigit() else 0  # damaged: all is compacted again


def open_store(
    directory: str,
    config: LogConfig,
    environment: LogEnvironment,
    *,
    is_clean: bool,
    recovery_point: int,
    log_start_offset: int,
) -> LogStore:
    """Recover a partition directory; see `recovery.recover`.

    Raises:
        OSError: The files could not be read or repaired.
    """
    recovery = _recover(directory, config, environment.disk, is_clean, recovery_point, log_start_offset)
    return LogStore(directory, config, environment, recovery)


def _recover(
    directory: str, config: LogConfig, disk: Disk, is_clean: bool, recovery_point: int, log_start_offset: int
) -> Recovery:
    finish_swaps(disk, directory)
    recovery = recover(
        DiskImage(directory),
        config,
        is_clean=is_clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )
    apply_recovery(disk, directory, recovery)
    return recovery
