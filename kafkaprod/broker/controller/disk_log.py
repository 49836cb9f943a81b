"""The metadata log on disk: one partition in the format of all logs, `__cluster_metadata-0`, as Kafka's KRaft log.

`kafka-dump-log --cluster-metadata-decoder` reads it. A cluster's controller has a data directory for it; a broker alone
keeps it in its own.

When the log has grown by 1 MiB, and by four times the last snapshot, a snapshot is written beside it (`snapshot_file`),
and the log is cut at the end of the one before. A start reads the newest snapshot and the log from its end on. If that
snapshot is damaged, the one before and the log from its end on say the same.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kafkaprod.broker.controller.snapshot_file import SnapshotFile, find_snapshots, read_snapshot, write_snapshot
from kafkaprod.broker.metadata.image import ClusterImage
from kafkaprod.broker.metadata.image_records import records_of
from kafkaprod.broker.metadata.log import MetadataBatch, MetadataSnapshot
from kafkaprod.broker.metadata.records import decode, encode
from kafkaprod.broker.storage.errors import LogError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.records import iterate_records
from kafkaprod.broker.storage.log.directory_files import directory_name
from kafkaprod.broker.storage.log.group_commit import FlushPolicy
from kafkaprod.broker.storage.log.log_dir import open_log_dir
from kafkaprod.broker.storage.log.log_store import LogEnvironment
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.log.segments import OpenHandles
from kafkaprod.clock import Clock
from kafkaprod.errors import ConfigError, CorruptDataError
from kafkaprod.storage.batch_header import HEADER_BYTES, parse_header
from kafkaprod.storage.disk import Disk
from kafkaprod.storage.internal_records import build_batch
from kafkaprod.structs import TopicPartition

METADATA_PARTITION: Final = TopicPartition("__cluster_metadata", 0)
METADATA_TOPIC_ID: Final = uuid.UUID(int=1)
METADATA_CONFIG: Final = LogConfig(retention_ms=-1, retention_bytes=-1)
CONTROLLER_NODE_ID: Final = 0

DEFAULT_SNAPSHOT_BYTES: Final = 1024 * 1024
_LEAST_GROWTH = 4  # times the last snapshot: what is read at a start stays in proportion to what there is
_READ_BYTES = 1024 * 1024

logger = logging.getLogger(__name__)


def check_metadata_is_first(paths: Sequence[str]) -> None:
    """Refuse log directories in another order than before: the first one has the metadata log.

    Raises:
        ConfigError: Another directory has it, and the first one has not.
    """
    name = directory_name(METADATA_PARTITION)
    having = [path for path in paths if os.path.isdir(os.path.join(path, name))]
    if having and paths[0] not in having:
        raise ConfigError(
            f"{paths[0]} has no metadata, but the log directory {having[0]} has: the one with {name} must be data_dir"
        )


class PartitionOfMetadata:
    """See the module docstring.

    Attributes:
        snapshot: What the log had before its first batch, None for a whole log; dropped by the owner after it
            has been read.
    """

    def __init__(
        self, log: PartitionLog, clock: Clock, disk: Disk, snapshot_bytes: int = DEFAULT_SNAPSHOT_BYTES
    ) -> None:
        """Take an open log, and the newest snapshot beside it that can be read and that the log continues.

        Args:
            log: The log.
            clock: Gives the times in it.
            disk: Writes the snapshots.
            snapshot_bytes: What the log grows by before the next snapshot, at least.

        Raises:
            CorruptDataError: No snapshot of what the log has no more can be read.
            LogError, OSError: The disk refused.
        """
        self._clock = clock
        self._disk = disk
        self._log = log
        self._files: list[SnapshotFile] = []
        self._least_bytes = snapshot_bytes
        self._last_bytes = self._bytes_since = 0
        self._writing: threading.Thread | None = None
        self.snapshot = None if self.is_of_kafka else self._load_snapshot()
        self._start_offset = 0 if self.snapshot is None else self.snapshot.end_offset

    @property
    def is_of_kafka(self) -> bool:
        """Whether it is the log of Apache Kafka's own controllers: those begin with a control batch of the quorum."""
        log = self._log
        if log.log_end_offset == log.log_start_offset:
            return False
        first = log.read(log.log_start_offset, 1, log.log_end_offset).records
        return first is None or parse_header(memoryview(first.read())).is_control

    def batches(self) -> Iterator[MetadataBatch]:
        """Read the log from the end of the snapshot on.

        Raises:
            CorruptDataError: A record is not known.
            LogError: CORRUPT_MESSAGE, the log is damaged.
        """
        log, offset = self._log, self._start_offset
        while offset < log.log_end_offset:
            records = log.read(offset, _READ_BYTES, log.log_end_offset).records
            if records is None:
                return
            view = memoryview(records.read())
            self._bytes_since += len(view)
            while len(view) >= HEADER_BYTES:
                header = parse_header(view)
                if len(view) < header.size_bytes:
                    break
                values = [record.value or b"" for record in iterate_records(view[: header.size_bytes])]
                yield MetadataBatch(header.base_offset, header.partition_leader_epoch, tuple(map(decode, values)))
                offset = header.last_offset + 1
                view = view[header.size_bytes :]

    def append(self, batch: MetadataBatch) -> list[bytes]:
        """Write a batch, and sync it if the flush policy says so; return its records, encoded.

        Raises:
            CorruptDataError: It does not follow the log's end.
            LogError: The disk refused.
        """
        if batch.base_offset != self._log.log_end_offset:
            raise CorruptDataError(f"batch at {batch.base_offset} does not follow the end {self._log.log_end_offset}")
        values = [encode(record) for record in batch.records]
        records = build_batch([(None, value) for value in values], self._clock.wall_ms())
        self._log.append_internal(records, batch.epoch)
        self._bytes_since += len(records)
        self._log.commit(self._log.log_end_offset)
        return values

    def sync(self) -> None:
        """Bring all of it to the disk, whatever the flush policy.

        Raises:
            LogError: The disk refused; the log takes no more batches.
        """
        self._log.flush()

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def maybe_snapshot(
        self, image: ClusterImage, epoch: int, on_written: Callable[[int], None] = lambda _: None
    ) -> None:
        """Have a snapshot written if the log has grown enough since the last one; another thread writes it.

        Args:
            image: What all of the log adds up to.
            epoch: The epoch of its last record.
            on_written: Called by that thread with the end offset, when the snapshot is on the disk.
        """
        if self._bytes_since < max(self._least_bytes, _LEAST_GROWTH * self._last_bytes):
            return
        if self._writing is not None and self._writing.is_alive():
            return
        self._bytes_since = 0
        try:
            self._log.roll()  # what is before it can be deleted as a whole
        except LogError as error:
            logger.error("no snapshot of the metadata is taken: %s", str(error))
            return
        writing = threading.Thread(
            target=self._write, args=(image.copy(), epoch, on_written), name="kafkaprod-broker-snapshot", daemon=True
        )
        try:
            writing.start()
        except RuntimeError as error:  # the system gives no more threads: the log grows until it does
            logger.error("no snapshot of the metadata is taken: %s", str(error))
            return
        self._writing = writing

    def await_snapshot(self) -> None:
        """Wait for the snapshot that is being written; before the log is closed."""
        if self._writing is not None:
            self._writing.join()

    def _write(self, image: ClusterImage, epoch: int, on_written: Callable[[int], None]) -> None:
        """Write a snapshot, then cut the log at the end of the one before: it serves if the new one is damaged."""
        snapshot = MetadataSnapshot(image.end_offset, epoch, tuple(records_of(image)))
        try:
            self._log.flush()
            written = write_snapshot(self._disk, self._log.directory, snapshot, self._clock.wall_ms())
            self._last_bytes = os.path.getsize(written.path)
            older, self._files = self._files, [written, *self._files[:1]]
            if older:
                self._log.delete_records(older[0].end_offset)
                self._log.delete_old_segments()
            for file in older[1:]:
                self._disk.unlink(file.path)
        except (LogError, OSError) as error:
            logger.error("the log of the metadata is not shortened: %s", str(error))
        else:
            on_written(snapshot.end_offset)

    def _load_snapshot(self) -> MetadataSnapshot | None:
        log, damage = self._log, ""
        for file in find_snapshots(self._disk, log.directory):
            try:
                found = read_snapshot(file)
            except CorruptDataError as error:
                logger.error("%s: an older one, or the log, is used if it reaches so far back", str(error))
                damage = damage or f": {error}"
                continue
            if found.end_offset < log.log_start_offset:
                break
            self._files.append(file)
            if len(self._files) == 1:
                newest = found
        if self._files:
            self._last_bytes = os.path.getsize(self._files[0].path)
            if newest.end_offset > log.log_end_offset:
                log.restart_at(newest.end_offset)
            return newest
        if log.log_start_offset:
            raise CorruptDataError(
                f"the metadata log in {log.directory} begins at offset {log.log_start_offset}, and there is "
                f"no snapshot of what was before{damage}. Restore the directory from a copy"
            )
        return None


class DiskMetadataLog(PartitionOfMetadata):
    """The metadata log of a cluster's controller, in a data directory of its own."""

    def __init__(
        self,
        data_dir: str,
        cluster_id: str,
        policy: FlushPolicy,
        disk: Disk,
        clock: Clock,
        snapshot_bytes: int = DEFAULT_SNAPSHOT_BYTES,
    ) -> None:
        """Open the log, or make it.

        Args:
            data_dir: Its directory.
            cluster_id: Must match the directory's.
            policy: When appended batches are synced.
            disk: Writes it.
            clock: Gives the times in it.
            snapshot_bytes: As of `PartitionOfMetadata`.

        Raises:
            DirectoryLockedError, ConfigError, OSError: As `open_log_dir`.
            CorruptDataError: As `PartitionOfMetadata`.
        """
        environment = LogEnvironment(disk, clock, policy, OpenHandles())
        self._log_dir = open_log_dir(
            data_dir, environment, node_id=CONTROLLER_NODE_ID, cluster_id=cluster_id, defaults=METADATA_CONFIG
        )
        super().__init__(self._log_dir.create(METADATA_PARTITION, METADATA_TOPIC_ID), clock, disk, snapshot_bytes)

    def close(self) -> None:
        """Sync and close the log."""
        self.await_snapshot()
        self._log_dir.close()
