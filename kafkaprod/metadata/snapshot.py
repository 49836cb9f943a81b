"""The known state of a cluster: immutable, so that any thread may read it while the sender replaces it.

Partitions are columns, not objects: a topic of 10,000 partitions is a few tuples that are compared and handed to the
core as they are.
"""

from __future__ import annotations

import operator
import uuid
from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.messages.metadata import MetadataResponseTopic
from kafkaprod.structs import Node

NO_LEADER: Final = -1
NO_EPOCH: Final = -1

# Reads of a column: `map` with these is several times faster than a loop, and topics can have 10,000 partitions.
_index = operator.attrgetter("partition_index")
_leader = operator.attrgetter("leader_id")
_epoch = operator.attrgetter("leader_epoch")
_error = operator.attrgetter("error_code")


class TopicMetadata(NamedTuple):
    """A topic. Columns have one item per partition.

    Attributes:
        name: The topic's name.
        topic_uuid: None from brokers before 2.8.
        leaders: Node ids; -1 where no leader is known.
        leader_epochs: -1 where the broker does not send them (before 2.4).
        has_errors: Whether the broker reported an error for a partition.
    """

    name: str
    topic_uuid: uuid.UUID | None
    leaders: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    has_errors: bool = False

    @property
    def topic_id(self) -> bytes | None:
        """The id as 16 bytes, as requests carry it."""
        return None if self.topic_uuid is None else self.topic_uuid.bytes

    @property
    def partition_count(self) -> int:
        return len(self.leaders)

    def without_leaders(self) -> TopicMetadata:
        """Return this topic without leaders; epochs are kept, so that an older answer is still recognized."""
        return self._replace(leaders=(NO_LEADER,) * len(self.leaders))

    def is_recreation_of(self, other: TopicMetadata) -> bool:
        """Return whether both have an id and the ids differ: the topic was deleted and created again."""
        ids = (self.topic_uuid, other.topic_uuid)
        return None not in ids and self.topic_uuid != other.topic_uuid

    def with_leaders(self, changes: Mapping[int, tuple[int, int]]) -> TopicMetadata:
        """Return this topic with partition -> (leader, epoch) replaced."""
        leaders, epochs = list(self.leaders), list(self.leader_epochs)
        for partition, (leader, epoch) in changes.items():
            leaders[partition], epochs[partition] = leader, epoch
        return self._replace(leaders=tuple(leaders), leader_epochs=tuple(epochs))


class ClusterSnapshot(NamedTuple):
    """A cluster at one moment. Its mappings never change.

    Attributes:
        nodes: By node id; empty before the first answer and while starting over.
        topics: By name; only requested ones.
        cluster_id: None if the broker does not send it.
        controller_id: -1 if unknown; in KRaft clusters any live broker.
    """

    nodes: Mapping[int, Node] = MappingProxyType({})
    topics: Mapping[str, TopicMetadata] = MappingProxyType({})
    cluster_id: str | None = None
    controller_id: int = -1


def read_topic(answer: MetadataResponseTopic, known_nodes: Container[int], *, has_epochs: bool) -> TopicMetadata:
    """Read a topic of an answer.

    Args:
        answer: The topic's part of the response, without error.
        known_nodes: Node ids of the same response; a leader that is not among them counts as unknown.
        has_epochs: Whether its leader epochs are reliable (version 9 and later).

    Raises:
        CorruptDataError: The partitions are not numbered 0, 1, 2 ...
    """
    partitions = answer.partitions
    numbers = list(range(len(partitions)))
    if list(map(_index, partitions)) != numbers:
        partitions = sorted(partitions, key=_index)
        if list(map(_index, partitions)) != numbers:
            raise CorruptDataError(f"metadata of {answer.name}: {len(numbers)} partitions are not numbered from 0 up")
    leaders = tuple(map(_leader, partitions))
    if not all(leader in known_nodes for leader in set(leaders)):
        leaders = tuple(leader if leader in known_nodes else NO_LEADER for leader in leaders)
    return TopicMetadata(
        str(answer.name),
        answer.topic_id,
        leaders,
        tuple(map(_epoch, partitions)) if has_epochs else (NO_EPOCH,) * len(leaders),
        any(map(_error, partitions)),
    )


def merge_topic(known: TopicMetadata | None, received: TopicMetadata) -> tuple[TopicMetadata, bool]:
    """Merge an answer into what is known: a leader epoch never goes back, unless the topic was created again.

    An answer with fewer partitions for the same topic id is from a broker that lags behind: the rest is kept.

    Returns:
        The topic, and whether the answer was news (a new topic or partition, another leader, a higher epoch).
    """
    if known is None or received.is_recreation_of(known):
        return received, True
    count, known_count = len(received.leaders), len(known.leaders)
    leaders, epochs = received.leaders, received.leader_epochs
    if count < known_count and received.topic_uuid is not None:
        leaders += known.leaders[count:]
        epochs += known.leader_epochs[count:]
    if any(map(_is_older, epochs, known.leader_epochs)):
        older = {i for i, pair in enumerate(zip(epochs, known.leader_epochs, strict=False)) if _is_older(*pair)}
        leaders = tuple(known.leaders[i] if i in older else leader for i, leader in enumerate(leaders))
        epochs = tuple(known.leader_epochs[i] if i in older else epoch for i, epoch in enumerate(epochs))
    is_news = leaders != known.leaders or any(map(operator.gt, epochs, known.leader_epochs))
    return TopicMetadata(received.name, received.topic_uuid, leaders, epochs, received.has_errors), is_news


def _is_older(new_epoch: int, old_epoch: int) -> bool:
    return NO_EPOCH < new_epoch < old_epoch
