"""The topics of a broker in a cluster: the metadata image as the table that handlers read, and the replicas' logs.

The event loop changes it, when metadata comes; any thread may read: each change replaces the table as a whole. Topics
are created and changed by the controller, to which handlers forward such requests.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.cluster.topics import Changes, Partition, Topic, TopicTable, check_answers
from kafkaprod.broker.metadata.follower import MetadataFollower
from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.replication.partition import PartitionReplica
from kafkaprod.broker.replication.partition_replica_log import PartitionReplicaLog
from kafkaprod.broker.storage.errors import LogError
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.broker.storage.log.log_dir import LogDir
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
        log_dir: LogDir,
        defaults: LogConfig,
        on_advance: Callable[[TopicPartition], None],
        min_isr: int,
    ) -> None:
        """Make an empty table; the logs of the directory are used as the metadata names them.

        Args:
            log_dir: Holds the replicas.
            defaults: Options of topics without their own.
            on_advance: Called with each partition whose high watermark or leader changed; must not block.
            min_isr: `min.insync.replicas` of topics that do not set it.
        """
        self.follower = MetadataFollower()
        super().__init__(log_dir, self.follower.image, defaults, on_advance)
        self._default_min_isr = min_isr
        self._published = threading.Condition()
        self._open: dict[PartitionKey, tuple[TopicPartition, PartitionLog]] = {}

    # -- what replication needs ----------------------------------------------------------------------------------------

    def open_log(self, key: PartitionKey) -> PartitionReplicaLog:
        """Open or make a replica's log. What an older topic of the name left is deleted (KAFKA-14616)."""
        topic = self.image.topics[key[0]]
        if self._log_dir.topic_ids.get(topic.name, topic.topic_id) != topic.topic_id:
            for other in [other for other in self._log_dir.partitions if other.topic == topic.name]:
                self._log_dir.delete(other)
        topic_partition = TopicPartition(topic.name, key[1])
        log = self._log_dir.create(topic_partition, topic.topic_id, self._config_of(topic.name))
        log.watermark.listeners.append(lambda _: self._on_advance(topic_partition))
        self._open[key] = (topic_partition, log)
        return PartitionReplicaLog(log, self._log_dir.saved_high_watermark(topic_partition))

    def drop_log(self, key: PartitionKey) -> None:
        """Delete a replica's log."""
        topic_partition, _ = self._open.pop(key)
        self._log_dir.delete(topic_partition)
        self._on_advance(topic_partition)

    def set_strays_aside(self) -> None:
        """Rename the logs that the metadata gives this broker no replica of: it was down when they were taken away.

        To be called once the metadata is complete.
        """
        hosted = {topic_partition for topic_partition, _ in self._open.values()}
        for topic_partition in sorted(set(self._log_dir.partitions) - hosted):
            try:
                self._log_dir.set_aside(topic_partition)
            except LogError as error:
                logger.error("a log without a replica stays in the table: %s", error)
            else:
                logger.warning("%s is no replica of this broker: its directory is renamed", topic_partition)

    def min_isr(self, name: str) -> int:
        """Return a topic's min.insync.replicas."""
        text = self._properties(name).get(MIN_ISR_OPTION)
        return self._default_min_isr if text is None else int(text)

    # -- following the image -------------------------------------------------------------------------------------------

    def publish(self, replicas: Mapping[PartitionKey, PartitionReplica], changed: Iterable[PartitionKey]) -> None:
        """Make the table that the image describes; requests that wait for changed partitions are tried again."""
        indexes: dict[object, int] = {}
        for topic_id, _ in self.image.partitions:
            indexes[topic_id] = indexes.get(topic_id, 0) + 1
        topics = {}
        for topic in self.image.topics.values():
            keys = [(topic.topic_id, index) for index in range(indexes.get(topic.topic_id, 0))]
            partitions = tuple(self._partition(key, replicas.get(key)) for key in keys)
            topics[topic.name] = Topic(topic.name, topic.topic_id, partitions, self._properties(topic.name))
        with self._published:
            self._publish(topics)
            self._published.notify_all()
        for key in changed:
            known = self.image.topics.get(key[0])
            if known is not None:
                self._on_advance(TopicPartition(known.name, key[1]))

    def follow_configs(self) -> None:
        """Give the logs the options of their topics."""
        for topic_partition, log in list(self._open.values()):  # defaults come from the control thread
            log.config = self._config_of(topic_partition.topic)

    def _partition(self, key: PartitionKey, replica: PartitionReplica | None) -> Partition:
        image = self.image.partitions[key]
        opened = self._open.get(key)
        return Partition(None if opened is None else opened[1], image.leader_epoch, replica, image)

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
        self.follow_configs()
