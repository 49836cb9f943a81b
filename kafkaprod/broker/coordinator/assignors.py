"""Server-side assignors of the consumer protocol: who gets which partitions.

uniform  the same number for each member, as far as subscriptions allow, and as few moves as possible
range    for each topic a run of neighbouring partitions for each subscriber, in the order of the members

Pure functions. Source: KIP-848; what they promise is Kafka's, how they find it is not.
"""

from __future__ import annotations

import heapq
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from kafkaprod.broker.coordinator.consumer_member import Assignment, TopicIdPartition


class Subscriber(NamedTuple):
    """A member as the assignors see it.

    Attributes:
        topic_ids: Existing topics that it wants.
        current: Its target so far.
    """

    instance_id: str | None
    topic_ids: frozenset[uuid.UUID]
    current: Assignment


Subscribers = Mapping[str, Subscriber]
PartitionCounts = Mapping[uuid.UUID, int]
Assignor = Callable[[Subscribers, PartitionCounts], dict[str, Assignment]]


def assign_range(subscribers: Subscribers, counts: PartitionCounts) -> dict[str, Assignment]:
    """Give each subscriber of a topic a run of its partitions; the first ones get one more if they do not divide."""
    shares: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in subscribers}
    for topic_id, member_ids in _subscribers_of_topics(subscribers).items():
        quota, extra = divmod(counts[topic_id], len(member_ids))
        start = 0
        for place, member_id in enumerate(member_ids):
            end = start + quota + (place < extra)
            shares[member_id].update(TopicIdPartition(topic_id, index) for index in range(start, end))
            start = end
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def assign_uniform(subscribers: Subscribers, counts: PartitionCounts) -> dict[str, Assignment]:
    """Keep what members have, give what is left to those with the least, and even out what differs by more than one."""
    by_topic = _subscribers_of_topics(subscribers)
    owners = _kept(subscribers, counts)
    loads = dict.fromkeys(subscribers, 0)
    for member_id in owners.values():
        loads[member_id] += 1
    lightest = _Lightest(by_topic, loads)
    # Topics with the fewest subscribers first: the others have more choice.
    for topic_id in sorted(by_topic, key=lambda topic_id: (len(by_topic[topic_id]), topic_id)):
        for index in range(counts[topic_id]):
            partition = TopicIdPartition(topic_id, index)
            if partition not in owners:
                owner = lightest.of_topic(topic_id)
                owners[partition] = owner
                loads[owner] += 1
    _balance(owners, loads, by_topic)
    shares: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in subscribers}
    for partition, member_id in owners.items():
        shares[member_id].add(partition)
    return {member_id: frozenset(share) for member_id, share in shares.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By name, the default first."""

DEFAULT_ASSIGNOR: Final = next(iter(ASSIGNORS))


class _Lightest:
    """Finds the subscriber of a topic with the fewest partitions.

    A load that has become smaller since this was made is seen only when it would have been found with the larger one.
    """

    def __init__(self, by_topic: Mapping[uuid.UUID, list[str]], loads: Mapping[str, int]) -> None:
        self._loads = loads
        heaps: dict[tuple[str, ...], list[tuple[int, int, str]]] = {}  # topics with the same subscribers share one
        self._heaps = {}
        for topic_id, member_ids in by_topic.items():
            heap = heaps.setdefault(tuple(member_ids), [])
            if not heap:
                heap.extend((loads[member_id], place, member_id) for place, member_id in enumerate(member_ids))
                heapq.heapify(heap)
            self._heaps[topic_id] = heap

    def of_topic(self, topic_id: uuid.UUID) -> str:
        """Return the member; the first one in order if several have as few."""
        heap = self._heaps[topic_id]
        while True:
            load, place, member_id = heap[0]
            if load == self._loads[member_id]:
                return member_id
            heapq.heapreplace(heap, (self._loads[member_id], place, member_id))


def _in_order(subscribers: Subscribers) -> list[str]:
    """The members: static ones by instance id, then the others by member id."""
    return sorted(
        subscribers,
        key=lambda member_id: (
            subscribers[member_id].instance_id is None,
            subscribers[member_id].instance_id or member_id,
        ),
    )


def _subscribers_of_topics(subscribers: Subscribers) -> dict[uuid.UUID, list[str]]:
    found: dict[uuid.UUID, list[str]] = defaultdict(list)
    for member_id in _in_order(subscribers):
        for topic_id in subscribers[member_id].topic_ids:
            found[topic_id].append(member_id)
    return found


def _kept(subscribers: Subscribers, counts: PartitionCounts) -> dict[TopicIdPartition, str]:
    """Partition -> who has it and still wants it. One that two have (after a restart) stays with the first."""
    owners: dict[TopicIdPartition, str] = {}
    for member_id, subscriber in subscribers.items():
        for partition in sorted(subscriber.current):
            if partition.topic_id in subscriber.topic_ids and partition.partition < counts[partition.topic_id]:
                owners.setdefault(partition, member_id)
    return owners


def _balance(
    owners: dict[TopicIdPartition, str], loads: dict[str, int], by_topic: Mapping[uuid.UUID, list[str]]
) -> None:
    """Move partitions to members that have at least two less, until there is none. Each move makes loads more equal."""
    has_moved = True
    while has_moved:
        has_moved = False
        lightest = _Lightest(by_topic, loads)
        for partition in _from_the_fullest(owners, loads):
            owner = owners[partition]
            taker = lightest.of_topic(partition.topic_id)
            if loads[owner] - loads[taker] > 1:
                owners[partition] = taker
                loads[owner] -= 1
                loads[taker] += 1
                has_moved = True


def _from_the_fullest(owners: Mapping[TopicIdPartition, str], loads: Mapping[str, int]) -> Iterable[TopicIdPartition]:
    """Those that may have to move: of members with at least two more than the emptiest one; from the end of a topic."""
    lowest = min(loads.values(), default=0)
    candidates = [partition for partition, owner in owners.items() if loads[owner] > lowest + 1]
    return sorted(
        candidates, key=lambda partition: (-loads[owners[partition]], partition.topic_id, -partition.partition)
    )
