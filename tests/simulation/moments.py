"""Faults at the moments at which a rule of transactions matters: chance alone seldom hits them.

marker        the leader that has just written a marker ends, before its followers have it
commit        the answer to a commit comes late, and another instance of the program takes over meanwhile
verification  the answer of the transactions' coordinator to a leader comes when its client has given up

Each has its own probability in each seed, and all end with the other faults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.coordinating import CoordinatingNode
from tests.simulation.transacting import TransactionalNode

if TYPE_CHECKING:
    from tests.simulation.transaction_day import TransactionDay

MARKER_MS = 12
COMMIT_MS = 30
CUTS_MS = (150, 900)
LATE_MS = (300, 1900)


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
        self._of_marker = chance.choice((0.0, 0.0, 0.03, 0.1))
        self._of_commit = chance.choice((0.0, 0.0, 0.1, 0.4))
        self._of_verification = chance.choice((0.0, 0.0, 0.1, 0.4))
        for broker in day.brokers.values():
            assert isinstance(broker, CoordinatingNode)
            broker.on_marker = self._on_marker
            broker.lateness_of_verification = self._lateness_of_verification

    def end(self) -> None:
        """Disturb nothing any more."""
        self._is_over = True

    def _is_now(self, probability: float) -> bool:
        return probability > 0.0 and not self._is_over and self._world.random.random() < probability

    def _on_marker(self, broker: CoordinatingNode) -> None:
        if self._is_now(self._of_marker):
            delay_ms = self._world.random.randint(1, MARKER_MS)
            self._world.at(delay_ms, lambda: self._day.end_broker(broker))

    def _lateness_of_verification(self) -> int:
        return self._world.random.randint(*LATE_MS) if self._is_now(self._of_verification) else 0

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
