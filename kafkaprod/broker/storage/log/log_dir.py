"""One broker's data directory: who owns it, which partitions are in it, what survives a restart.

    meta.properties  .lock  .kafka_cleanshutdown  recovery-point-offset-checkpoint  log-start-offset-checkpoint
    replication-offset-checkpoint  <topic>-<partition>/  <topic>-<partition>.<uuid>-delete/
    <topic>-<partition>.<uuid>-future/   the copy of a partition that moves here from another directory (`replica_move`)
Thread-safe: one lock guards the table of partitions; the logs have their own. Source: Kafka storage, LogManager.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from kafkaprod.broker.storage.errors import DirectoryLockedError, LogError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.format.log_files import PARTITION_METADATA
from kafkaprod.broker.storage.log.directory_files import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    BrokerIdentity,
    Checkpoints,
    directory_name,
    load_identity,
    parse_directory_name,
    purge_deleted,
    read_checkpoints,
    read_present_file,
    renamed,
    write_checkpoints,
)
from kafkaprod.broker.storage.log.log_store import LogEnvironment
from kafkaprod.broker.storage.log.partition_log import PartitionLog, open_partition_log
from kafkaprod.broker.storage.log.upkeep import close_logs, compact, flush_unsynced
from kafkaprod.broker.storage.recovery.checkpoints import (
    decode_uuid,
    encode_partition_metadata,
    parse_partition_metadata,
)
from kafkaprod.errors import CorruptDataError
from kafkaprod.storage.directory_lock import LOCK_FILE, lock_directory
from kafkaprod.storage.disk import (
    LogFile,
    check_owner,
    is_directory,
    make_directory,
    replace_file,
    replace_file_durably,
)
from kafkaprod.structs import TopicPartition

logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


class KnownTopics(NamedTuple):
    """What is known of topics before their partitions are opened.

    Attributes:
        configs: Options by topic.
        ids: Ids of topics, for partitions whose own copy a crash has torn.
    """

    configs: Mapping[str, LogConfig]
    ids: Mapping[str, uuid.UUID]


class LogDir:
    """See the module docstring. Make one with `open_log_dir`.

    Attributes:
        path: The directory.
        identity: The identity of the broker that owns it.
        directory_id: The id of the directory itself.
        was_clean: The last broker closed it cleanly.
        environment: The environment of its logs.
    """

    def __init__(
        self, path: str, environment: LogEnvironment, defaults: LogConfig, identity: BrokerIdentity, lock: LogFile
    ) -> None:
        self.path = path
        self.identity = identity
        self.directory_id = decode_uuid(identity.directory_id)
        self.was_clean = False
        self._directory_lock: LogFile | None = lock
        self.environment = environment._replace(unsynced=set())
        self._disk = environment.disk
        self._defaults = defaults
        self._lock = threading.RLock()
        self._logs: dict[TopicPartition, PartitionLog] = {}  # guarded by _lock, as all that follows
        self._partition_counts: Counter[str] = Counter()
        self._topic_ids: dict[str, uuid.UUID] = {}
        self._saved = Checkpoints({}, {}, {})
        self._checkpoint_lock = threading.Lock()
        self._last_flush_ms = environment.clock.now_ms()

    @property
    def log_count(self) -> int:
        """The number of partitions."""
        return len(self._logs)

    @property
    def partitions(self) -> dict[TopicPartition, PartitionLog]:
        """All logs; a copy."""
        with self._lock:
            return self._logs.copy()

    @property
    def topic_ids(self) -> dict[str, uuid.UUID]:
        """The id of each topic; a copy."""
        with self._lock:
            return self._topic_ids.copy()

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, None if it is not here."""
        return self._logs.get(topic_partition)

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The id of a topic, None if it has no partition here."""
        return self._topic_ids.get(topic)

    def saved_high_watermark(self, topic_partition: TopicPartition) -> int:
        """The high watermark at the last checkpoint before this start, 0 if unknown; for replicated partitions."""
        return self._saved.high_watermarks.get(topic_partition, 0)

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        config: LogConfig | None = None,
        *,
        is_id_saved: bool = False,
    ) -> PartitionLog:
        """Make an empty partition; one that exists is returned as it is. Only after `sync` a crash cannot undo it.

        Args:
            topic_partition: The partition.
            topic_id: The id of its topic.
            config: Options; None for the defaults.
            is_id_saved: The id is on the disk, and is among the `KnownTopics` of the next start: the partition's own
                copy of it need not be synced, which takes most of the time of a partition.

        Raises:
            CorruptDataError: The topic exists with another id.
            LogError: KAFKA_STORAGE_ERROR, the directory could not be made.
        """
        with self._lock:
            known_id = self._topic_ids.get(topic_partition.topic, topic_id)
            if known_id != topic_id:
                raise CorruptDataError(f"topic {topic_partition.topic} has id {known_id}, not {topic_id}")
            if topic_partition in self._logs:
                return self._logs[topic_partition]
            directory = os.path.join(self.path, directory_name(topic_partition))
            try:
                if not is_directory(directory):
                    self._disk.mkdir(directory)
                replace = replace_file if is_id_saved else replace_file_durably
                replace(self._disk, os.path.join(directory, PARTITION_METADATA), encode_partition_metadata(topic_id))
                log = self._open(topic_partition, config or self._defaults, is_clean=False)
            except OSError as error:
                raise LogError.of_disk(f"cannot make {directory}", error) from error
            self._topic_ids[topic_partition.topic] = topic_id
            return log

    def open_first(self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: LogConfig) -> PartitionLog:
        """Open a partition before all others, or make it; to be called by `find_topics` of `open_log_dir`.

        Raises:
            OSError, LogError: The disk refused.
        """
        if not is_directory(os.path.join(self.path, directory_name(topic_partition))):
            return self.create(topic_partition, topic_id, config, is_id_saved=True)
        known = KnownTopics({topic_partition.topic: config}, {topic_partition.topic: topic_id})
        return self._load_partition(topic_partition, known)

    def sync(self) -> None:
        """Make the partitions that were created durable.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the disk refused.
        """
        try:
            self._disk.sync_dir(self.path)
        except OSError as error:
            raise LogError.of_disk(f"cannot sync {self.path}", error) from error

    def partition_count(self, topic: str) -> int:
        """How many partitions of a topic there are."""
        return self._partition_counts.get(topic, 0)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Delete a partition: out of the table and renamed now, its files gone at the next `purge_deleted`.

        Readers that hold slices of it may continue. A crash after the rename is finished by the next start.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the rename failed; the partition is closed but still there after a restart.
        """
        self._take_out(topic_partition, DELETE_SUFFIX)

    def set_aside(self, topic_partition: TopicPartition) -> None:
        """Take a partition out of the table and rename its directory to "...-stray"; its files stay for a person.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, as `delete`.
        """
        self._take_out(topic_partition, STRAY_SUFFIX)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Take a partition out of the table; its files stay as they are."""
        self._take_out(topic_partition, None)

    def _take_out(self, topic_partition: TopicPartition, suffix: str | None) -> None:
        with self._lock:
            log = self._forget(topic_partition)
            if log is not None:
                log.abandon()
            if log is not None and suffix is not None:
                self._rename(log.directory, renamed(topic_partition, suffix))

    def _forget(self, topic_partition: TopicPartition) -> PartitionLog | None:
        log = self._logs.pop(topic_partition, None)
        if log is not None:
            self._partition_counts[topic_partition.topic] -= 1
            if not self._partition_counts[topic_partition.topic]:
                del self._partition_counts[topic_partition.topic]
                self._topic_ids.pop(topic_partition.topic, None)
        return log

    def _rename(self, directory: str, name: str) -> str:
        target = os.path.join(self.path, name)
        try:
            self._disk.rename(directory, target)
            self._disk.sync_dir(self.path)
        except OSError as error:
            raise LogError.of_disk(f"cannot rename {directory} to {target}", error) from error
        return target

    # -- partitions that move to another directory ---------------------------------------------------------------------

    def take_in(
        self,
        log: PartitionLog,
        topic_id: uuid.UUID,
        directory: str,
        put_in_place: Callable[[str], None],
    ) -> None:
        """Make a finished copy the partition's directory, which from then on is here.

        Args:
            log: The partition's log, with the offsets of the copy.
            topic_id: The id of its topic.
            directory: The directory of the copy.
            put_in_place: Makes the log use the directory of its argument. If it raises, the change is undone.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the disk refused; the partition stays where it is.
        """
        key = log.topic_partition
        with self._checkpoint_lock, self._lock:
            self._checkpoint(self._logs, {key: log})
            target = self._rename(directory, directory_name(key))
            try:
                put_in_place(target)
            except BaseException:
                with contextlib.suppress(LogError):
                    self._rename(target, os.path.basename(directory))
                raise
            self._logs[key] = log
            self._partition_counts[key.topic] += 1
            self._topic_ids[key.topic] = topic_id

    def give_away(self, topic_partition: TopicPartition, directory: str) -> None:
        """Take a partition out of the table whose log uses another directory now, and have the files deleted.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the rename failed; the next start finds the partition twice.
        """
        with self._lock:
            self._forget(topic_partition)
            self._rename(directory, renamed(topic_partition, DELETE_SUFFIX))

    def purge_deleted(self) -> None:
        """Remove the files of deleted partitions.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, some are left for the next call.
        """
        try:
            purge_deleted(self._disk, self.path)
        except OSError as error:
            raise LogError.of_disk(f"cannot purge deleted partitions in {self.path}", error) from error

    def flush_due(self) -> None:
        """Sync what the flush policy wants synced by now; call it at least every `interval_ms` (each: often, for
        acks=0).

        A partition whose sync fails is fenced, with the reason in `fence_reason`; the others continue.
        """
        policy, now_ms = self.environment.policy, self.environment.clock.now_ms()
        if policy.name == "never" or now_ms - self._last_flush_ms < (policy.interval_ms or 0):
            return
        self._last_flush_ms = now_ms
        flush_unsynced(self.environment.unsynced, self._logs)

    def apply_retention(self) -> int:
        """Delete old segments of all partitions; return how many. A disk error leaves them for the next call."""
        count = 0
        for log in self.partitions.values():
            try:
                count += log.delete_old_segments()
            except LogError:
                continue  # the log remembers it in `needs_check`
        return count

    def compact(self, should_stop: Callable[[], bool], left_out: Container[TopicPartition] = ()) -> int:
        """Compact the logs that are due, but for some; return how many segments were rewritten."""
        return compact(self.partitions, should_stop, left_out)

    def checkpoint(self) -> None:
        """Write recovery points, log starts and high watermarks; every minute, and before a clean shutdown.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the disk refused; the old checkpoints stay and are still right.
        """
        with self._checkpoint_lock:
            self._checkpoint(self.partitions, {})

    def _checkpoint(
        self, logs: Mapping[TopicPartition, PartitionLog], copied: Mapping[TopicPartition, PartitionLog]
    ) -> None:
        """Write the checkpoints of logs, and of others of which a synced copy comes here."""
        for log in logs.values():
            log.checkpoint()
        both = {**logs, **copied}
        points = {key: log.log_end_offset if key in copied else log.recovery_point for key, log in both.items()}
        starts = {key: log.log_start_offset for key, log in both.items()}
        marks = {key: log.high_watermark for key, log in both.items()}
        try:
            write_checkpoints(self._disk, self.path, Checkpoints(points, starts, marks))
        except OSError as error:
            raise LogError.of_disk(f"cannot write checkpoints in {self.path}", error) from error

    def close(self) -> bool:
        """Close all logs and give the directory up; return whether the shutdown was clean.

        The clean-shutdown marker is written last, and only if no write of any log ever failed (KAFKA-13773).
        """
        with self._lock:
            is_clean = all(close_logs(list(self._logs.values())))
            try:
                self._checkpoint(self._logs, {})
                if is_clean:
                    content = json.dumps({"version": 0, "brokerEpoch": -1}).encode()
                    replace_file_durably(self._disk, os.path.join(self.path, CLEAN_SHUTDOWN), content)
            except (LogError, OSError):
                is_clean = False
            self._logs.clear()
            self._directory_lock = None
            return is_clean

    def load(self, find_topics: Callable[[LogDir], KnownTopics]) -> None:
        """Take the directory over: marker, checkpoints, partitions. Called once, by `open_log_dir`."""
        marker = os.path.join(self.path, CLEAN_SHUTDOWN)
        self.was_clean = os.path.exists(marker)
        self._disk.unlink(marker)  # before anything is used: a crash from here on must not look clean
        self._disk.sync_dir(self.path)
        self.purge_deleted()
        self._saved = read_checkpoints(self.path)
        topics = find_topics(self)
        for name in sorted(os.listdir(self.path)):
            key = parse_directory_name(name)
            if key is not None and key not in self._logs and is_directory(os.path.join(self.path, name)):
                self._load_partition(key, topics)

    def _load_partition(self, key: TopicPartition, topics: KnownTopics) -> PartitionLog:
        self._load_topic_id(key, topics.ids)
        config = topics.configs.get(key.topic, self._defaults)
        saved = self._saved
        return self._open(key, config, self.was_clean, saved.recovery_points.get(key, 0), saved.log_starts.get(key, 0))

    def _open(
        self, key: TopicPartition, config: LogConfig, is_clean: bool, recovery_point: int = 0, log_start: int = 0
    ) -> PartitionLog:
        log = open_partition_log(
            key,
            os.path.join(self.path, directory_name(key)),
            config,
            self.environment,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start,
        )
        self._logs[key] = log
        self._partition_counts[key.topic] += 1
        self.environment.unsynced.add(key)  # of a crash, perhaps
        return log

    def _load_topic_id(self, key: TopicPartition, saved_ids: Mapping[str, uuid.UUID]) -> None:
        """Read partition.metadata; one that is missing or torn is made again, of another partition's, saved or new."""
        path = os.path.join(self.path, directory_name(key), PARTITION_METADATA)
        try:
            topic_id = parse_partition_metadata(read_present_file(path))
        except CorruptDataError:
            topic_id = self._topic_ids.get(key.topic) or saved_ids.get(key.topic) or uuid.uuid4()
            replace_file_durably(self._disk, path, encode_partition_metadata(topic_id))
        self._topic_ids.setdefault(key.topic, topic_id)


def open_log_dir(
    path: str,
    environment: LogEnvironment,
    *,
    node_id: int = 0,
    cluster_id: str | None = None,
    defaults: LogConfig | None = None,
    find_topics: Callable[[LogDir], KnownTopics] = lambda _: KnownTopics({}, {}),
) -> LogDir:
    """Take over a data directory, making it if it is missing, and recover all partitions in it.

    Args:
        path: The directory; made with mode 0700, and those above it by the umask.
        environment: Shared by all logs.
        node_id: This broker's id.
        cluster_id: Must match the directory's; None takes the directory's, or a random one.
        defaults: Options of topics without their own.
        find_topics: Called when the directory is locked and its checkpoints are read; may use `open_first`.

    Raises:
        DirectoryLockedError: Another broker uses it.
        ConfigError: It belongs to another broker, cluster or user, or every user may write to it.
        OSError: It cannot be read or written.
    """
    path = os.path.realpath(path)
    if not os.path.isdir(path):
        make_directory(environment.disk, path)
    check_owner(path)
    lock = lock_directory(environment.disk, path)
    if lock is None:
        raise DirectoryLockedError(f"{path} is in use by another broker ({LOCK_FILE} is locked)")
    identity = load_identity(environment.disk, path, node_id, cluster_id)
    directory = LogDir(path, environment, defaults or LogConfig(), identity, lock)
    directory.load(find_topics)
    return directory
