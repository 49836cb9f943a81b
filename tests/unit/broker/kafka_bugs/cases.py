"""What a case is, and the broker that most of them use: one partition of the replicas 1, 2 and 3, logs in memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from kafkaprod.broker.metadata.image import BrokerImage, ClusterImage, PartitionImage, PartitionKey, TopicImage
from kafkaprod.broker.replication.fetcher import FetchAnswer, Fetcher, FetchRequest
from kafkaprod.broker.replication.partition import FetchOutcome, FollowerFetch, PartitionReplica, ReplicaSettings
from kafkaprod.broker.replication.replica_manager import ReplicaManager
from kafkaprod.protocol.error_codes import ErrorCode
from tests.simulation.logs import SimulatedLog
from tests.support.clock import ManualClock

TOPIC_ID = uuid.UUID(int=1)
KEY = (TOPIC_ID, 0)
BROKER_EPOCH = 10
LAG_MS = 100


def follow_all(manager: ReplicaManager, changed: Iterable[PartitionKey], now_ms: int) -> None:
    """Follow metadata to its end."""
    manager.note_metadata(changed)
    while manager.is_behind:
        manager.work(now_ms)


Off = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """A bug of Kafka.

    Attributes:
        bug: Its number, "KAFKA-..." or "KIP-...", or its name if it has none.
        what: What went wrong.
        scenario: Passes as long as the rule is in force.
        off: Switches the rule off.
    """

    bug: str
    what: str
    scenario: Callable[[], None]
    off: Off


class Cases(list[Case]):
    """A table of cases."""

    def add(self, bug: str, what: str, off: Off) -> Callable[[Callable[[], None]], Callable[[], None]]:
        """Return a decorator that adds a scenario."""

        def add(scenario: Callable[[], None]) -> Callable[[], None]:
            self.append(Case(bug, what, scenario, off))
            return scenario

        return add


def log_of(*epochs: tuple[int, int]) -> SimulatedLog:
    """Return a log that has, for each (epoch, count), so many records of one batch each."""
    log = SimulatedLog(ManualClock())
    grow(log, *epochs)
    return log


def grow(log: SimulatedLog, *epochs: tuple[int, int]) -> None:
    """Append to a log, as `log_of`."""
    for epoch, count in epochs:
        for _ in range(count):
            log.append_as_leader(epoch, 0, -1, log.end_offset)


def fetch(offset: int, *, follower: int = 2, epoch: int = 0, last: int = -1) -> FollowerFetch:
    """Return a follower's request."""
    return FollowerFetch(follower, BROKER_EPOCH, epoch, offset, last)


class Node:
    """Broker 1."""

    def __init__(self, log: SimulatedLog | None = None, min_isr: int = 1) -> None:
        self.log = log or log_of()
        self.image = ClusterImage()
        self.image.topics[TOPIC_ID] = TopicImage("t", TOPIC_ID)
        for broker_id in (1, 2, 3):
            identity = uuid.UUID(int=broker_id)
            self.image.brokers[broker_id] = BrokerImage(broker_id, BROKER_EPOCH, identity, None, False, False)
        self.manager = ReplicaManager(
            1,
            self.image,
            lambda: BROKER_EPOCH,
            lambda _: self.log,
            lambda _: None,
            lambda _: min_isr,
            ReplicaSettings(lag_ms=LAG_MS),
        )
        self._changes = 0

    def hear(self, leader: int, epoch: int = 0, isr: tuple[int, ...] = (1, 2, 3), now_ms: int = 0) -> None:
        """Take metadata."""
        self._changes += 1
        self.image.partitions[KEY] = PartitionImage(TOPIC_ID, 0, (1, 2, 3), isr, leader, epoch, self._changes)
        follow_all(self.manager, [KEY], now_ms)

    @property
    def replica(self) -> PartitionReplica:
        """Its replica."""
        return self.manager.replicas[KEY]

    @property
    def fetcher(self) -> Fetcher:
        """Its only fetcher."""
        (fetcher,) = self.manager.fetchers.values()
        return fetcher

    def ask(self, now_ms: int = 0) -> FetchRequest:
        """Return the fetcher's next request."""
        request = self.fetcher.next_request(now_ms)
        assert request is not None
        return request

    def question(self, now_ms: int = 0) -> FollowerFetch:
        """Return what the fetcher's next request says of the partition."""
        question = self.ask(now_ms).questions[KEY]
        assert isinstance(question, FollowerFetch)
        return question


def answer(fetcher: Fetcher, request: FetchRequest, now_ms: int = 0, **outcome: Any) -> None:
    """Answer a request."""
    fetcher.on_answer(request, FetchAnswer({KEY: FetchOutcome(**({"error": ErrorCode.NONE} | outcome))}), now_ms)
