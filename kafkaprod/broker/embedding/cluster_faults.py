"""What tests do to an embedded cluster as a whole: ISRs made small, and faults drawn by a seed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence

from kafkaprod.broker.embedding import arguments
from kafkaprod.broker.embedding.chaos import KINDS, Chaos
from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError
from kafkaprod.broker.embedding.cluster_links import ClusterLinks
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker
from kafkaprod.broker.embedding.cluster_state import ClusterState
from kafkaprod.broker.embedding.disturbance import Disturbance
from kafkaprod.broker.peers.rules import CONTROLLER
from kafkaprod.errors import IllegalStateError


class ClusterFaults:
    """Breaks a cluster as a whole. `EmbeddedCluster` describes the arguments."""

    def __init__(self, state: ClusterState, links: ClusterLinks) -> None:
        self._state = state
        self._links = links
        self._chaos: list[Chaos] = []

    @property
    def brokers(self) -> list[ClusterBroker]:
        """All brokers, by id from 1."""
        return self._state.brokers

    def shrink_isr(self, topic: str, partition: int, to: int = 1) -> Disturbance:
        """Cut followers off from a partition's leader until its ISR has `to` members."""
        arguments.whole("to", to, 1)
        leader, followers = self._state.leader(topic, partition), self._state.followers(topic, partition)
        cuts = [
            self._links.cut(follower.id, end)
            for follower in followers[: max(0, len(followers) + 1 - to)]
            for end in (leader.id, CONTROLLER)
        ]
        self._state.wait_for(lambda view: len(view.isr(topic, partition)) <= to)

        def heal() -> None:
            for cut in cuts:
                cut.heal()

        return Disturbance(heal)

    def chaos(self, seed: int, kinds: Sequence[str] = KINDS, period_ms: int = 500) -> Chaos:
        """Break the cluster again and again, from now until the end of what it returns."""
        if not self._state.is_running:
            raise IllegalStateError("the embedded cluster does not run")
        chaos = Chaos(self, seed, kinds, period_ms)
        self._chaos.append(chaos)
        return chaos

    def restore(self) -> None:
        """Undo what tests did: end chaos, heal links, clear faults, run what is stopped or paused, wait until in sync.

        Raises:
            EmbeddedBrokerError: A process did not start, or the cluster did not come into sync in 30 s.
        """
        with contextlib.suppress(EmbeddedBrokerError, OSError):  # what the test stopped was in its way
            self.end_chaos()
        for process in (self._state.controller, *self.brokers):
            if process.is_running:
                process.resume()
            else:
                process.start()
        self._links.heal()
        for broker in self.brokers:
            broker.faults.clear()
        self._state.wait_for(lambda view: len(view.active_brokers) == len(self.brokers))
        self._state.wait_until_in_sync()

    def end_chaos(self) -> None:
        """End what `chaos` began and no `with` block ends."""
        while self._chaos:
            self._chaos.pop().end()

    def roll(self) -> None:
        """Restart the brokers one after another, each when all is in sync."""
        for broker in self.brokers:
            broker.restart()
            self._state.wait_until_in_sync()

    def do_fault(
        self, kind: str, broker: ClusterBroker, dice: random.Random, wait: Callable[[], object] = lambda: None
    ) -> None:
        """Do one fault of `chaos` to a broker, wait, undo it, and wait until all is in sync.

        Raises:
            EmbeddedBrokerError: The cluster did not come into sync.
        """
        others = [other for other in self.brokers if other is not broker]
        if kind in ("kill", "power cut"):
            if kind == "kill":
                broker.kill()
            else:
                broker.power_cut(dice.randrange(1 << 30))
            wait()
            broker.start()
        elif kind == "pause":
            with broker.pause():
                wait()
        elif kind == "roll":
            broker.restart()
        elif kind == "isolate" or not others:
            with self._links.isolate(broker.id):
                wait()
        else:
            targets: list[int | str] = [CONTROLLER, *(other.id for other in others)]
            with self._links.cut(broker.id, dice.choice(targets), one_way=kind == "one-way cut"):
                wait()
        self._state.wait_until_in_sync(60)
