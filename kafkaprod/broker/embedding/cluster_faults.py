"""What tests do to an embedded cluster as a whole: ISRs made small, and faults drawn by a seed."""

from __future__ import annotations

import contextlib
import random
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal

from kafkaprod.broker.embedding import arguments
from kafkaprod.broker.embedding.chaos import KINDS, Chaos
from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError
from kafkaprod.broker.embedding.cluster_links import LinkControls
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker, ClusterProcess
from kafkaprod.broker.embedding.cluster_view import ClusterView
from kafkaprod.broker.embedding.disturbance import Disturbance
from kafkaprod.broker.peers.rules import CONTROLLER
from kafkaprod.errors import IllegalStateError


class ClusterFaults(LinkControls):
    """The part of `EmbeddedCluster` that breaks it."""

    brokers: list[ClusterBroker]
    controller: ClusterProcess

    def __init__(self) -> None:
        super().__init__()
        self._chaos: list[Chaos] = []

    @abstractmethod
    def leader(self, topic: str, partition: int) -> ClusterBroker:
        """Return a partition's leader; wait until it has one."""

    @abstractmethod
    def followers(self, topic: str, partition: int) -> list[ClusterBroker]:
        """Return a partition's replicas that do not lead it."""

    @abstractmethod
    def view(self) -> ClusterView:
        """Return the cluster as the controller sees it now."""

    @abstractmethod
    def wait_for(self, condition: Callable[[ClusterView], bool], timeout_s: float = 30.0) -> ClusterView:
        """Wait until a condition on the cluster is true."""

    @abstractmethod
    def wait_until_in_sync(self, timeout_s: float = 30.0) -> ClusterView:
        """Wait until every partition has a leader and all its replicas are in sync."""

    def coordinator_of(
        self, group_or_transactional_id: str, kind: Literal["group", "transaction"] = "group"
    ) -> ClusterBroker:
        """Return the broker that coordinates a group, or with `kind` "transaction" a transactional id.

        Raises:
            ValueError: No client has used one yet: the topic of the coordinators does not exist.
            EmbeddedBrokerError: There is none for 30 s.
        """
        arguments.text("group_or_transactional_id", group_or_transactional_id)
        is_group = arguments.choice("kind", kind, ("group", "transaction")) == "group"
        topic = "__consumer_offsets" if is_group else "__transaction_state"
        if topic not in self.view().topics:
            used = "group" if is_group else "transactional id"
            raise ValueError(f"no coordinator of {group_or_transactional_id!r}: no client has used a {used} here yet")
        return self.leader(topic, 0)

    def shrink_isr(self, topic: str, partition: int, to: int = 1) -> Disturbance:
        """Cut followers off from a partition's leader until its ISR has `to` members.

        A follower of a partition to which nothing is written has all of it, and stays: write meanwhile, on another
        thread, or before the controller notices. Followers leave as slow ones do, after `replica_lag_ms`.

        Args:
            topic: The topic.
            partition: The partition's number.
            to: How many members are left, the leader among them.

        Returns:
            What undoes it, as `heal` does; they come back with their next fetches.

        Raises:
            ValueError: There is no such partition, or `to` is not at least 1.
            EmbeddedBrokerError: They did not leave in 30 s.
        """
        arguments.whole("to", to, 1)
        leader, followers = self.leader(topic, partition), self.followers(topic, partition)
        cuts = [
            self.cut(follower.id, end)
            for follower in followers[: max(0, len(followers) + 1 - to)]
            for end in (leader.id, CONTROLLER)
        ]
        self.wait_for(lambda view: len(view.isr(topic, partition)) <= to)

        def heal() -> None:
            for cut in cuts:
                cut.heal()

        return Disturbance(heal)

    def chaos(self, seed: int, kinds: Sequence[str] = KINDS, period_ms: int = 500) -> Chaos:
        """Break the cluster again and again, from now until the end of the `with` block, or `end` of what it returns.

        The cluster is whole and in sync then.

        Args:
            seed: The seed of the faults; the same seed draws the same ones.
            kinds: Which ones; see `KINDS`.
            period_ms: How long each one lasts, in milliseconds.

        Returns:
            A `Chaos`; the `with` statement gives the list of the faults so far, in words.

        Raises:
            ConfigError: An argument has a wrong type or value.
            IllegalStateError: The cluster does not run.
        """
        if not self.is_running:
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
        for process in (self.controller, *self.brokers):
            if process.is_running:
                process.resume()
            else:
                process.start()
        self.heal()
        for broker in self.brokers:
            broker.faults.clear()
        self.wait_for(lambda view: len(view.active_brokers) == len(self.brokers))
        self.wait_until_in_sync()

    def end_chaos(self) -> None:
        """End what `chaos` began and no `with` block ends."""
        while self._chaos:
            self._chaos.pop().end()

    def roll(self) -> None:
        """Restart the brokers one after another, each when all is in sync."""
        for broker in self.brokers:
            broker.restart()
            self.wait_until_in_sync()

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
            with self.isolate(broker.id):
                wait()
        else:
            targets: list[int | str] = [CONTROLLER, *(other.id for other in others)]
            with self.cut(broker.id, dice.choice(targets), one_way=kind == "one-way cut"):
                wait()
        self.wait_until_in_sync(60)
