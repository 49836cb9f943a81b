"""The state of one partition's log and its files, without lock, acknowledgement or watermark: those are
`partition_log`'s.

Not thread-safe. Every method that fails leaves state and files as they were, or says which derived file it lost.
"""

from __future__ import annotations

import os

from kafkaprod.broker.storage.batch_header import NO_TIMESTAMP, BatchHeader
from kafkaprod.broker.storage.checkpoints import encode_epochs, encode_index_checksums
from kafkaprod.broker.storage.disk import Disk, replace_file, replace_file_durably
from kafkaprod.broker.storage.log_config import LogConfig
from kafkaprod.broker.storage.log_files import (
    INDEX_CHECKSUMS,
    LEADER_EPOCHS,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    file_name,
    parse_file_name,
)
from kafkaprod.broker.storage.recovery import DiskImage, Recovery, apply_recovery, recover
from kafkaprod.broker.storage.retention import count_expired
from kafkaprod.broker.storage.segment import Segment
from kafkaprod.broker.storage.segments import OpenHandles, SegmentList


class LogStore:
    """Segments, producer state, leader epochs and bounds of one partition.

    Attributes:
        log_start_offset: the first offset that can be read.
        log_end_offset: the offset the next record gets.
        damage: set if the log ends before damaged bytes; it must not be written to.
    """

    def __init__(
        self, disk: Disk, directory: str, config: LogConfig, handles: OpenHandles, recovery: Recovery, now_ms: int
    ) -> None:
        self.directory = directory
        self._disk = disk
        self._config = config
        self._handles = handles
        self.log_start_offset = self.log_end_offset = 0
        self._load(recovery, now_ms)

    @property
    def config(self) -> LogConfig:
        """The topic's options."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = self.segments.config = config

    def write(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        """Append a batch that has its offset and epoch, rolling first if it is time.

        Raises:
            OSError: nothing was written.
            PartitionFencedError: a part was written and could not be removed.
        """
        active = self.segments.active
        if active.should_roll(self._config, len(batch), header.last_offset, header.max_timestamp, now_ms):
            active.sync()
            self.roll(header.base_offset, now_ms)
        if header.partition_leader_epoch > self.epochs.latest_epoch:
            self._begin_epoch(header.partition_leader_epoch, header.base_offset)
        self.segments.active.append(batch, header)
        self.log_end_offset = header.last_offset + 1

    def roll(self, base_offset: int, now_ms: int) -> None:
        """Begin a segment; the old one has been synced.

        Raises:
            OSError: the old segment stays active.
        """
        self.segments.roll(base_offset, now_ms)
        self._write_snapshot(base_offset)

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop all records at or above `offset`, with the whole batch that holds it.

        Raises:
            OSError: run recovery again.
        """
        if offset >= self.log_end_offset:
            return
        if offset <= self.segments.all[0].base_offset:
            self.restart_at(offset, now_ms)
            return
        self.segments.close()
        while self.segments.active.base_offset >= offset:
            self.segments.drop_last()
        last = self.segments.active
        last.cut_at(offset, self.segments.indexes(last))
        self.segments.forget(last)
        self._reload(last.base_offset, min(self.log_start_offset, offset), now_ms)

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Drop all records; the log goes on, empty, at `offset`.

        Raises:
            OSError: run recovery again.
        """
        self.segments.close()
        for segment in reversed(self.segments.all):
            self.segments.forget(segment)
        for name in os.listdir(self.directory):
            if parse_file_name(name) is not None:
                self._disk.unlink(os.path.join(self.directory, name))
        self._reload(offset, offset, now_ms)

    def delete_old_segments(self, high_watermark: int, now_ms: int) -> int:
        """Delete what is past retention; return how many segments went.

        Raises:
            OSError: some may be left.
        """
        every = self.segments.all
        count = count_expired(
            every,
            self._config,
            self.log_start_offset,
            self.log_end_offset,
            high_watermark,
            now_ms,
            self._age_timestamp,
        )
        if count == len(every):
            self.segments.active.sync()
            self.roll(self.log_end_offset, now_ms)
        self.segments.drop_first(count)
        if count:
            self.raise_log_start(self.segments.all[0].base_offset)
        return count

    def raise_log_start(self, offset: int) -> None:
        """Records below `offset` are gone."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            if self.epochs.truncate_from_start(offset):
                self.write_epochs()

    def write_epochs(self) -> None:
        """Write the leader epochs, durably: they are checked against the log, not derived, after a clean shutdown.

        Raises:
            OSError: the old file stays.
        """
        replace_file_durably(self._disk, self._path(LEADER_EPOCHS), encode_epochs(self.epochs.entries))

    def write_index_checksums(self) -> None:
        """Write the checksums of the closed segments' indexes.

        Raises:
            OSError: the old file stays; indexes it does not cover are rebuilt when used.
        """
        replace_file(self._disk, self._path(INDEX_CHECKSUMS), encode_index_checksums(self.segments.checksums()))

    def close(self) -> None:
        """Leave the files as a clean shutdown needs them; the data has been synced.

        Raises:
            OSError: the next start has to check the log.
        """
        self.segments.close()
        self._write_snapshot(self.log_end_offset)
        self.write_epochs()
        self.write_index_checksums()

    def forget_files(self) -> None:
        """Drop all cached descriptors; the log cannot be used any more."""
        self.segments.close()
        for segment in self.segments.all:
            self.segments.forget(segment)

    def _load(self, recovery: Recovery, now_ms: int) -> None:
        self.segments = SegmentList(
            self._disk, self.directory, self._config, self._handles, recovery.segments, recovery.index_checksums
        )
        self.producers = recovery.producers
        self.epochs = recovery.epochs
        self.log_start_offset = recovery.log_start_offset
        self.log_end_offset = recovery.log_end_offset
        self.damage = recovery.damage
        rule = recovery.segments[-1].rule
        if self.damage is None and rule is not None:
            self.segments.active.activate(self._config, rule, now_ms)

    def _reload(self, recovery_point: int, log_start_offset: int, now_ms: int) -> None:
        recovery = recover(
            DiskImage(self.directory),
            self._config,
            is_clean=False,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )
        apply_recovery(self._disk, self.directory, recovery)
        self._load(recovery, now_ms)

    def _begin_epoch(self, epoch: int, offset: int) -> None:
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

    def _age_timestamp(self, segment: Segment) -> int:
        timestamp = self.segments.largest_timestamp(segment).timestamp
        if timestamp != NO_TIMESTAMP:
            return timestamp
        return int(os.stat(segment.path(LOG_SUFFIX)).st_mtime * 1000)

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)
