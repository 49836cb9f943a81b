"""kafka-python's `kafka.partitioner`, and how its partitioners run in this engine.

Three forms are taken: objects with kafka-python 3's `partition(topic, key, serialized_key, value, serialized_value,
cluster)`, callables `f(key_bytes, all_partitions, available_partitions)` of kafka-python 2, and the two that come with
it, which are this engine's own choice: murmur2 of the key, sticky without one.
"""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from kafkaprod.structs import partition_of_key


class Partitioner(ABC):
    """Chooses the partition of a record that names none."""

    @abstractmethod
    def partition(
        self, topic: str, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: Any
    ) -> int:
        """Return the partition. `cluster` has partitions_for_topic() and available_partitions_for_topic()."""


class DefaultPartitioner(Partitioner):
    """By murmur2 of the key; records without one to partitions that have a leader.

    A producer that gets one uses the engine's own choice, which is the same for keys and sticky without one. Called
    directly, it chooses by itself: `DefaultPartitioner()(key, all_partitions, available)` as kafka-python 2's.
    """

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        if key is None:
            return random.choice(list(available or all_partitions))
        return all_partitions[partition_of_key(key, len(all_partitions))]

    def partition(
        self, topic: str, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: Any
    ) -> int:
        """Return the partition."""
        everything = sorted(cluster.partitions_for_topic(topic))
        return self(serialized_key, everything, sorted(cluster.available_partitions_for_topic(topic)))


class StickyPartitioner(DefaultPartitioner):
    """The same here: the engine's choice is sticky."""


class TopicView:
    """The part of kafka-python's ClusterMetadata that a partitioner reads, for one topic."""

    def __init__(self, topic: str, partition_count: int, available: Sequence[int]) -> None:
        self._topic = topic
        self._partition_count = partition_count
        self._available = available

    def topics(self) -> set[str]:
        """Return the topic's name, in a set."""
        return {self._topic}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return all partitions; None for another topic."""
        return set(range(self._partition_count)) if topic == self._topic else None

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return those with a leader; None for another topic."""
        return set(self._available) if topic == self._topic else None


class Adapter:
    """A user's partitioner in the form that kafkaprod takes. As thread-safe as the user's.

    Args:
        partitioner: An object with `partition`, or a callable.
    """

    def __init__(self, partitioner: Any) -> None:
        self._partitioner = partitioner
        self._has_method = callable(getattr(partitioner, "partition", None))
        self._originals = threading.local()

    def note(self, key: Any, value: Any) -> None:
        """Keep the record's key and value as they were before serialization, for the call that follows."""
        self._originals.record = (key, value)

    def partition(self, topic: str, key: Any, value: Any, partition_count: int, available: Sequence[int]) -> int:
        """Return the user's choice."""
        if self._has_method:
            plain_key, plain_value = getattr(self._originals, "record", (key, value))
            view = TopicView(topic, partition_count, available)
            chosen: int = self._partitioner.partition(topic, plain_key, key, plain_value, value, view)
        else:
            chosen = self._partitioner(key, list(range(partition_count)), list(available))
        return chosen


def adapt(partitioner: Any) -> Adapter | None:
    """Return what the engine gets; None: its own choice."""
    is_own = partitioner is None or type(partitioner) in (DefaultPartitioner, StickyPartitioner)
    is_theirs = type(partitioner).__module__.startswith("kafka.partitioner")  # those of kafka-python itself
    return None if is_own or is_theirs else Adapter(partitioner)
