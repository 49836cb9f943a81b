"""What a run of the benchmark of sick brokers sends, to what, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

PARTITIONS = 6
RATE = 3_000  # records a second
LIST = 60  # records of a list, or of columns
TRANSACTION = 50  # records of one; those of a second fill whole ones
VALUE = b"x" * 1000
WARM_S, GRACE_S, SECONDS, AFTER_S = 1.0, 2.5, 8.0, 0.5
MEMORY = 6 << 20
OPTIONS = {"buffer_memory": MEMORY, "linger_ms": 5}


class Broker(Protocol):
    """One of the three."""

    id: int

    def pause(self) -> Any:
        """Stop its process."""

    def resume(self) -> None:
        """Let it go on."""

    def kill(self) -> None:
        """End it at once."""


class Cluster(Protocol):
    """Three brokers: embedded ones, or Apache Kafka's."""

    bootstrap_servers: str

    def leader(self, topic: str, partition: int) -> Broker:
        """Return the broker that leads a partition."""


class Tally:
    """What became of the records of one run."""

    def __init__(self, topic: str, healthy: set[int], counts_all: bool) -> None:
        self.topic, self.healthy, self.counts_all = topic, healthy, counts_all
        self.first = time.monotonic() + WARM_S + GRACE_S
        self.end = self.first + SECONDS
        self.latencies: list[float] = []
        self.longest_s = 0.0

    def counts(self, partition: int | None, due: float) -> bool:
        """Whether a record belongs to what is measured."""
        return self.first <= due < self.end and (self.counts_all or partition in self.healthy)

    def called(self, partition: int | None, due: float, began: float) -> None:
        """Note how long a call took."""
        if self.counts(partition, due):
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def acknowledged(self, partition: int | None, due: float, count: int = 1) -> None:
        """Note that records were acknowledged, if that was in time."""
        now = time.monotonic()
        if self.counts(partition, due) and now < self.end + AFTER_S:
            self.latencies += [now - due] * count

    def settled(self, done: Any, partition: int | None, due: float) -> None:
        """Note the outcome of one record."""
        if done.exception() is None:
            self.acknowledged(partition, due)

    def row(self) -> tuple[float, float, float, float]:
        """Goodput in %, longest call, median and p99 in ms."""
        meant = RATE * SECONDS * (1 if self.counts_all else len(self.healthy) / PARTITIONS)
        ordered = sorted(self.latencies) or [0.0]
        p50_s, p99_s = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
        return 100 * len(self.latencies) / meant, self.longest_s * 1000, p50_s * 1000, p99_s * 1000


def schedule(tally: Tally, rate: float) -> Iterator[tuple[int, float]]:
    """Yield numbers, each when it is due; what a wait has missed is left out."""
    begin, number = tally.first - WARM_S - GRACE_S, 0
    while True:
        due = begin + number / rate
        now = time.monotonic()
        if now >= tally.end:
            return
        if due > now:
            time.sleep(due - now)
        elif now - due > 1:
            number += int((now - due) * rate)
            continue
        yield number, due
        number += 1


Run = Callable[[Tally], None]
"""Sends, and notes what becomes of it."""
