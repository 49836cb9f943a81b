"""What real producers were told, compared with what brokers acknowledged and with what is in the logs.

outcome      each record has exactly one, and none is outstanding at the end
delivered    what a producer says is delivered was acknowledged by a leader, at that offset
certain      what failed, and is certainly not written, is in no log
once         what an idempotent producer sent is in a partition at most once
order        what an idempotent producer sent is in a partition in the order it was sent
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NoReturn

from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.errors import KafkaError
from tests.simulation.checker import ViolationError
from tests.simulation.logs import SimulatedLog
from tests.simulation.world import World

PRODUCER_STEP = 1_000_000_000
UNKNOWN_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Promise:
    """What a producer promises."""

    is_idempotent: bool
    acks: int


class Outcomes:
    """See the module docstring."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._producers: dict[int, Promise] = {}
        self._open: dict[int, int] = {}
        self._delivered: dict[int, tuple[int, int]] = {}
        self._absent: dict[int, str] = {}
        self._acknowledged: dict[int, set[tuple[PartitionKey, int]]] = defaultdict(set)
        self.failed_count = 0

    @property
    def delivered_count(self) -> int:
        """Records that were delivered."""
        return len(self._delivered)

    @property
    def open_count(self) -> int:
        """Records without an outcome."""
        return len(self._open)

    def add_producer(self, number: int, *, is_idempotent: bool, acks: int) -> None:
        """A producer begins."""
        self._producers[number] = Promise(is_idempotent, acks)

    def fail(self, text: str) -> NoReturn:
        """Report a violation."""
        raise ViolationError(text)

    def sent(self, value: int, partition: int) -> None:
        """A record was given to a producer."""
        self._open[value] = partition

    def acknowledged(self, key: PartitionKey, offset: int, value: int) -> None:
        """A leader acknowledged a record."""
        self._acknowledged[value].add((key, offset))

    def delivered(self, value: int, partition: int, offset: int) -> None:
        """A record's outcome is success."""
        self._settle(value)
        self._delivered[value] = (partition, offset)
        promise = self._producers[value // PRODUCER_STEP]
        known = {(key[1], place) for key, place in self._acknowledged[value]}
        if promise.acks == -1 and offset == UNKNOWN_OFFSET:
            if partition not in {index for index, _ in known}:
                self.fail(f"delivered: {value}, which no leader of partition {partition} has acknowledged")
        elif promise.acks == -1 and (partition, offset) not in known:
            self.fail(f"delivered: {value} at {offset} of partition {partition}; acknowledged: {sorted(known)}")

    def failed(self, value: int, error: KafkaError) -> None:
        """A record's outcome is an error."""
        self._settle(value)
        self.failed_count += 1
        self._world.note(f"{value} failed: {error}")
        if not error.possibly_persisted:
            self._absent[value] = str(error)

    def forget(self, number: int) -> None:
        """The program of a producer ends: nobody waits for its outcomes."""
        for value in [value for value in self._open if value // PRODUCER_STEP == number]:
            del self._open[value]

    def _settle(self, value: int) -> None:
        self._world.trace(b"outcome %d" % value)
        if self._open.pop(value, None) is None:
            self.fail(f"outcome: {value} has more than one")

    def check_log(self, key: PartitionKey, log: SimulatedLog) -> None:
        """Check a partition's log at the end."""
        last: dict[int, int] = {}
        for offset, value in enumerate(log.values, log.log_start_offset):
            number = value // PRODUCER_STEP
            promise = self._producers.get(number)
            if promise is None:
                continue
            if value in self._absent:
                self.fail(f"certain: {value} is at {offset}, though it failed: {self._absent[value]}")
            if promise.is_idempotent:
                before = last.get(number, -1)
                if value == before or (value < before and value in log.values[: offset - log.log_start_offset]):
                    self.fail(f"once: {value} is again at {offset} of partition {key[1]}")
                if value < before:
                    self.fail(f"order: {value} is at {offset} of partition {key[1]}, behind {before}")
                last[number] = value

    def check_end(self) -> None:
        """Check that nothing is outstanding."""
        if self._open:
            value = min(self._open)
            self.fail(f"outcome: {len(self._open)} records have none, the first is {value}")
