"""A producer that sends numbered records to all partitions of a topic while a test breaks things."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from kafkaprod import Producer


class Load:
    """Sends in a thread of its own, waits for nothing, and notes what was acknowledged."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, **options: Any) -> None:
        self.acknowledged: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
        self.failed: list[str] = []
        self._producer = Producer(
            bootstrap_servers=bootstrap_servers,
            **{"acks": "all", "linger_ms": 2, "delivery_timeout_ms": 60_000, "request_timeout_ms": 1_500, **options},
        )
        self.topic = topic
        self._partitions = partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self._more = threading.Condition()

    @property
    def count(self) -> int:
        """How many records have been acknowledged."""
        return sum(map(len, self.acknowledged.values()))

    @property
    def in_order(self) -> dict[int, list[bytes]]:
        """What was acknowledged, in the order in which it was sent.

        Where a leader changed before it had answered, a record may be acknowledged after the one that follows it.
        """
        return {index: sorted(values, key=_number) for index, values in self.acknowledged.items()}

    def wait_for_more(self, records: int = 200, timeout_s: float = 30.0) -> None:
        """Wait until so many more records are acknowledged in each partition."""
        goals = {index: len(values) + records for index, values in self.acknowledged.items()}
        with self._more:
            is_there = self._more.wait_for(
                lambda: all(len(self.acknowledged[index]) >= goal for index, goal in goals.items()), timeout_s
            )
        assert is_there, f"{ {i: len(v) for i, v in self.acknowledged.items()} } of {goals}; failed: {self.failed[:3]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.close(timeout=30)

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.wait(0.001):
                return
            for partition in range(self._partitions):
                value = b"%d-%d" % (partition, number)
                future = self._producer.send(self.topic, value, partition=partition)
                future.add_done_callback(self._noter(partition, value))

    def _noter(self, partition: int, value: bytes) -> Callable[..., None]:
        def note(future: Any) -> None:
            error = future.exception()
            with self._more:
                if error is None:
                    self.acknowledged[partition].append(value)
                else:
                    self.failed.append(f"{type(error).__name__}: {error}")
                self._more.notify_all()

        return note


def _number(value: bytes) -> int:
    return int(value.rpartition(b"-")[2])
