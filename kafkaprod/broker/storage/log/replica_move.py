"""One partition moves to another log directory of its broker: a copy beside it grows until it is whole, and takes its
place.

    <topic>-<partition>.<uuid>-future     in the new directory, made at once: a restart continues with it
    copy                                  reads and appends in steps, while clients write and read the old one; where a
                                          follower cuts the old one, the copy is cut, too
    may complete                          in a cluster the metadata names the new directory first
    flush                                 the copy is on the disk but for what comes meanwhile
    hold: copy, finish_copy, take_in      appends and reads wait; the rename to <topic>-<partition> is the change
    give_away                             the old directory becomes "...-delete"

A crash before the rename leaves the old one as it was. A crash between the two renames leaves two that are equal, of
which the start keeps the new one (`log_dirs`). Source: Kafka, ReplicaAlterLogDirsThread and LogManager.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable

from kafkaprod.broker.storage.errors import LogError, OffsetOutOfRangeError
from kafkaprod.broker.storage.format.log_files import PARTITION_METADATA
from kafkaprod.broker.storage.log.directory_files import DELETE_SUFFIX, future_name, renamed
from kafkaprod.broker.storage.log.log_dir import LogDir
from kafkaprod.broker.storage.log.log_store import open_store
from kafkaprod.broker.storage.log.partition_log import PartitionLog, open_partition_log
from kafkaprod.broker.storage.recovery.checkpoints import encode_partition_metadata
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.storage.disk import replace_file_durably

logger = logging.getLogger(__name__)

_LAST_READS = 16  # of a step each: so much may be copied while clients wait


class ReplicaMove:
    """See the module docstring. Thread-safe: one lock guards its steps.

    Attributes:
        log: The partition's log.
        source: Where it is.
        target: Where it goes.
        directory: The directory of the copy.
        is_over: The partition is in the target, or the move was given up.
    """

    def __init__(self, log: PartitionLog, source: LogDir, target: LogDir, directory: str | None = None) -> None:
        """Begin, or continue, a move.

        Args:
            log: The partition's log.
            source: Where it is.
            target: Where it goes.
            directory: The directory of a copy that was begun before the log was opened; None for a new one.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the directory of the copy could not be made.
        """
        self.log = log
        self.source = source
        self.target = target
        self.is_over = False
        # A power cut may have taken records from the log that the copy has: what comes in their place is not the same.
        self._trusted_offset = log.log_end_offset
        self._shortenings = log.shortenings
        self._future: PartitionLog | None = None
        self._lock = threading.Lock()
        self.directory = self._make_directory() if directory is None else directory

    @property
    def lag(self) -> int:
        """How many offsets the copy is behind."""
        future = self._future
        return self.log.log_end_offset - (self.log.log_start_offset if future is None else future.log_end_offset)

    @property
    def size_bytes(self) -> int:
        """Bytes of records in the copy."""
        return 0 if self._future is None else self._future.size_bytes

    def step(self, max_bytes: int, may_complete: Callable[[], bool] = lambda: True) -> int:
        """Copy some records; return how many bytes. When none are left, the copy takes the partition's place.

        Args:
            max_bytes: Most bytes to read at once.
            may_complete: Whether it may; called when it could, and again with each step until then.

        Raises:
            LogError: A disk refused, or the log is damaged: the move cannot continue.
            OSError: The same.
        """
        with self._lock:
            if self.is_over:
                return 0
            future = self._open()
            self._follow_shortenings(future)
            copied = self._copy(future, max_bytes)
            if (not self.lag or self.log.size_bytes - future.size_bytes <= max_bytes) and may_complete():
                self._try_complete(future, max_bytes)
            return copied

    def cancel(self) -> None:
        """Give the move up, and have the copy deleted. Does nothing if it is over.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the copy could not be renamed.
        """
        with self._lock:
            if not self.is_over:
                self.is_over = True
                self._drop_copy()

    def close(self) -> None:
        """Close the copy; the next start continues with it."""
        with self._lock:
            self.is_over = True
            if self._future is not None:
                self._future.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _topic_id(self) -> uuid.UUID:
        topic = self.log.topic_partition.topic
        topic_id = self.source.topic_id(topic)
        if topic_id is None:
            raise LogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} is not in {self.source.path}")
        return topic_id

    def _make_directory(self) -> str:
        target, disk = self.target, self.target.environment.disk
        directory = os.path.join(target.path, future_name(self.log.topic_partition))
        try:
            disk.mkdir(directory)
            metadata = encode_partition_metadata(self._topic_id())
            replace_file_durably(disk, os.path.join(directory, PARTITION_METADATA), metadata)
            disk.sync_dir(target.path)
        except OSError as error:
            raise LogError.of_disk(f"cannot make {directory}", error) from error
        return directory

    def _drop_copy(self) -> None:
        if self._future is not None:
            self._future.abandon()
            self._future = None
        path = os.path.join(self.target.path, renamed(self.log.topic_partition, DELETE_SUFFIX))
        try:
            self.target.environment.disk.rename(self.directory, path)
        except OSError as error:
            raise LogError.of_disk(f"cannot rename {self.directory}", error) from error

    def _open(self) -> PartitionLog:
        if self._future is None:
            self._future = self._open_copy()
            if self._future.damage is not None:
                logger.warning("the copy in %r is damaged: it begins again", self.directory)
                self._drop_copy()
                self.directory = self._make_directory()
                self._future = self._open_copy()
            if self._future.log_end_offset > self._trusted_offset:
                self._future.truncate_to(self._trusted_offset)
            _cut_where_logs_part(self._future, self.log)
            self._future.note_gaps(self.log)
        return self._future

    def _open_copy(self) -> PartitionLog:
        log = self.log
        environment = self.target.environment
        return open_partition_log(log.topic_partition, self.directory, log.config, environment, is_clean=False)

    def _follow_shortenings(self, future: PartitionLog) -> None:
        shortenings = self.log.shortenings
        if shortenings != self._shortenings:
            self._shortenings = shortenings
            _cut_where_logs_part(future, self.log)

    def _copy(self, future: PartitionLog, max_bytes: int) -> int:
        log = self.log
        end, start = log.log_end_offset, log.log_start_offset
        position = max(future.log_end_offset, start)
        try:
            found = log.read(position, max_bytes, end)
        except OffsetOutOfRangeError:  # retention was faster
            return 0
        if found.records is None:
            if future.log_end_offset < end:
                future.skip_to(end)
            return 0
        if future.log_end_offset < start and future.log_end_offset < found.first_offset:
            future.restart_at(found.first_offset)
        records = found.records.read()
        future.append_replicated(records)
        return len(records)

    def _try_complete(self, future: PartitionLog, max_bytes: int) -> None:
        """Put the copy in the partition's place, unless a compaction runs or clients are faster: then a later step
        does.
        """
        log = self.log
        if not log.compaction.acquire(blocking=False):
            return
        try:
            future.flush()
            with log.hold():
                self._follow_shortenings(future)
                for _ in range(_LAST_READS):
                    if future.log_end_offset >= log.log_end_offset:
                        future.finish_copy(log)
                        self._take_place()
                        return
                    self._copy(future, max_bytes)
        finally:
            log.compaction.release()

    def _take_place(self) -> None:
        log, old = self.log, self.log.directory
        self.target.take_in(log, self._topic_id(), self.directory, self._put_in_place)
        self.is_over = True
        try:
            self.source.give_away(log.topic_partition, old)
        except LogError as error:
            logger.error("%r is left over from a move, and will be set aside by the next start: %s", old, error)
        logger.info("%r moved to %r", old, log.directory)

    def _put_in_place(self, directory: str) -> None:
        log = self.log
        end, start = log.log_end_offset, log.log_start_offset
        try:
            store = open_store(
                directory,
                log.config,
                self.target.environment,
                is_clean=True,
                recovery_point=end,
                log_start_offset=start,
            )
        except OSError as error:
            raise LogError.of_disk(f"cannot open {directory}", error) from error
        if (store.log_start_offset, store.log_end_offset) != (start, end):
            raise LogError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{directory} has offsets {store.log_start_offset}..{store.log_end_offset}, not {start}..{end}",
            )
        log.take_store(store)


def _cut_where_logs_part(copy: PartitionLog, log: PartitionLog) -> None:
    """Cut a copy where the log has, or had meanwhile, other records: those of another leader epoch (KIP-101)."""
    while copy.log_end_offset > copy.log_start_offset:
        last_epoch = copy.epoch_for(copy.log_end_offset - 1)
        epoch, end = log.end_offset_for_epoch(last_epoch)
        if last_epoch < 0 or (epoch == last_epoch and end >= copy.log_end_offset):
            return
        if epoch < last_epoch:
            end = min(end, copy.end_offset_for_epoch(epoch)[1])
        copy.truncate_to(max(end, copy.log_start_offset))
    if copy.log_end_offset > log.log_start_offset:
        copy.restart_at(log.log_start_offset)
