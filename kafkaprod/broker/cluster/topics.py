"""The topics that a broker knows: the metadata image as the table that handlers read.

Any thread may read: each change replaces the table as a whole. Changes are records that the controller writes: of a
broker alone the one inside it (`own_topics`), of a cluster's broker another process (`replicated_topics`).
"""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kafkaprod.broker.calls.limits import MAX_TOPIC_NAME_CHARS
from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.config import MAX_PARTITIONS_OF_REQUEST, MAX_PARTITIONS_OF_TOPIC
from kafkaprod.broker.controller.context import TOPIC_RESOURCE
from kafkaprod.broker.controller.quorum import METADATA_TOPIC
from kafkaprod.broker.controller.wire import error_of
from kafkaprod.broker.metadata.image import ClusterImage, PartitionImage
from kafkaprod.broker.settings.topic_options import check_option
from kafkaprod.broker.storage.format.log_config import LogConfig, parse_properties
from kafkaprod.broker.storage.log.log_dirs import LogDirs
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkaprod.protocol.schema import Request, Response
from kafkaprod.structs import TopicPartition

if TYPE_CHECKING:
    from kafkaprod.broker.replication.partition import PartitionReplica

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
RESERVED_NAMES = INTERNAL_TOPICS | {METADATA_TOPIC}
"""Clients make no topics of these names; the last one is of the metadata log."""

INTERNAL_TOPIC_OPTIONS = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
"""The options of the coordinators' topics. Small segments: what a coordinator's log has outgrown is deleted soon."""

_SET, _DELETE = 0, 1

T = TypeVar("T")

_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{MAX_TOPIC_NAME_CHARS}}}")


class Partition:
    """A partition, as this broker knows it.

    Attributes:
        leader_epoch: Grows when the leader changes; clients that know an older one refresh their metadata.
        replica: The replica, on a cluster's broker that has one. Without it, the log is the only replica.
        image: Who leads and who is in sync.
    """

    __slots__ = ("_is_offline", "_log", "image", "leader_epoch", "replica")

    def __init__(
        self,
        log: PartitionLog | None,
        leader_epoch: int,
        replica: PartitionReplica | None,
        image: PartitionImage,
        *,
        is_offline: bool = False,
    ) -> None:
        self._log = log
        self._is_offline = is_offline  # in a log directory that could not be opened
        self.leader_epoch = leader_epoch
        self.replica = replica
        self.image = image

    @property
    def log(self) -> PartitionLog:
        """The log.

        Raises:
            RequestRefusedError: NOT_LEADER_OR_FOLLOWER, this broker has no replica of the partition;
                KAFKA_STORAGE_ERROR, its log directory could not be opened.
        """
        if self._is_offline:
            raise RequestRefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "The partition's log directory is offline.")
        if self._log is None:
            raise RequestRefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This broker has no replica of the partition.")
        return self._log

    @property
    def has_log(self) -> bool:
        """Whether this broker has a replica."""
        return self._log is not None

    @property
    def is_offline(self) -> bool:
        """Whether the log directory of this broker's replica cannot be used."""
        return self._is_offline if self._log is None else self._log.is_offline

    @property
    def epoch_start_offset(self) -> int:
        """Where the leader's epoch begins in its log; 0 of a broker alone."""
        return 0 if self.replica is None else self.replica.epoch_start_offset

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.has_log or self._is_offline if self.replica is None else self.replica.is_leader


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


class TopicTable(ABC):
    """See the module docstring.

    Attributes:
        image: The metadata.
        ask_controller: Sends a request and waits for the answer, None if there is none; not for the event loop.
    """

    def __init__(
        self, log_dirs: LogDirs, image: ClusterImage, defaults: LogConfig, on_advance: Callable[[TopicPartition], None]
    ) -> None:
        """Make an empty table.

        Args:
            log_dirs: Hold the partitions.
            image: The metadata.
            defaults: Options of topics without their own.
            on_advance: Called with each partition whose high watermark moved; must not block.
        """
        self.image = image
        self.ask_controller: Callable[[Request], Response | None] = lambda _: None
        self._log_dirs = log_dirs
        self._defaults = defaults
        self._on_advance = on_advance
        self._topics: dict[str, Topic] = {}
        self._names: dict[uuid.UUID, str] = {}
        self._names_by_metric: dict[str, str] = {}  # see `_metric_name`
        self._changing: dict[str, int] = {}  # how many partitions the topics will have that are being changed

    # -- reading -------------------------------------------------------------------------------------------------------

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
        return name in self._changing

    # -- changing ------------------------------------------------------------------------------------------------------

    def check_new(self, name: str, partition_count: int, properties: Mapping[str, str]) -> LogConfig:
        """The options a topic would have.

        Raises:
            RequestRefusedError: INVALID_TOPIC_EXCEPTION (bad name), TOPIC_ALREADY_EXISTS,
                INVALID_PARTITIONS (bad count), INVALID_CONFIG (bad options).
        """
        check_name(name)
        if name in self._topics or name in self._changing:
            raise RequestRefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        changing = {_metric_name(other): other for other in self._changing}
        collided = self._names_by_metric.get(_metric_name(name)) or changing.get(_metric_name(name))
        if collided is not None:
            raise RequestRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with '{collided}'.")
        check_count(partition_count)
        self._check_room(partition_count)
        return self._parse(properties)

    @abstractmethod
    def deleting(self, name: str) -> Changes[None]:
        """Delete a topic and its data; `sync` comes after it.

        Raises:
            RequestRefusedError: UNKNOWN_TOPIC_OR_PARTITION, there is none; INVALID_REQUEST, it is internal, or being
                changed.
            LogError: KAFKA_STORAGE_ERROR, the disk refused; a part may be gone.
        """

    @abstractmethod
    def sync(self) -> None:
        """Bring the changes of topics to the disk, where this broker keeps them.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the disk refused.
        """

    def set_properties(self, name: str, properties: Mapping[str, str], *, validate_only: bool) -> None:
        """Have the controller replace the options set on a topic.

        Raises:
            RequestRefusedError: UNKNOWN_TOPIC_OR_PARTITION, there is no such topic; INVALID_CONFIG, bad options;
                INVALID_REQUEST, it is being changed; REQUEST_TIMED_OUT, the controller does not answer;
                KAFKA_STORAGE_ERROR, its disk refused.
            LogError: KAFKA_STORAGE_ERROR, the disk refused.
        """
        before = self._changeable(name).properties
        self._parse(properties)
        changes = [
            AlterableConfig(name=option, config_operation=_SET, value=value)
            for option, value in properties.items()
            if before.get(option) != value
        ]
        changes += [
            AlterableConfig(name=option, config_operation=_DELETE) for option in before if option not in properties
        ]
        if validate_only or not changes:
            return
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=changes)
        response = self.ask_controller(IncrementalAlterConfigsRequest(resources=[resource]))
        results = response.responses if isinstance(response, IncrementalAlterConfigsResponse) else []
        check_answers([(result.error_code, result.error_message) for result in results])
        self._show_properties(name, properties)

    def set_defaults(self, defaults: LogConfig) -> None:
        """Change the options of topics that do not set their own."""
        self._defaults = defaults
        for topic in self._topics.values():
            config = parse_properties(topic.properties, defaults)
            for partition in topic.partitions:
                if partition.has_log:
                    partition.log.config = config

    def move_leader(self, name: str, index: int) -> None:
        """Pretend that the leader of a partition changed and came back (fault scripts only)."""
        partition = self.partition(name, index)
        if partition is not None:
            partition.leader_epoch += 1

    # -- inside --------------------------------------------------------------------------------------------------------

    def _required(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise RequestRefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"This server does not host topic '{name}'."
            )
        return topic

    def _changeable(self, name: str) -> Topic:
        topic = self._required(name)
        if name in self._changing:
            raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"Topic '{name}' is being changed: try again.")
        return topic

    def _check_room(self, partition_count: int) -> None:
        planned = sum(max(count - self._log_dirs.partition_count(name), 0) for name, count in self._changing.items())
        room = max(self._log_dirs.partition_room() - planned, 0)
        if partition_count > room:
            raise RequestRefusedError(
                ErrorCode.INVALID_PARTITIONS,
                f"{partition_count} more partitions need more open files than this process may have (RLIMIT_NOFILE): "
                f"there is room for {room}.",
            )

    def _publish(self, topics: dict[str, Topic], changed: Iterable[str]) -> None:
        """Show topics of which those with the names `changed` are others than before."""
        names, by_metric = self._names.copy(), self._names_by_metric.copy()
        for name in changed:
            before, now = self._topics.get(name), topics.get(name)
            if before is not None:
                names.pop(before.topic_id, None)
                by_metric.pop(_metric_name(name), None)
            if now is not None:
                names[now.topic_id] = by_metric[_metric_name(name)] = name
        self._topics, self._names, self._names_by_metric = topics, names, by_metric

    def _parse(self, properties: Mapping[str, str]) -> LogConfig:
        try:
            for name, text in properties.items():
                check_option(name, text)
            return parse_properties(properties, self._defaults)
        except ConfigError as error:
            raise RequestRefusedError(ErrorCode.INVALID_CONFIG, str(error)) from error

    @abstractmethod
    def _show_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Take the options of a topic over that the controller has changed."""

    def _properties(self, name: str) -> Mapping[str, str]:
        return dict(self.image.configs.get((TOPIC_RESOURCE, name), {}))

    def _config_of(self, name: str) -> LogConfig:
        properties = self._properties(name)
        return self._parse(properties) if properties else self._defaults


def is_legal_name(name: str) -> bool:
    """Whether a topic may have that name."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


def _metric_name(name: str) -> str:
    """Return what a topic is called in Kafka's metrics, where two topics must not have one name."""
    return name.replace(".", "_")


def check_name(name: str) -> None:
    """Raise RequestRefusedError INVALID_TOPIC_EXCEPTION unless `name` is a legal topic name."""
    if not is_legal_name(name):
        raise RequestRefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {name[:260]!r} is not 1 to 249 of a-z A-Z 0-9 . _ -"
        )


def refuse_internal(name: str) -> None:
    """Raise RequestRefusedError INVALID_REQUEST if the broker itself makes and configures the topic."""
    if name in RESERVED_NAMES:
        raise RequestRefusedError(
            ErrorCode.INVALID_REQUEST, f"Topic '{name}' is internal: the broker makes it and sets its options."
        )


def check_answers(results: Sequence[tuple[int, str | None]]) -> None:
    """Raise the error of the controller's answer; no answer is a timeout."""
    code, message = results[0] if results else (int(ErrorCode.REQUEST_TIMED_OUT), "The controller does not answer.")
    if code:
        raise RequestRefusedError(error_of(code), message or "")


def check_count(partition_count: int) -> None:
    """Raise RequestRefusedError INVALID_PARTITIONS if a topic cannot have so many partitions."""
    if not 1 <= partition_count <= MAX_PARTITIONS_OF_TOPIC:
        raise RequestRefusedError(
            ErrorCode.INVALID_PARTITIONS, f"{partition_count} partitions are not in 1..{MAX_PARTITIONS_OF_TOPIC}."
        )


def check_total(added: int) -> None:
    """Raise RequestRefusedError POLICY_VIOLATION if a request makes too many partitions, as Kafka's controller does."""
    if added > MAX_PARTITIONS_OF_REQUEST:
        raise RequestRefusedError(
            ErrorCode.POLICY_VIOLATION,
            f"The request makes {added} partitions, more than {MAX_PARTITIONS_OF_REQUEST}: split it.",
        )
