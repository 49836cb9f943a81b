"""The topics of a broker in a cluster: the metadata image as the table that handlers read, and the replicas' logs.

The event loop changes it, when metadata comes; any thread may read: each change replaces the table as a whole. Topics
are created and changed by the controller, to which handlers forward such requests.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.cluster.topics import Changes, Partition, Topic, TopicTable, check_answers
from kafkaprod.broker.controller.context import TOPIC_RESOURCE
from kafkaprod.broker.metadata.follower import MetadataFollower
from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.replication.partition import PartitionReplica
from kafkaprod.broker.replication.partition_replica_log import PartitionReplicaLog
from kafkaprod.broker.storage.errors import LogDirectoryFailedError, LogError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.log_dirs import LogDirs
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kafkaprod.structs import TopicPartition

logger = logging.getLogger(__name__)

_VISIBLE_S = 1.0
MIN_ISR_OPTION = "min.insync.replicas"


class ReplicatedTopics(TopicTable):
    """See the module docstring.

    Attributes:
        follower: The broker's copy of the metadata log. The image is what the applied part of it adds up to.
    """

    def __init__(
        self,
        log_dirs: LogDirs,
        defaults: LogConfig,
        on_advance: Callable[[TopicPartition], None],
        min_isr: int,
    ) -> None:
        """Make an empty table; the logs of the directory are used as the metadata names them.

        Args:
            log_dirs: Hold the replicas.
            defaults: Options of topics without their own.
            on_advance: Called with each partition whose high watermark or leader changed; must not block.
            min_isr: `min.insync.replicas` of topics that do not set it.
        """
        self.follower = MetadataFollower()
        super().__init__(log_dirs, self.follower.image, defaults, on_advance)
        self._default_min_isr = min_isr
        self._published = threading.Condition()
        self._open: dict[PartitionKey, tuple[TopicPartition, PartitionLog]] = {}
        self._unopened: set[PartitionKey] = set()  # in a log directory that is offline since the start
        self._options: dict[str, Mapping[str, str] | None] = {}  # of topics, as they were followed
        self._options_offset = -1

    # -- what replication needs ----------------------------------------------------------------------------------------

    def open_log(self, key: PartitionKey) -> PartitionReplicaLog:
        """Open or make a replica's log. What an older topic of the name left is deleted (KAFKA-14616).

        Raises:
            LogDirectoryFailedError: It is in a log directory that is offline, or may be.
            CorruptDataError, LogError: As `LogDirs.create_replica`.
        """
        topic = self.image.topics[key[0]]
        if self._log_dirs.topic_id(topic.name) not in (None, topic.topic_id):
            for other, log in self._log_dirs.partitions.items():
                if other.topic == topic.name and not log.is_offline:
                    self._log_dirs.delete(other)
        topic_partition = TopicPartition(topic.name, key[1])
        directory = self.image.partitions[key].directory_of(self._log_dirs.identity.node_id)
        config, is_old = self._config_of(topic.name), self.had_log(key, self._log_dirs.identity.node_id)
        try:
            log = self._log_dirs.create_replica(topic_partition, topic.topic_id, config, directory, is_old=is_old)
        except LogDirectoryFailedError:
            self._unopened.add(key)
            raise
        log.watermark.listeners.append(lambda _: self._on_advance(topic_partition))
        self._open[key] = (topic_partition, log)
        return PartitionReplicaLog(log, self._log_dirs.saved_high_watermark(topic_partition))

    def had_log(self, key: PartitionKey, broker_id: int) -> bool:
        """Whether a replica of this broker certainly had a log before this process.

        A fenced broker is in an ISR only if it was there before it was fenced, or if the partition was made while all
        its brokers were away and has not changed since.
        """
        broker, partition = self.image.brokers.get(broker_id), self.image.partitions[key]
        is_fenced = broker is not None and broker.is_fenced
        return is_fenced and broker_id in partition.isr and partition.partition_epoch > 0

    def drop_log(self, key: PartitionKey) -> None:
        """Delete a replica's log, unless another topic of the name has taken its place.

        One whose log directory is offline is set aside when it comes back.
        """
        self._unopened.discard(key)
        if key not in self._open:
            return
        topic_partition, log = self._open.pop(key)
        if self._log_dirs.partitions.get(topic_partition) is log and not log.is_offline:
            self._log_dirs.delete(topic_partition)
        self._on_advance(topic_partition)

    def directory_of(self, key: PartitionKey) -> uuid.UUID:
        """Return the id of the log directory that an open replica is in."""
        return self._log_dirs.directory_id_of(self._open[key][0])

    def move_target_of(self, key: PartitionKey) -> uuid.UUID | None:
        """Return the id of the log directory that an open replica moves to, None if it does not move."""
        move = self._log_dirs.moves.get(self._open[key][0])
        return move.target.directory_id if move else None

    def offline_keys(self) -> list[PartitionKey]:
        """Return the replicas that were opened, and whose log directory can be used no more."""
        return [key for key, (_, log) in self._open.items() if log.is_offline]

    def set_strays_aside(self) -> None:
        """Rename the logs that the metadata gives this broker no replica of: it was down when they were taken away.

        To be called once the metadata is complete.
        """
        hosted = {topic_partition for topic_partition, _ in self._open.values()}
        for topic_partition in sorted(set(self._log_dirs.partitions) - hosted):
            try:
                self._log_dirs.set_aside(topic_partition)
            except LogError as error:
                logger.error("a log without a replica stays in the table: %s", error)
            else:
                logger.warning("%s is no replica of this broker: its directory is renamed", topic_partition)

    def min_isr(self, name: str) -> int:
        """Return a topic's min.insync.replicas."""
        text = self._properties(name).get(MIN_ISR_OPTION)
        return self._default_min_isr if text is None else int(text)

    # -- following the image -------------------------------------------------------------------------------------------

    def publish(
        self,
        replicas: Mapping[PartitionKey, PartitionReplica],
        changed: Collection[PartitionKey],
        is_behind_in: Callable[[uuid.UUID], bool] = lambda _: False,
    ) -> None:
        """Bring the table to what the image says of some partitions; requests that wait for them are tried again.

        Args:
            replicas: Those of this broker.
            changed: The partitions to look at.
            is_behind_in: Whether other partitions of a topic are still to be followed: until then clients do not see
                it, or no more of it than before.
        """
        indexes: dict[uuid.UUID, set[int]] = {}
        for topic_id, index in changed:
            indexes.setdefault(topic_id, set()).add(index)
        topics, other_names = dict(self._topics), set()
        for topic_id, name in [(topic_id, self._names.get(topic_id, "")) for topic_id in indexes]:
            if topic_id not in self.image.topics and name in topics and topics[name].topic_id == topic_id:
                del topics[name]
                other_names.add(name)
                self._options.pop(name, None)
        for topic_id, some in indexes.items():
            known = self.image.topics.get(topic_id)
            if known is not None:
                before = topics.get(known.name)
                kept = before.partitions if before is not None and before.topic_id == topic_id else ()
                partitions = self._partitions(topic_id, replicas, some, kept, is_behind=is_behind_in(topic_id))
                if partitions:
                    topics[known.name] = Topic(known.name, topic_id, partitions, self._properties(known.name))
                    other_names.add(known.name)
        with self._published:
            self._publish(topics, other_names)
            self._published.notify_all()
        for topic_id, index in changed:
            known = self.image.topics.get(topic_id)
            if known is not None:
                self._on_advance(TopicPartition(known.name, index))

    def _partitions(
        self,
        topic_id: uuid.UUID,
        replicas: Mapping[PartitionKey, PartitionReplica],
        indexes: Collection[int],
        kept: tuple[Partition, ...],
        *,
        is_behind: bool,
    ) -> tuple[Partition, ...]:
        """Return a topic's partitions: some of them made again, the others as before."""
        partitions = list(kept)
        for index in indexes:
            if index < len(partitions):
                partitions[index] = self._partition((topic_id, index), replicas.get((topic_id, index)))
        while not is_behind and (key := (topic_id, len(partitions))) in self.image.partitions:
            partitions.append(self._partition(key, replicas.get(key)))
        return tuple(partitions)

    def follow_configs(self) -> None:
        """Give the logs the options of their topics, and the table those that were set, where they have changed."""
        if self.image.settings_offset == self._options_offset:
            return
        self._options_offset = self.image.settings_offset
        changed = set()
        for name in self.image.topic_ids:
            options = self.image.configs.get((TOPIC_RESOURCE, name))
            if self._options.get(name) is not options:
                changed.add(name)
                self._options[name] = options
        if changed:
            self._give_options(changed)
            shown = {
                name: replace(self._topics[name], properties=self._properties(name))
                for name in changed & self._topics.keys()
            }
            with self._published:
                self._publish({**self._topics, **shown}, shown)
                self._published.notify_all()

    def _give_options(self, names: Collection[str] | None = None) -> None:
        for topic_partition, log in list(self._open.values()):  # defaults come from the control thread
            if names is None or topic_partition.topic in names:
                log.config = self._config_of(topic_partition.topic)

    def _partition(self, key: PartitionKey, replica: PartitionReplica | None) -> Partition:
        image = self.image.partitions[key]
        log = self._open[key][1] if key in self._open else None
        return Partition(log, image.leader_epoch, replica, image, is_offline=key in self._unopened)

    # -- changes go to the controller ----------------------------------------------------------------------------------

    def sync(self) -> None:
        """Write nothing: the controller has the metadata log."""

    def deleting(self, name: str) -> Changes[None]:
        """Have the controller delete a topic; see `TopicTable.deleting`. Blocks."""
        if self._changeable(name).is_internal:
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"Topic '{name}' is internal.")
        response = self.ask_controller(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))
        results = response.responses if isinstance(response, DeleteTopicsResponse) else []
        check_answers([(result.error_code, result.error_message) for result in results])
        self._await(lambda: self.get(name) is None)
        yield from ()

    def _show_properties(self, name: str, properties: Mapping[str, str]) -> None:
        self._await(lambda: self._properties(name) == dict(properties))

    def _await(self, condition: Callable[[], bool]) -> None:
        """Wait until this broker's metadata shows a change, a second at most."""
        deadline = time.monotonic() + _VISIBLE_S
        with self._published:
            while not condition() and (left_s := deadline - time.monotonic()) > 0:
                self._published.wait(left_s)

    def set_defaults(self, defaults: LogConfig) -> None:
        """Change the options of topics that do not set their own."""
        self._defaults = defaults
        self._give_options()
