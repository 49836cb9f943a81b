"""Simple producers of a simulated cluster. Every acknowledgement goes to the checker."""

from __future__ import annotations

from collections.abc import Callable

from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.protocol.error_codes import ErrorCode
from tests.simulation.checker import Checker
from tests.simulation.nodes import BrokerNode
from tests.simulation.world import World

TIMEOUT_MS = 200
RETRY_MS = 30


class SimulatedProducer:
    """Sends numbered records to one partition, one at a time, each until it is acknowledged.

    Idempotent ones keep the sequence over retries; others (acks=1) send each record once and forget it.
    """

    def __init__(
        self, world: World, brokers: dict[int, BrokerNode], checker: Checker, key: PartitionKey, number: int, acks: int
    ) -> None:
        self.world = world
        self.brokers = brokers
        self.checker = checker
        self.key = key
        self.number = number
        self.producer_id = number
        self.sequence = 0
        self.acks = acks
        self.process = world.process(f"producer {number}")
        self.process.is_up = True
        self.sent_count = 0
        self.is_stopping = False
        self.attempt = 0
        world.in_process(self.process, world.random.randint(1, 50), self._send_next)

    @property
    def is_idle(self) -> bool:
        """Whether the last record has its outcome and no other follows."""
        return self.is_stopping and self.attempt == 0

    def _send_next(self) -> None:
        if self.is_stopping:
            self.attempt = 0
            return
        value = self.number * 1_000_000 + self.sent_count
        self.sent_count += 1
        self._try(value)

    def _try(self, value: int) -> None:
        self.attempt += 1
        attempt = self.attempt

        def again() -> None:
            if self.attempt == attempt:
                self._try(value)

        def answered(error: ErrorCode, epoch: int) -> None:
            if self.attempt != attempt:
                return
            if error == ErrorCode.NONE:
                if self.acks == -1:
                    self.sequence += 1
                self._rest()
                return
            if error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self.checker.is_lost_sequence(self.key, epoch):
                # What came before is gone: only a power cut can have taken it. A new producer id begins again.
                self.producer_id += 1000
                self.sequence = 0
            if self.acks == -1:
                self.world.in_process(self.process, RETRY_MS, again)
            else:
                self._rest()

        leader = self._leader()
        if leader is not None:
            self._send(leader, value, answered)
        if self.acks == -1:
            self.world.in_process(self.process, TIMEOUT_MS, again)
        else:
            self.world.in_process(self.process, TIMEOUT_MS, lambda: answered(ErrorCode.REQUEST_TIMED_OUT, -1))

    def _rest(self) -> None:
        self.attempt += 1_000_000  # answers to earlier attempts are too late now
        self.world.in_process(self.process, self.world.random.randint(0, 12), self._send_next)

    def _send(self, leader: BrokerNode, value: int, answered: Callable[[ErrorCode, int], None]) -> None:
        producer_id = self.producer_id
        sequence = self.sequence if self.acks == -1 else -1

        def answer(error: ErrorCode, offset: int, epoch: int) -> None:
            if error == ErrorCode.NONE and self.acks == -1:
                self.checker.acknowledged(self.key, offset, value, epoch)
            self.world.send(leader.process, self.process, lambda: answered(error, epoch))

        self.world.send(
            self.process,
            leader.process,
            lambda: leader.produce(self.key, producer_id, sequence, value, self.acks, answer),
        )

    def _leader(self) -> BrokerNode | None:
        """Return the leader that some broker's metadata names, which may be old."""
        up = [broker for broker in self.brokers.values() if broker.process.is_up]
        if not up:
            return None
        partition = self.world.random.choice(up).follower.image.partitions.get(self.key)
        return None if partition is None else self.brokers.get(partition.leader)
