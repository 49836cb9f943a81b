"""What tests do to an embedded cluster as a whole: ISRs made small, and faults drawn by a seed."""

from __future__ import annotations

import random
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kafkaprod.broker.embedding.cluster_links import LinkControls
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker
from kafkaprod.broker.embedding.cluster_view import ClusterView
from kafkaprod.broker.embedding.embedded import EmbeddedBrokerError
from kafkaprod.broker.peers.rules import CONTROLLER

KINDS = ("kill", "pause", "cut", "one-way cut", "isolate", "roll", "power cut")
"""The faults of `chaos`."""


class ClusterFaults(LinkControls):
    """The part of `EmbeddedCluster` that breaks it."""

    brokers: list[ClusterBroker]

    @abstractmethod
    def leader(self, topic: str, partition: int) -> ClusterBroker:
        """Return a partition's leader; wait until it has one."""

    @abstractmethod
    def followers(self, topic: str, partition: int) -> list[ClusterBroker]:
        """Return a partition's replicas that do not lead it."""

    @abstractmethod
    def wait_for(self, condition: Callable[[ClusterView], bool], timeout_s: float = 30.0) -> ClusterView:
        """Wait until a condition on the cluster is true."""

    @abstractmethod
    def wait_until_in_sync(self, timeout_s: float = 30.0) -> ClusterView:
        """Wait until every partition has a leader and all its replicas are in sync."""

    def coordinator_of(self, group_or_transactional_id: str, kind: str = "group") -> ClusterBroker:
        """Return the broker that coordinates a group, or with `kind` "transaction" a transactional id.

        Raises:
            EmbeddedBrokerError: There is none within 30 s: no client has used one yet.
        """
        topic = "__consumer_offsets" if kind == "group" else "__transaction_state"
        return self.leader(topic, 0)

    def shrink_isr(self, topic: str, partition: int, to: int = 1) -> None:
        """Cut followers off from a partition's leader until its ISR has so many members; `heal` ends it.

        A follower of a partition to which nothing is written has all of it, and stays: write meanwhile, on another
        thread, or before the controller notices. Followers leave as slow ones do, after `replica_lag_ms`.

        Raises:
            EmbeddedBrokerError: They did not leave in 30 s.
        """
        leader = self.leader(topic, partition)
        for follower in self.followers(topic, partition)[: max(0, len(self.followers(topic, partition)) + 1 - to)]:
            self.cut_links(follower.id, leader.id)
            self.cut_links(follower.id, CONTROLLER)
        self.wait_for(lambda view: len(view.isr(topic, partition)) <= to)

    @contextmanager
    def chaos(self, seed: int, kinds: Sequence[str] = KINDS, period_ms: int = 500) -> Iterator[list[str]]:
        """Break the cluster again and again while the `with` block runs; whole and in sync at its end.

        Args:
            seed: Of the faults; the same seed draws the same ones.
            kinds: Which ones; see `KINDS`.
            period_ms: How long each one lasts.

        Yields:
            The faults so far, in words.
        """
        unknown = sorted(set(kinds) - set(KINDS))
        if unknown or not kinds:
            raise ValueError(f"kinds={list(kinds)}: choose from {list(KINDS)}")
        done: list[str] = []
        stop = threading.Event()
        errors: list[Exception] = []

        def run() -> None:
            dice = random.Random(seed)
            while not stop.is_set() and not errors:
                kind, broker = dice.choice(list(kinds)), dice.choice(self.brokers)
                done.append(f"{kind} of broker {broker.id}")
                try:
                    self.do_fault(kind, broker, dice, lambda: stop.wait(period_ms / 1000))
                except (EmbeddedBrokerError, OSError) as error:
                    errors.append(error)
                stop.wait(period_ms / 1000)

        thread = threading.Thread(target=run, name="kafkaprod-chaos", daemon=True)
        thread.start()
        try:
            yield done
        finally:
            stop.set()
            thread.join()
        if errors:
            raise errors[0]

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
            broker.pause()
            wait()
            broker.resume()
        elif kind == "roll":
            broker.restart()
        elif kind == "isolate" or not others:
            self.isolate(broker.id)
            wait()
            self.heal()
        else:
            targets: list[int | str] = [CONTROLLER, *(other.id for other in others)]
            with self.cut(broker.id, dice.choice(targets), one_way=kind == "one-way cut"):
                wait()
        self.wait_until_in_sync(60)
