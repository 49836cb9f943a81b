"""What tests do to the set of brokers of a running embedded cluster: a broker comes, or goes for good."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkaprod.broker.embedding import arguments
from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker, ClusterProcess
from kafkaprod.broker.embedding.cluster_view import ClusterView
from kafkaprod.errors import IllegalStateError


class MemberControls:
    """The part of `EmbeddedCluster` that adds and removes brokers."""

    brokers: list[ClusterBroker]
    controller: ClusterProcess
    data_dir: str
    _directory: str
    _first_ids: frozenset[int]
    _host_options: dict[str, Any]

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether it was started and not closed."""

    @abstractmethod
    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Send the host a command and return its answer."""

    @abstractmethod
    def broker(self, broker_id: int) -> ClusterBroker:
        """Return a broker by id."""

    @abstractmethod
    def view(self) -> ClusterView:
        """Return the cluster as the controller sees it now."""

    @abstractmethod
    def wait_for(self, condition: Callable[[ClusterView], bool], timeout_s: float = 30.0) -> ClusterView:
        """Wait until a condition on the cluster is true."""

    @abstractmethod
    def wait_until_applied(self, timeout_s: float = 30.0) -> ClusterView:
        """Wait until all running brokers have applied the metadata as it is now."""

    @abstractmethod
    def reassign(self, topic: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Move a partition to other brokers."""

    def add_broker(self, rack: str | None = None) -> ClusterBroker:
        """Start one more broker, with the options of the others; return it when all know it.

        It has no partitions: new topics are placed on it, too, and `reassign` moves partitions to it.

        Args:
            rack: Where it is.

        Raises:
            ConfigError: `rack` is no text.
            EmbeddedBrokerError: It could not start.
            IllegalStateError: The cluster does not run.
        """
        if not self.is_running:
            raise IllegalStateError("the embedded cluster does not run: brokers can be added while it does")
        if rack is not None:
            arguments.text("rack", rack)
        known = self._host_options["brokers"]
        broker_id = 1 + max(self._host_options.setdefault("last_id", 0), *map(int, known))
        options = {
            **next(iter(known.values())),
            "data_dir": os.path.join(self.data_dir, f"broker-{broker_id}"),
            "journal": os.path.join(self._directory, f"synced-{broker_id}"),
            "port": 0,
            "node_id": broker_id,
        }
        options["cluster"] = {**options["cluster"], "rack": rack}
        broker = ClusterBroker(self, broker_id, rack, options["data_dir"], options["journal"])
        broker.port = self.ask({"command": "add", "name": str(broker_id), "options": options})["port"]
        known[str(broker_id)] = {**options, "port": broker.port}
        self.brokers.append(broker)
        broker.start()
        self.wait_for(lambda view: broker_id in view.active_brokers)
        self.wait_until_applied()
        return broker

    def remove_broker(self, broker_id: int) -> None:
        """Take a broker out of the cluster for good: move its partitions away, stop it, unregister it.

        Each of its partitions goes to the broker with the fewest replicas that has none of it, or has one replica less
        where all the others have one. A broker that does not run can be removed, too; its files stay. Ids are not
        used again.

        Raises:
            ValueError: There is no such broker.
            EmbeddedBrokerError: It is the only one that runs, or its partitions did not come into sync elsewhere.
        """
        broker = self.broker(broker_id)
        view = self.view()
        others = [other for other in view.active_brokers if other != broker_id]
        if not others:
            raise EmbeddedBrokerError(f"broker {broker_id} is the only one that runs: none could take its partitions")
        places = [(topic, index) for topic, count in view.topics.items() for index in range(count)]
        replicas = {place: view.replicas(*place) for place in places}
        counts = Counter(member for members in replicas.values() for member in members)
        for place, members in replicas.items():
            if broker_id in members:
                self.reassign(*place, _without(broker_id, members, others, counts))
        self.wait_for(lambda view: all(broker_id not in view.replicas(*place) for place in places))
        if broker.is_running:
            broker.stop()
        answer = self.controller.tell({"command": "unregister", "broker_id": broker_id})
        if answer["code"]:
            raise EmbeddedBrokerError(f"the controller answered {answer['code']}: {answer['message']}")
        self.ask({"command": "remove", "name": str(broker_id)})
        known = self._host_options["brokers"]
        self._host_options["last_id"] = max(map(int, known))
        del known[str(broker_id)]
        self.brokers.remove(broker)
        self.wait_until_applied()

    def remove_added(self) -> None:
        """Remove the brokers that `add_broker` has added; those that were removed do not come back.

        Raises:
            EmbeddedBrokerError: As `remove_broker`.
        """
        for broker_id in [broker.id for broker in self.brokers if broker.id not in self._first_ids]:
            self.remove_broker(broker_id)


def _without(broker_id: int, members: Sequence[int], others: Sequence[int], counts: Counter[int]) -> list[int]:
    """Return a partition's replicas with another broker in the place of one, or without it if all have one."""
    free = [other for other in others if other not in members]
    if not free:
        return [member for member in members if member != broker_id]
    chosen = min(free, key=lambda other: (counts[other], other))
    counts[chosen] += 1
    return [chosen if member == broker_id else member for member in members]
