"""The topics of the broker: names, ids, options and partitions, kept in `topics.json` of the data directory.

The file is written before partitions are made and after they are deleted; what a crash left half-made is completed at
start. Directories it does not know (of a Kafka broker, say) are taken over as they are. Changes come from the control
thread; any thread may read: each change replaces the table as a whole.

A change of many partitions is long, so it can be made in steps: `creating`, `deleting` and `adding_partitions` yield
between two partitions. Until the last step the topic is not there, and nothing else may change it. The file names all
topics, so a request for many of them writes it once: see `planning` and `save`.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from kafkaprod.broker.cluster.topic_options import check_option
from kafkaprod.broker.config import MAX_PARTITIONS_OF_TOPIC
from kafkaprod.broker.server.refusal import RequestRefusedError
from kafkaprod.broker.storage.disk import Disk, read_file, replace_file_durably
from kafkaprod.broker.storage.errors import LogError
from kafkaprod.broker.storage.log.log_config import LogConfig, parse_properties
from kafkaprod.broker.storage.log.log_dir import LogDir
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.recovery.checkpoints import decode_uuid, encode_uuid
from kafkaprod.errors import ConfigError, CorruptDataError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.structs import TopicPartition

if TYPE_CHECKING:
    from kafkaprod.broker.metadata.image import PartitionImage
    from kafkaprod.broker.replication.partition import PartitionReplica

FILE_NAME = "topics.json"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})

T = TypeVar("T")

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Partition:
    """A partition, as this broker knows it. Alone, a broker leads all of them.

    Attributes:
        leader_epoch: grows when the leader changes; clients that know an older one refresh their metadata.
        replica: of a cluster's broker that has one.
        image: who leads and who is in sync, in a cluster.
    """

    __slots__ = ("_log", "image", "leader_epoch", "replica")

    def __init__(
        self,
        log: PartitionLog | None,
        leader_epoch: int,
        replica: PartitionReplica | None = None,
        image: PartitionImage | None = None,
    ) -> None:
        self._log = log
        self.leader_epoch = leader_epoch
        self.replica = replica
        self.image = image

    @property
    def log(self) -> PartitionLog:
        """The log.

        Raises:
            RequestRefusedError: 6, this broker has no replica of the partition.
        """
        if self._log is None:
            raise RequestRefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This broker has no replica of the partition.")
        return self._log

    @property
    def has_log(self) -> bool:
        """Whether this broker has a replica."""
        return self._log is not None

    @property
    def epoch_start_offset(self) -> int:
        """Where the leader's epoch begins in its log; 0 of a broker alone."""
        return 0 if self.replica is None else self.replica.epoch_start_offset

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.image is None or (self.replica is not None and self.replica.is_leader)


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `properties` are the options set on it, under Kafka's dotted names."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[Partition, ...]
    properties: Mapping[str, str]

    @property
    def is_internal(self) -> bool:
        """Clients may read it but not write to it."""
        return self.name in INTERNAL_TOPICS


Changes = Generator[None, None, T]
"""A change in steps; it ends with the generator's return."""


class TopicTable:
    """See the module docstring."""

    def __init__(
        self, log_dir: LogDir, disk: Disk, defaults: LogConfig, on_advance: Callable[[TopicPartition], None]
    ) -> None:
        """Take over what is in the directory, and complete what a crash left half-made.

        Args:
            log_dir: holds the partitions.
            disk: the same as the directory's.
            defaults: options of topics without their own.
            on_advance: called with each partition whose high watermark moved; must not block.

        Raises:
            CorruptDataError: `topics.json` is damaged.
            LogError: a missing partition could not be made.
        """
        self._log_dir = log_dir
        self._disk = disk
        self._defaults = defaults
        self._on_advance = on_advance
        self._path = os.path.join(log_dir.path, FILE_NAME)
        self._topics: dict[str, Topic] = {}
        self._names: dict[uuid.UUID, str] = {}
        self._intents: dict[str, dict[str, Any]] = {}  # what the file says of topics that are being changed
        self._planned: dict[str, dict[str, Any]] = {}  # and of those that are next
        self._load()

    # -- reading -------------------------------------------------------------------------------------------------

    def get(self, name: str) -> Topic | None:
        """A topic by name."""
        return self._topics.get(name)

    def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """A topic by id."""
        return self._topics.get(self._names.get(topic_id, ""))

    def name_of(self, name: str, topic_id: uuid.UUID | None) -> str | None:
        """The topic a request means, by its id if it gives one (KIP-516), else by name; None if the id is unknown."""
        return name if topic_id is None else self._names.get(topic_id)

    def all(self) -> list[Topic]:
        """All topics, by name."""
        topics = self._topics
        return [topics[name] for name in sorted(topics)]

    def table(self) -> Mapping[str, Topic]:
        """All topics by name; another object after each change."""
        return self._topics

    def partition(self, name: str, index: int) -> Partition | None:
        """A partition, None if there is no such topic or partition."""
        topic = self._topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def is_changing(self, name: str) -> bool:
        """Whether the topic is being made, deleted or given partitions."""
        return name in self._intents

    # -- changing ------------------------------------------------------------------------------------------------

    def check_new(self, name: str, partition_count: int, properties: Mapping[str, str]) -> LogConfig:
        """The options a topic would have.

        Raises:
            RequestRefusedError: 17 bad name, 36 it exists, 37 bad count, 40 bad options.
        """
        check_name(name)
        names = {**self._topics, **self._intents}
        if name in names:
            raise RequestRefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        collided = next((other for other in names if other.replace(".", "_") == name.replace(".", "_")), None)
        if collided is not None:
            raise RequestRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with '{collided}'.")
        check_count(partition_count)
        self._check_room(partition_count)
        return self._parse(properties)

    def create(self, name: str, partition_count: int, properties: Mapping[str, str]) -> Topic:
        """Make a topic at once; see `creating`."""
        return _run(self.creating(name, partition_count, properties))

    def creating(self, name: str, partition_count: int, properties: Mapping[str, str]) -> Changes[Topic]:
        """Make a topic.

        Raises:
            RequestRefusedError: as `check_new`.
            LogError: 56, the disk refused; nothing is left of the topic, or a rest is completed at the next start.
        """
        config = self.check_new(name, partition_count, properties)
        topic_id = uuid.uuid4()
        entry, planned = _entry(topic_id, partition_count, properties), self._planned.pop(name, None)
        is_planned = planned is not None and {**planned, "id": entry["id"]} == entry
        if planned is not None and is_planned:
            entry, topic_id = planned, decode_uuid(planned["id"])
        with self._intent(name, entry, is_saved=is_planned):
            partitions = yield from self._make_partitions(name, range(partition_count), topic_id, config)
            topic = Topic(name, topic_id, tuple(partitions), dict(properties))
            self._publish({**self._topics, name: topic})
        return topic

    @contextmanager
    def planning(self, wanted: Mapping[str, tuple[int, Mapping[str, str]]]) -> Iterator[None]:
        """Write the file once for topics that will be made in the block; a crash there leaves all of them to be made.

        Args:
            wanted: partition count and options by name; what would be refused, or cannot be written, is left out.
        """
        planned = {}
        for name, (partition_count, properties) in wanted.items():
            with suppress(RequestRefusedError):
                self.check_new(name, partition_count, properties)
                planned[name] = _entry(uuid.uuid4(), partition_count, properties)
        planned = {name: entry for name, entry in planned.items() if name not in self._planned}
        if planned:
            with suppress(RequestRefusedError):  # `creating` finds the same, and has an answer
                self.save(planned)
                self._planned.update(planned)
        try:
            yield
        finally:
            left = [name for name, entry in planned.items() if self._planned.get(name) is entry]
            for name in left:
                del self._planned[name]
            if left:
                with suppress(RequestRefusedError):
                    self.save()

    def delete(self, name: str) -> None:
        """Delete a topic at once; see `deleting`."""
        _run(self.deleting(name))
        self.save()

    def deleting(self, name: str) -> Changes[None]:
        """Delete a topic and its data; `save` comes after it, or the next start makes the topic again, empty.

        Raises:
            RequestRefusedError: 3, there is none; 42, it is internal, or being changed.
            LogError: 56, the disk refused; a part may be gone.
        """
        topic = self._changeable(name)
        if topic.is_internal:
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"Topic '{name}' is internal.")
        self._publish({other: known for other, known in self._topics.items() if other != name})
        self._intents[name] = _entry(topic.topic_id, len(topic.partitions), topic.properties)
        try:
            for index in range(len(topic.partitions)):
                self._log_dir.delete(TopicPartition(name, index))
                self._on_advance(TopicPartition(name, index))  # readers that wait find it gone
                yield
        finally:
            del self._intents[name]

    def add_partitions(self, name: str, partition_count: int, *, validate_only: bool) -> None:
        """Raise a topic's number of partitions at once; see `adding_partitions`."""
        _run(self.adding_partitions(name, partition_count, validate_only=validate_only))

    def adding_partitions(self, name: str, partition_count: int, *, validate_only: bool) -> Changes[None]:
        """Raise a topic's number of partitions.

        Raises:
            RequestRefusedError: 3, there is no such topic; 37, the number is not higher than now, or there is no room;
                42, it is being changed.
            LogError: 56, as `creating`.
        """
        topic = self._changeable(name)
        old_count = len(topic.partitions)
        if partition_count <= old_count:
            raise RequestRefusedError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic currently has {old_count} partitions, {partition_count} is not more.",
            )
        check_count(partition_count)
        self._check_room(partition_count - old_count)
        if validate_only:
            return
        with self._intent(name, _entry(topic.topic_id, partition_count, topic.properties)):
            config = self._parse(topic.properties)
            added = yield from self._make_partitions(name, range(old_count, partition_count), topic.topic_id, config)
            self._publish({**self._topics, name: replace(topic, partitions=(*topic.partitions, *added))})

    def set_properties(self, name: str, properties: Mapping[str, str], *, validate_only: bool) -> None:
        """Replace the options set on a topic.

        Raises:
            RequestRefusedError: 3, there is no such topic; 40, bad options; 42, it is being changed.
            LogError: 56, the disk refused; nothing was changed.
        """
        topic = self._changeable(name)
        config = self._parse(properties)
        if validate_only:
            return
        self.save({name: _entry(topic.topic_id, len(topic.partitions), properties)})
        self._publish({**self._topics, name: replace(topic, properties=dict(properties))})
        for partition in topic.partitions:
            partition.log.config = config

    def set_defaults(self, defaults: LogConfig) -> None:
        """Change the options of topics that do not set their own."""
        self._defaults = defaults
        for topic in self._topics.values():
            config = parse_properties(topic.properties, defaults)
            for partition in topic.partitions:
                partition.log.config = config

    def move_leader(self, name: str, index: int) -> None:
        """Pretend that the leader of a partition changed and came back (fault scripts only)."""
        partition = self.partition(name, index)
        if partition is not None:
            partition.leader_epoch += 1

    # -- inside --------------------------------------------------------------------------------------------------

    def _required(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise RequestRefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"This server does not host topic '{name}'."
            )
        return topic

    def _changeable(self, name: str) -> Topic:
        topic = self._required(name)
        if name in self._intents:
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"Topic '{name}' is being changed: try again.")
        return topic

    def _check_room(self, partition_count: int) -> None:
        planned = sum(
            max(entry["partitions"] - self._log_dir.partition_count(name), 0) for name, entry in self._intents.items()
        )
        room = max(self._log_dir.partition_room() - planned, 0)
        if partition_count > room:
            raise RequestRefusedError(
                ErrorCode.INVALID_PARTITIONS,
                f"{partition_count} more partitions need more open files than this process may have (RLIMIT_NOFILE): "
                f"there is room for {room}.",
            )

    @contextmanager
    def _intent(self, name: str, entry: dict[str, Any], *, is_saved: bool = False) -> Iterator[None]:
        """Keep an entry in the file while a topic is being changed, so that the next start completes it."""
        if not is_saved:
            self.save({name: entry})
        self._intents[name] = entry
        try:
            yield
        except LogError:
            del self._intents[name]
            with suppress(RequestRefusedError):
                self.save()
            raise
        del self._intents[name]

    def _publish(self, topics: dict[str, Topic]) -> None:
        self._topics = topics
        self._names = {topic.topic_id: name for name, topic in topics.items()}

    def _parse(self, properties: Mapping[str, str]) -> LogConfig:
        try:
            for name, text in properties.items():
                check_option(name, text)
            return parse_properties(properties, self._defaults)
        except ConfigError as error:
            raise RequestRefusedError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _make_partition(self, name: str, index: int, topic_id: uuid.UUID, config: LogConfig) -> Partition:
        topic_partition = TopicPartition(name, index)
        log = self._log_dir.create(topic_partition, topic_id, config, is_id_saved=True)
        log.watermark.listeners.append(lambda _: self._on_advance(topic_partition))
        return Partition(log, max(log.latest_epoch, 0))

    def _make_partitions(
        self, name: str, indexes: range, topic_id: uuid.UUID, config: LogConfig
    ) -> Changes[list[Partition]]:
        """Make partitions one by one, or none."""
        made: list[Partition] = []
        try:
            for index in indexes:
                made.append(self._make_partition(name, index, topic_id, config))
                yield
        except LogError:
            with suppress(LogError):
                for index in indexes[: len(made) + 1]:
                    self._log_dir.delete(TopicPartition(name, index))
            raise
        self._log_dir.sync()
        return made

    def _load(self) -> None:
        saved = read_saved_topics(self._path)
        counts: dict[str, int] = {}
        topics: dict[str, Topic] = {}
        for topic_partition in self._log_dir.partitions:
            counts[topic_partition.topic] = max(counts.get(topic_partition.topic, 0), topic_partition.partition + 1)
        for name in sorted({*saved, *counts}):
            entry = saved.get(name, {})
            count = max(counts.get(name, 0), entry.get("partitions", 0))
            properties = entry.get("properties", {})
            topic_id = self._log_dir.topic_ids.get(name) or decode_uuid(entry["id"])
            config = parse_properties(properties, self._defaults)
            partitions = tuple(self._make_partition(name, index, topic_id, config) for index in range(count))
            for partition in partitions:
                partition.log.config = config
            topics[name] = Topic(name, topic_id, partitions, properties)
        self._log_dir.sync()
        self._publish(topics)
        self.save()

    def save(self, intents: Mapping[str, dict[str, Any]] | None = None) -> None:
        """Write the file: what is published, with what is being changed as it is going to be.

        Args:
            intents: entries that it also gets.

        Raises:
            RequestRefusedError: 56, the disk refused.
        """
        entries = {
            name: _entry(topic.topic_id, len(topic.partitions), topic.properties)
            for name, topic in self._topics.items()
        }
        entries = {**entries, **self._planned, **self._intents, **(intents or {})}
        lines = [f"{json.dumps(name)}: {json.dumps(entries[name], sort_keys=True)}" for name in sorted(entries)]
        content = '{"version": 0, "topics": {\n' + ",\n".join(lines) + "\n}}\n"
        try:
            replace_file_durably(self._disk, self._path, content.encode())
        except OSError as error:
            raise RequestRefusedError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write {self._path}: {error}") from error


def check_name(name: str) -> None:
    """Raise RequestRefusedError 17 unless `name` is a legal topic name."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise RequestRefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {name[:260]!r} is not 1 to 249 of a-z A-Z 0-9 . _ -"
        )


def refuse_internal(name: str) -> None:
    """Raise RequestRefusedError 42 if the broker itself makes and configures the topic."""
    if name in INTERNAL_TOPICS:
        raise RequestRefusedError(
            ErrorCode.INVALID_REQUEST, f"Topic '{name}' is internal: the broker makes it and sets its options."
        )


def read_saved_topics(path: str) -> dict[str, dict[str, Any]]:
    """The entries of `topics.json`; none if it is missing.

    Raises:
        CorruptDataError: it is not what `TopicTable` writes.
    """
    try:
        topics = json.loads(read_file(path))["topics"]
        for entry in topics.values():
            decode_uuid(entry["id"]), int(entry["partitions"]), dict(entry["properties"])
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptDataError(f"{path} is damaged: {error!r}") from error
    return dict(topics)


def _run(changes: Changes[T]) -> T:
    try:
        while True:
            next(changes)
    except StopIteration as end:
        result: T = end.value
        return result


def check_count(partition_count: int) -> None:
    """Raise RequestRefusedError 37 if a topic cannot have so many partitions."""
    if not 1 <= partition_count <= MAX_PARTITIONS_OF_TOPIC:
        raise RequestRefusedError(
            ErrorCode.INVALID_PARTITIONS, f"{partition_count} partitions are not in 1..{MAX_PARTITIONS_OF_TOPIC}."
        )


def _entry(topic_id: uuid.UUID, partition_count: int, properties: Mapping[str, str]) -> dict[str, Any]:
    return {"id": encode_uuid(topic_id), "partitions": partition_count, "properties": dict(properties)}
