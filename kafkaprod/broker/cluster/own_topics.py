"""The topics of a broker alone: its controller writes them down, and it makes and deletes the logs itself.

A topic is in the metadata before its partitions are made, and until they are deleted: what a crash left half-made is
completed at the start. Directories that the metadata does not know (of a Kafka broker, say) are taken over as they are.
Changes come from the control thread.

A change of many partitions is long, so it is made in steps: `making`, `deleting` and `adding_partitions` yield between
two partitions. Until the last step the topic is not there, and nothing else may change it.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.cluster.own_controller import OwnController
from kafkaprod.broker.cluster.topics import (
    INTERNAL_TOPICS,
    Changes,
    Partition,
    Topic,
    TopicTable,
    check_answers,
    check_count,
)
from kafkaprod.broker.controller.disk_log import METADATA_PARTITION
from kafkaprod.broker.storage.errors import LogError
from kafkaprod.broker.storage.format.log_config import LogConfig, parse_properties
from kafkaprod.broker.storage.log.log_dirs import LogDirs
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kafkaprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kafkaprod.structs import TopicPartition

T = TypeVar("T")


class OwnTopics(TopicTable):
    """See the module docstring."""

    def __init__(
        self,
        log_dirs: LogDirs,
        controller: OwnController,
        defaults: LogConfig,
        on_advance: Callable[[TopicPartition], None],
    ) -> None:
        """Open the topics of the metadata, take over what else is in the directory.

        Args:
            log_dirs: Hold the partitions.
            controller: The controller of this broker.
            defaults: Options of topics without their own.
            on_advance: Called with each partition whose high watermark moved; must not block.

        Raises:
            LogError: A missing partition could not be made.
        """
        super().__init__(log_dirs, controller.image, defaults, on_advance)
        self._controller = controller
        self.ask_controller = controller.ask
        self._take_over_strangers()
        self._open_all()

    def create(self, name: str, partition_count: int, properties: Mapping[str, str]) -> Topic:
        """Make a topic at once; see `begin` and `making`."""
        self.check_new(name, partition_count, properties)
        self.begin(
            CreatableTopic(
                name=name,
                num_partitions=partition_count,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=option, value=value) for option, value in properties.items()],
            )
        )
        self.sync()
        return _run(self.making(name))

    def begin(self, wanted: CreatableTopic, *, validate_only: bool = False) -> None:
        """Write a new topic down, which `check_new` has let pass; `sync` and `making` come after it.

        Raises:
            RequestRefusedError: INVALID_REPLICATION_FACTOR or INVALID_REPLICA_ASSIGNMENT, there is no broker but this
                one; KAFKA_STORAGE_ERROR, the disk refused.
        """
        if wanted.name in self.image.topic_ids:
            self._write_deletion(wanted.name)  # its logs are gone, but the disk was full then
        request = CreateTopicsRequest(topics=[wanted], validate_only=validate_only)
        response = self._controller.ask(request, is_synced=False)
        results = response.topics if isinstance(response, CreateTopicsResponse) else []
        check_answers([(result.error_code, result.error_message) for result in results])
        if not validate_only:
            self._changing[wanted.name] = len(wanted.assignments) or wanted.num_partitions

    def making(self, name: str) -> Changes[Topic]:
        """Make the partitions of a topic that was written down.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the disk refused; nothing is left of the topic.
        """
        topic_id, properties = self.image.topic_ids[name], self._properties(name)
        config = parse_properties(properties, self._defaults)
        try:
            partitions = yield from self._make_partitions(name, range(self._changing[name]), topic_id, config)
        except LogError:
            with suppress(BrokerError):
                self._write_deletion(name)
            raise
        finally:
            del self._changing[name]
        topic = Topic(name, topic_id, tuple(partitions), properties)
        self._publish({**self._topics, name: topic}, [name])
        return topic

    def abandon(self, name: str) -> None:
        """Forget a topic that was written down and will not be made."""
        del self._changing[name]
        with suppress(BrokerError):
            self._write_deletion(name)

    def delete(self, name: str) -> None:
        """Delete a topic at once; see `deleting`."""
        _run(self.deleting(name))
        self.sync()

    def deleting(self, name: str) -> Changes[None]:
        """Delete the partitions, then the topic; see `TopicTable`."""
        topic = self._changeable(name)
        if topic.is_internal:
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"Topic '{name}' is internal.")
        if any(partition.is_offline for partition in topic.partitions):  # it would come back with the directory
            raise RequestRefusedError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"Topic '{name}' has partitions in a log directory that is offline."
            )
        self._publish({other: known for other, known in self._topics.items() if other != name}, [name])
        self._changing[name] = len(topic.partitions)
        try:
            for index in range(len(topic.partitions)):
                self._log_dirs.delete(TopicPartition(name, index))
                self._on_advance(TopicPartition(name, index))  # readers that wait find it gone
                yield
        finally:
            del self._changing[name]
            self._write_deletion(name)

    def add_partitions(self, name: str, partition_count: int, *, validate_only: bool) -> None:
        """Raise a topic's number of partitions at once; see `adding_partitions`."""
        wanted = CreatePartitionsTopic(name=name, count=partition_count)
        _run(self.adding_partitions(wanted, validate_only=validate_only))

    def adding_partitions(self, wanted: CreatePartitionsTopic, *, validate_only: bool) -> Changes[None]:
        """Raise a topic's number of partitions: they are made, then written down.

        Raises:
            RequestRefusedError: UNKNOWN_TOPIC_OR_PARTITION, there is no such topic; INVALID_PARTITIONS, the number is
                not higher than now, or there is no room; INVALID_REPLICA_ASSIGNMENT, there is no broker but this one;
                INVALID_REQUEST, it is being changed.
            LogError: KAFKA_STORAGE_ERROR, the disk refused.
        """
        name, partition_count = wanted.name, wanted.count
        topic = self._changeable(name)
        old_count = len(topic.partitions)
        check_count(partition_count)
        self._write_growth(wanted, validate_only=True)
        self._check_room(partition_count - old_count)
        if validate_only:
            return
        self._changing[name] = partition_count
        try:
            config = parse_properties(topic.properties, self._defaults)
            indexes = range(old_count, partition_count)
            logs = yield from self._make_logs(name, indexes, topic.topic_id, config)
            try:
                self._write_growth(wanted)
            except BrokerError:
                self._delete_logs(name, indexes)
                raise
        finally:
            del self._changing[name]
        added = [self._partition(topic.topic_id, index, log) for index, log in zip(indexes, logs, strict=True)]
        topic = self._topics[name]
        self._publish({**self._topics, name: replace(topic, partitions=(*topic.partitions, *added))}, [name])

    def sync(self) -> None:
        """Bring the changes of topics to the disk; see `TopicTable`."""
        self._controller.sync()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _show_properties(self, name: str, properties: Mapping[str, str]) -> None:
        config = parse_properties(properties, self._defaults)
        topic = self._topics[name]
        self._publish({**self._topics, name: replace(topic, properties=self._properties(name))}, [name])
        for partition in topic.partitions:
            if partition.has_log:
                partition.log.config = config

    def _write_deletion(self, name: str) -> None:
        response = self._controller.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), is_synced=False)
        results = response.responses if isinstance(response, DeleteTopicsResponse) else []
        check_answers([(result.error_code, result.error_message) for result in results])

    def _write_growth(self, wanted: CreatePartitionsTopic, *, validate_only: bool = False) -> None:
        response = self._controller.ask(CreatePartitionsRequest(topics=[wanted], validate_only=validate_only))
        results = response.results if isinstance(response, CreatePartitionsResponse) else []
        check_answers([(result.error_code, result.error_message) for result in results])

    def _partition(self, topic_id: uuid.UUID, index: int, log: PartitionLog) -> Partition:
        image = self.image.partitions[topic_id, index]
        return Partition(log, max(log.latest_epoch, image.leader_epoch), None, image)

    def _make_log(self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: LogConfig) -> PartitionLog:
        is_internal = topic_partition.topic in INTERNAL_TOPICS
        log = self._log_dirs.create(topic_partition, topic_id, config, is_id_saved=True, is_internal=is_internal)
        log.watermark.listeners.append(lambda _: self._on_advance(topic_partition))
        return log

    def _make_partitions(
        self, name: str, indexes: range, topic_id: uuid.UUID, config: LogConfig
    ) -> Changes[list[Partition]]:
        logs = yield from self._make_logs(name, indexes, topic_id, config)
        return [self._partition(topic_id, index, log) for index, log in zip(indexes, logs, strict=True)]

    def _make_logs(
        self, name: str, indexes: range, topic_id: uuid.UUID, config: LogConfig
    ) -> Changes[list[PartitionLog]]:
        """Make logs one by one, or none."""
        made: list[PartitionLog] = []
        try:
            for index in indexes:
                made.append(self._make_log(TopicPartition(name, index), topic_id, config))
                yield
            self._log_dirs.sync()
        except LogError:
            self._delete_logs(name, indexes[: len(made) + 1])
            raise
        return made

    def _delete_logs(self, name: str, indexes: range) -> None:
        with suppress(LogError):
            for index in indexes:
                self._log_dirs.delete(TopicPartition(name, index))

    def _take_over_strangers(self) -> None:
        """Write down what the directory has and the metadata has not. The ids of the directory are right."""
        found = Counter(key.topic for key in self._log_dirs.partitions if key != METADATA_PARTITION)
        last: dict[str, int] = {}
        for key in self._log_dirs.partitions:
            last[key.topic] = max(last.get(key.topic, 0), key.partition)
        known = self._partition_counts()
        ids = self._log_dirs.topic_ids
        for name in sorted(found):
            count, known_id = last[name] + 1, self.image.topic_ids.get(name)
            if known_id == ids[name]:
                if count > known[known_id]:
                    self._write_growth(CreatePartitionsTopic(name=name, count=count))
                continue
            options = self._properties(name)
            if known_id is not None:
                count = max(count, known[known_id])
                self._write_deletion(name)
            self._controller.add_topic(name, ids[name], count, options)

    def _partition_counts(self) -> Counter[uuid.UUID]:
        return Counter(topic_id for topic_id, _ in self.image.partitions)

    def _open_all(self) -> None:
        counts = self._partition_counts()
        topics: dict[str, Topic] = {}
        for name, topic_id in self.image.topic_ids.items():
            properties = self._properties(name)
            config = parse_properties(properties, self._defaults)
            partitions = []
            for index in range(counts[topic_id]):
                if self._log_dirs.may_be_unopened(TopicPartition(name, index)):
                    image = self.image.partitions[topic_id, index]
                    partitions.append(Partition(None, image.leader_epoch, None, image, is_offline=True))
                    continue
                log = self._make_log(TopicPartition(name, index), topic_id, config)
                log.config = config
                partitions.append(self._partition(topic_id, index, log))
            topics[name] = Topic(name, topic_id, tuple(partitions), properties)
        self._log_dirs.sync()
        self._publish(topics, topics)
        self.sync()


def _run(changes: Changes[T]) -> T:
    try:
        while True:
            next(changes)
    except StopIteration as end:
        result: T = end.value
        return result
