"""All log directories of a broker: `data_dir`, the first one, and those of the option `log_dirs`.

A new partition goes where the fewest are. The first directory has the logs that are opened before all others (the
metadata's), and its failures are the broker's, as if it were alone. Any other that cannot be opened, or fails later, is
offline: its partitions answer KAFKA_STORAGE_ERROR, the others continue. Partitions move between directories
(`replica_move`), one after the other.

Thread-safe: each directory has a lock, and so have the moves. Source: Kafka core, LogManager.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import uuid
from collections.abc import Callable, Mapping, Sequence

from kafkaprod.broker.storage.errors import LogDirectoryFailedError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.directory_files import MAX_NAME_BYTES, BrokerIdentity, future_name
from kafkaprod.broker.storage.log.log_dir import LogDir
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.log.replica_move import ReplicaMove
from kafkaprod.broker.storage.log.replica_moves import ReplicaMoves
from kafkaprod.broker.storage.log.settling import settle
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.structs import TopicPartition

logger = logging.getLogger(__name__)

_RESERVED_DESCRIPTORS = 2_000  # of connections, indexes and older segments
_MAX_WISHES = 10_000


class LogDirs:
    """See the module docstring. Make one with `opening.open_log_dirs`."""

    def __init__(self, directories: Sequence[LogDir], unopened: Sequence[str] = ()) -> None:
        """Take open directories.

        Args:
            directories: The first one is `data_dir`.
            unopened: The paths of those that could not be opened.
        """
        self._directories = tuple(directories)
        self._unopened = tuple(unopened)
        self._moves = ReplicaMoves()
        self._wishes: dict[TopicPartition, LogDir] = {}
        self._left_copies: set[TopicPartition] = set()  # of partitions that are in no directory that could be opened

    # -- directories ---------------------------------------------------------------------------------------------------

    @property
    def first(self) -> LogDir:
        """The directory with the metadata."""
        return self._directories[0]

    @property
    def identity(self) -> BrokerIdentity:
        """The identity of the broker that owns the directories."""
        return self.first.identity

    @property
    def paths(self) -> list[str]:
        """All directories, the first one first."""
        return [*(directory.path for directory in self._directories), *self._unopened]

    @property
    def online(self) -> list[LogDir]:
        """The directories that can be used."""
        return [directory for directory in self._directories if directory.environment.health.failure is None]

    @property
    def offline_paths(self) -> list[str]:
        """The directories that cannot be used."""
        online = {directory.path for directory in self.online}
        return [path for path in self.paths if path not in online]

    @property
    def online_ids(self) -> tuple[uuid.UUID, ...]:
        """The ids of the directories that can be used."""
        return tuple(directory.directory_id for directory in self.online)

    @property
    def failed_ids(self) -> tuple[uuid.UUID, ...]:
        """The ids of the directories that were opened, and can be used no more."""
        return tuple(each.directory_id for each in self._directories[1:] if each.environment.health.failure is not None)

    def fail(self, path: str) -> None:
        """Let a directory, other than the first, fail as if its disk had; for tests."""
        for directory in self._directories[1:]:
            if directory.path == os.path.realpath(path):
                directory.environment.health.note(OSError(errno.EIO, "the disk has failed, as a test wanted", path))

    # -- partitions ----------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> dict[TopicPartition, PartitionLog]:
        """All logs, also those of directories that have failed; a copy."""
        return {key: log for directory in self._directories for key, log in directory.partitions.items()}

    @property
    def topic_ids(self) -> dict[str, uuid.UUID]:
        """The id of each topic; a copy."""
        return {topic: topic_id for directory in self._directories for topic, topic_id in directory.topic_ids.items()}

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The id of a topic, None if it has no partition here."""
        for directory in self._directories:
            known = directory.topic_id(topic)
            if known is not None:
                return known
        return None

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, None if it is not here."""
        directory = self._directory_of(topic_partition)
        return None if directory is None else directory.get(topic_partition)

    def directory_id_of(self, topic_partition: TopicPartition) -> uuid.UUID:
        """The id of the directory that a partition is in; the first one's if it is not here."""
        return (self._directory_of(topic_partition) or self.first).directory_id

    def may_be_unopened(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is in no open directory, but may be in one that could not be opened."""
        return bool(self._unopened) and self._directory_of(topic_partition) is None

    def saved_high_watermark(self, topic_partition: TopicPartition) -> int:
        return (self._directory_of(topic_partition) or self.first).saved_high_watermark(topic_partition)

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        config: LogConfig | None = None,
        *,
        is_id_saved: bool = False,
        is_internal: bool = False,
    ) -> PartitionLog:
        """Make an empty partition; one that exists is returned as it is. See `LogDir.create`.

        Args:
            topic_partition: The partition.
            topic_id: The id of its topic.
            config: Options; None for the defaults.
            is_id_saved: As of `LogDir.create`.
            is_internal: It belongs to the first directory: the broker cannot do without it.

        Raises:
            CorruptDataError: The topic exists with another id.
            LogError: KAFKA_STORAGE_ERROR, the directory could not be made.
        """
        directory = self._directory_of(topic_partition)
        if directory is None:
            directory = self.first if is_internal or len(self._directories) == 1 else self._choose(topic_partition)
        log = directory.create(topic_partition, topic_id, config, is_id_saved=is_id_saved)
        self._wishes.pop(topic_partition, None)
        return log

    def create_replica(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        config: LogConfig,
        directory_id: uuid.UUID,
        *,
        is_old: bool = False,
    ) -> PartitionLog:
        """Make an empty replica in the directory that the metadata names; one that exists is returned as it is.

        It moves at once where a client has wished for another directory (`wish`).

        Args:
            topic_partition: The partition.
            topic_id: The id of its topic.
            config: Options.
            directory_id: The id of the directory; where the broker has no such directory, `create` chooses.
            is_old: The replica had a log before. The metadata may name another directory than the one that has it: a
                move was given up just before the process ended.

        Raises:
            CorruptDataError: The topic exists with another id.
            LogDirectoryFailedError: The replica is in a directory that is offline, or may be.
            LogError: KAFKA_STORAGE_ERROR, the directory could not be made.
        """
        log = self.get(topic_partition)
        if log is not None and not log.is_offline:
            return log
        self._forget_former(topic_partition, topic_id)
        directory = next((each for each in self.online if each.directory_id == directory_id), None)
        if self.offline_paths and (directory is None or is_old or topic_partition in self._left_copies):
            raise LogDirectoryFailedError(f"{topic_partition} may be in a log directory that is offline")
        wish = self._wishes.get(topic_partition)
        if directory is None or wish is None or wish is directory or self.offline_paths:
            return (directory or self).create(topic_partition, topic_id, config)
        log = directory.create(topic_partition, topic_id, config)
        self._moves.begin(ReplicaMove(log, directory, wish))
        return log

    def sync(self) -> None:
        """Make the partitions that were created durable.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the disk refused.
        """
        for directory in self.online:
            directory.sync()

    def partition_count(self, topic: str) -> int:
        """How many partitions of a topic there are."""
        return sum(directory.partition_count(topic) for directory in self._directories)

    def partition_room(self) -> int:
        """How many more partitions there can be: each keeps a file open, and clients need descriptors, too."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        reserved = min(_RESERVED_DESCRIPTORS, limit // 2)
        return max(limit - reserved - sum(directory.log_count for directory in self._directories), 0)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Delete a partition, and its copy if it moves. See `LogDir.delete`.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, a rename failed.
        """
        self._moves.cancel(topic_partition)  # first: a copy alone must not be left
        for directory in self._directories:
            directory.delete(topic_partition)

    def set_aside(self, topic_partition: TopicPartition) -> None:
        for directory in self._directories:
            directory.set_aside(topic_partition)

    # -- from time to time ---------------------------------------------------------------------------------------------

    def flush_due(self) -> None:
        for directory in self.online:
            directory.flush_due()

    def apply_retention(self) -> int:
        return sum(directory.apply_retention() for directory in self.online)

    def compact(self, should_stop: Callable[[], bool]) -> int:
        """See `LogDir.compact`; partitions that move are left out."""
        return sum(directory.compact(should_stop, self._moves.keys) for directory in self.online)

    def checkpoint(self) -> None:
        for directory in self.online:
            directory.checkpoint()

    def purge_deleted(self) -> None:
        for directory in self.online:
            directory.purge_deleted()

    def close(self) -> bool:
        """Close all logs and give the directories up; return whether the shutdown was clean."""
        self._moves.close()
        are_clean = [directory.close() for directory in self._directories]
        return all(are_clean) and not self.offline_paths

    # -- moves ---------------------------------------------------------------------------------------------------------

    @property
    def moves(self) -> ReplicaMoves:
        """The moves that are not over."""
        return self._moves

    def wish(self, topic_partition: TopicPartition, path: str) -> ErrorCode:
        """Remember where a partition shall be made that is not here yet; until the broker ends.

        Returns:
            LOG_DIR_NOT_FOUND, or KAFKA_STORAGE_ERROR for a directory that is offline; else NONE.
        """
        directory, error = self._find(path)
        if directory is not None and len(self._wishes) < _MAX_WISHES:
            self._wishes[topic_partition] = directory
        return error

    def move(self, log: PartitionLog, path: str) -> ErrorCode:
        """Have a partition moved to another directory; a move to elsewhere ends.

        Returns:
            LOG_DIR_NOT_FOUND, the broker has no such directory; KAFKA_STORAGE_ERROR, it is offline, or any other is, or
            it has no room; INVALID_TOPIC_EXCEPTION, the name of the copy's directory would be too long.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the disk refused.
        """
        key = log.topic_partition
        if len(future_name(key)) > MAX_NAME_BYTES:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        target, error = self._find(path)
        if target is None:
            return error
        source = self._directory_of(key)
        if source is None or log.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        present = self._moves.get(key)
        if present is not None and present.target is target:
            return ErrorCode.NONE
        self._moves.cancel(key)
        if source is target:
            return ErrorCode.NONE
        if self.offline_paths:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not _has_room(target.path, log.size_bytes):
            logger.warning("%s cannot move to %r: there is no room for %d bytes", key, path, log.size_bytes)
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._moves.begin(ReplicaMove(log, source, target))
        return ErrorCode.NONE

    def step(self, max_bytes: int) -> int:
        return self._moves.step(max_bytes)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _directory_of(self, topic_partition: TopicPartition) -> LogDir | None:
        return next((each for each in self._directories if each.get(topic_partition) is not None), None)

    def _forget_former(self, topic_partition: TopicPartition, topic_id: uuid.UUID) -> None:
        """Take an offline log of a deleted topic of the name out of the table; it goes when its directory is back.

        Raises:
            LogDirectoryFailedError: It is of this topic.
        """
        directory = self._directory_of(topic_partition)
        if directory is None:
            return
        if directory.topic_id(topic_partition.topic) == topic_id:
            raise LogDirectoryFailedError(f"the log directory of {topic_partition} is offline")
        directory.forget(topic_partition)

    def _choose(self, topic_partition: TopicPartition) -> LogDir:
        wish = self._wishes.get(topic_partition)
        online = self.online
        return wish if wish in online else min(online, key=lambda each: each.log_count)

    def _find(self, path: str) -> tuple[LogDir | None, ErrorCode]:
        if path in self.offline_paths:
            return None, ErrorCode.KAFKA_STORAGE_ERROR
        found = next((directory for directory in self._directories if directory.path == path), None)
        return found, ErrorCode.LOG_DIR_NOT_FOUND if found is None else ErrorCode.NONE

    def settle(self, ids: Mapping[str, uuid.UUID], reserved: Sequence[TopicPartition]) -> None:
        """At the start: keep one of each partition and topic id, and continue with what was moving.

        Args:
            ids: Ids of topics that are known.
            reserved: Partitions that were opened before the others, in the first directory.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, a directory could not be renamed.
        """
        moves = self._moves if len(self.paths) > 1 else None
        self._left_copies = settle(self._directories, moves, ids, reserved)


def _has_room(path: str, size_bytes: int) -> bool:
    try:
        volume = os.statvfs(path)
    except OSError:
        return False
    return volume.f_bavail * volume.f_frsize > size_bytes
