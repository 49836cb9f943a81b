"""A program that sends at a steady rate, waits for nothing, and notes what becomes of its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kafkaprod._core.queues.completion import DeliveryFuture
from tests.simulation.nodes import BrokerNode
from tests.simulation.outcomes import Outcomes
from tests.simulation.producing import EngineNode
from tests.simulation.serving import PORT
from tests.simulation.world import World

TOPIC = "events"


@dataclass(frozen=True, slots=True)
class Load:
    """What a program sends.

    Attributes:
        per_s: Records a second.
        size: Bytes of a value.
        way: "any": without a key; "each": to each partition in turn; "first": to the first one.
        options: Of its producer, besides USUAL_OPTIONS.
    """

    per_s: int
    size: int
    way: str = "any"
    options: Mapping[str, Any] = field(default_factory=dict)


USUAL_OPTIONS: Mapping[str, Any] = {
    "enable_idempotence": True,
    "linger_ms": 5,
    "request_timeout_ms": 30_000,
    "delivery_timeout_ms": 120_000,
    "partitioner_availability_timeout_ms": 500,
}


@dataclass(frozen=True, slots=True)
class Sent:
    """A record: its partition, when it was sent and when it was delivered."""

    partition: int
    sent_ms: int
    done_ms: int


class SteadyNode(EngineNode):
    """A program that sends at a steady rate, waits for nothing, and notes what becomes of its records.

    Attributes:
        delivered: Records that arrived.
        errors: How many failed, by the name of the error.
        refused: How many found no memory, by partition.
        taken: How many did, by partition.
    """

    def __init__(self, world: World, brokers: dict[int, BrokerNode], outcomes: Outcomes, load: Load) -> None:
        self._load = load
        self._due = 0.0
        self.delivered: list[Sent] = []
        self.errors: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()
        self.taken: Counter[int] = Counter()
        super().__init__(world, brokers, outcomes, 0, TOPIC)

    def _options(self, hosts: list[str]) -> dict[str, Any]:
        return {
            "bootstrap_servers": ",".join(f"{host}:{PORT}" for host in hosts),
            **USUAL_OPTIONS,
            **self._load.options,
        }

    def send_to_first(self) -> None:
        """Send to the first partition only, from now on."""
        self._load = replace(self._load, way="first")

    def _send_some(self) -> None:
        if self.is_stopping:
            return
        self._due += self._load.per_s / 1000
        while self._due >= 1:
            self._due -= 1
            self._send()
        self.world.in_process(self.process, 1, self._send_some)

    def _send(self) -> None:
        queues = self.engine.accumulator.topics[self.topic]
        value = self._first + self._count
        partition = {"any": -1, "each": self._count % queues.partition_count, "first": 0}[self._load.way]
        body = b"%d " % value + b"x" * self._load.size
        future = self.engine.accumulator.append(queues, None, body, None, partition, self.wall_ms(), self.now_ms(), 0)
        if future is None:
            self.refused[partition] += 1
            self._count += 1  # the next partition
            return
        self.taken[future.partition] += 1
        self._took(value, future)

    def _settled(self, value: int, done: DeliveryFuture) -> None:
        super()._settled(value, done)
        error = done.peek_error()
        if error is not None:
            self.errors[type(error).__name__] += 1

    def _took(self, value: int, future: DeliveryFuture) -> None:
        sent_ms = self.world.now_ms

        def note(done: DeliveryFuture) -> None:
            if done.peek_error() is None:
                self.delivered.append(Sent(done.partition, sent_ms, self.world.now_ms))

        super()._took(value, future)
        future.add_done_callback(note)
