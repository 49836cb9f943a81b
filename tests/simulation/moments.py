"""Faults at the moments at which a rule of transactions matters: chance alone seldom hits them.

marker        the leader that has just written a marker, or the coordinator, ends before its followers have that
commit        the answer to a commit comes late, and another instance of the program takes over meanwhile
offsets       a program stops for a while before it commits offsets, or between that and the end of its transaction
verification  the answer of the transactions' coordinator to a leader comes when its client has given up

Each has its own probability in each seed, and all end with the other faults.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kafkaprod.broker.coordinator.coordinators import TRANSACTIONS
from kafkaprod.protocol.error_codes import ErrorCode
from tests.simulation.coordinating import CoordinatingNode
from tests.simulation.nodes import BrokerNode
from tests.simulation.transacting import TransactionalNode

if TYPE_CHECKING:
    from tests.simulation.transaction_day import TransactionDay

MARKER_MS = 12
COMMIT_MS = 30
CUTS_MS = (150, 900)
LATE_MS = (600, 1900)
PAUSES_MS = (200, 900)


class Moments:
    """See the module docstring.

    Args:
        day: Whose brokers and programs it disturbs.
    """

    def __init__(self, day: TransactionDay) -> None:
        self._day = day
        self._world = day.world
        self._is_over = False
        chance = day.world.random
        self._of_marker = chance.choice((0.0, 0.03, 0.1, 0.3))
        self._of_commit = chance.choice((0.0, 0.0, 0.1, 0.4))
        self._of_offsets = chance.choice((0.0, 0.05, 0.2))
        self._of_verification = chance.choice((0.0, 0.0, 0.1, 0.3))
        self._late_until_ms: dict[int, int] = {}
        for broker in day.brokers.values():
            assert isinstance(broker, CoordinatingNode)
            broker.on_marker = self._on_marker
            broker.lateness_of_verification = partial(self._lateness_of_verification, broker)

    def end(self) -> None:
        """Disturb nothing any more."""
        self._is_over = True

    def _is_now(self, probability: float) -> bool:
        return probability > 0.0 and not self._is_over and self._world.random.random() < probability

    def _on_marker(self, broker: CoordinatingNode) -> None:
        if self._is_now(self._of_marker):
            chance = self._world.random
            delay_ms = chance.randint(1, MARKER_MS)
            ending = chance.choice([broker, *self._coordinators()])
            self._world.at(delay_ms, lambda: self._day.end_broker(ending))

    def _coordinators(self) -> list[BrokerNode]:
        """Return the coordinator of transactions, and others that take themselves for it."""
        return [
            broker
            for broker in self._day.brokers.values()
            if broker.process.is_up and broker.handler_broker.standing.refusal(TRANSACTIONS) is ErrorCode.NONE
        ]

    def _lateness_of_verification(self, broker: CoordinatingNode) -> int:
        """Return for how long an answer waits; those after it wait until then, too: they come over one connection."""
        now_ms = self._world.now_ms
        if now_ms >= self._late_until_ms.get(broker.broker_id, 0) and self._is_now(self._of_verification):
            self._late_until_ms[broker.broker_id] = now_ms + self._world.random.randint(*LATE_MS)
        return max(self._late_until_ms.get(broker.broker_id, 0) - now_ms, 0)

    def on_offsets(self, program: TransactionalNode) -> None:
        """A program has processed its input, or is about to commit that."""
        if self._is_now(self._of_offsets):
            length_ms = self._world.random.randint(*PAUSES_MS)
            self._world.note(f"pause {program.process.name} for {length_ms}")
            program.process.paused_until_ms = self._world.now_ms + length_ms

    def on_commit(self, program: TransactionalNode) -> None:
        """A program begins to commit."""
        if not self._is_now(self._of_commit):
            return
        chance, world = self._world.random, self._world
        pairs = {(broker.process.name, program.process.name) for broker in self._day.brokers.values()}
        length_ms = chance.randint(*CUTS_MS)

        def cut() -> None:
            if not self._is_over:
                world.note(f"answers to {program.process.name} wait for {length_ms}, and its place is taken")
                world.cuts.update(pairs)
                world.at(length_ms, lambda: world.cuts.difference_update(pairs))
                self._day.start_another(program.transactional_id)

        world.at(chance.randint(0, COMMIT_MS), cut)
