"""What an embedded cluster consists of and how it is: its processes, its leaders and replicas, waits for changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from kafkaprod.broker.embedding import arguments
from kafkaprod.broker.embedding.arrivals import Arrivals, ArrivedRecord, ExpectedRecord
from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError
from kafkaprod.broker.embedding.cluster_changes import ChangeSignal
from kafkaprod.broker.embedding.cluster_host import ClusterHost
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker, ClusterProcess
from kafkaprod.broker.embedding.cluster_view import ClusterView
from kafkaprod.broker.embedding.inspection import BrokerInspection
from kafkaprod.broker.peers.rules import CONTROLLER
from kafkaprod.errors import ConfigError

_WAIT_S = 30.0
_LOOK_S = 0.02
"""How often a condition is looked at without a change of the metadata: it may be about other things as well."""

_HISTORY_LINES = 50
_SHOWN_TOPICS = 20
LAST_CHANGES = "last changes of the embedded cluster:"


class ClusterState(BrokerInspection):
    """The part of `EmbeddedCluster` that looks and waits. Several threads may wait and take views.

    Attributes:
        brokers: All of them, by id from 1.
        controller: The controller's process.
    """

    def __init__(self, host: ClusterHost) -> None:
        self._host = host
        self._directory: str = host.options["temporary"]
        self.controller = ClusterProcess(host, CONTROLLER)
        self.brokers = [ClusterBroker(host, int(name), each) for name, each in host.options["brokers"].items()]

        self._arrivals = Arrivals(
            lambda command: [broker.tell(command) for broker in self.brokers if broker.is_running]
        )

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, as clients take them; of several listeners the first ones'.

        Raises:
            IllegalStateError: The cluster does not run.
        """
        return ",".join(broker.address for broker in self.brokers)

    @property
    def listeners(self) -> dict[str, str]:
        """The addresses of all brokers by the name of the listener, as clients take them.

        Raises:
            IllegalStateError: The cluster does not run.
        """
        names = list(self.brokers[0].listeners) if self.bootstrap_servers else []
        return {name: ",".join(broker.listeners[name] for broker in self.brokers) for name in names}

    @property
    def broker_ids(self) -> Sequence[int]:
        """The ids of all brokers."""
        return [broker.id for broker in self.brokers]

    @property
    def is_running(self) -> bool:
        """Whether it was started and not closed."""
        return self._host.is_running

    def broker(self, broker_id: int) -> ClusterBroker:
        """Return a broker by id.

        Raises:
            ValueError: There is none.
        """
        for broker in self.brokers:
            if broker.id == broker_id:
                return broker
        raise ValueError(f"there is no broker {broker_id!r}: brokers are {', '.join(map(str, self.broker_ids))}")

    def leader(self, topic: str, partition: int) -> ClusterBroker:
        """Return a partition's leader; wait until it has one.

        Raises:
            ValueError: There is no such partition.
            EmbeddedBrokerError: It has no leader for 30 s.
        """
        what = f"no leader of {topic}-{partition}"
        self._view_with(topic, partition, what)
        view = self.wait_for(lambda view: view.leader(topic, partition) is not None, what=what)
        return self.broker(view.leader(topic, partition) or 0)

    def followers(self, topic: str, partition: int) -> list[ClusterBroker]:
        """Return a partition's replicas that do not lead it.

        Raises:
            ValueError: There is no such partition.
        """
        view = self._view_with(topic, partition, f"no followers of {topic}-{partition}")
        leader = view.leader(topic, partition)
        return [self.broker(member) for member in view.replicas(topic, partition) if member != leader]

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

    def isr(self, topic: str, partition: int) -> list[int]:
        """Return a partition's in-sync replicas.

        Raises:
            ValueError: There is no such partition.
        """
        return self._view_with(topic, partition, f"no ISR of {topic}-{partition}").isr(topic, partition)

    def view(self) -> ClusterView:
        """Return the cluster as the controller sees it now."""
        return ClusterView(self.controller.tell({"command": "view"}))

    def replicas(self, topic: str, partition: int) -> dict[int, tuple[int, int, int]]:
        """Return log start, high watermark and log end of a partition on each running broker that has it.

        Raises:
            ValueError: There is no such partition.
        """
        self._view_with(topic, partition, f"no replicas of {topic}-{partition}")
        key, found = f"{topic}-{partition}", {}
        for broker in self.brokers:
            described = broker.tell({"command": "replicas"}) if broker.is_running else {}
            if key in described:
                start, watermark, end = described[key]
                found[broker.id] = (start, watermark, end)
        return found

    def records(self, topic: str, *, at_least: int = 0, timeout: float = 5.0) -> list[ArrivedRecord]:
        """Return the records of a topic from the logs of the leaders, as `EmbeddedBroker.records`."""
        return self._arrivals.records(topic, at_least, timeout)

    def check_records(
        self, topic: str, *expected: ExpectedRecord, timeout: float = 5.0, settle: float = 0.0
    ) -> list[ArrivedRecord]:
        """Assert that a topic has these records and no others, as `EmbeddedBroker.check_records`."""
        return self._arrivals.check(topic, expected, timeout, settle)

    def _ask_each(self, command: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
        return {broker.id: broker.tell(command) for broker in self.brokers if broker.is_running}

    def _ask_broker(self, node: int, command: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.broker(node).tell(command)

    def history(self) -> list[str]:
        """Return the last changes of the metadata, oldest first."""
        return list(self.controller.tell({"command": "history"})["lines"])

    def wait_for(
        self, condition: Callable[[ClusterView], bool], timeout_s: float = _WAIT_S, *, what: str = "not true"
    ) -> ClusterView:
        """Wait until a condition on the cluster is true; return the view that fulfilled it.

        Args:
            condition: What must be true of a view.
            timeout_s: How long, in seconds.
            what: Begins the error: what is the case without it.

        Raises:
            EmbeddedBrokerError: It did not become true in time; its note shows the cluster and its last changes.
        """
        if not callable(condition):
            raise ConfigError(f"condition={condition!r} is not a function of a view: write lambda view: ...")
        deadline = time.monotonic() + timeout_s
        view = self.view()
        if condition(view):
            return view
        with ChangeSignal(self._directory) as signal:
            while True:
                view = ClusterView(self.controller.tell({"command": "view", "wake": signal.path}))
                if condition(view):
                    return view
                if time.monotonic() >= deadline:
                    failure = EmbeddedBrokerError(f"{what} within {timeout_s} s")
                    failure.add_note(f"{view}\n{self.last_changes()}")  # notes keep their lines
                    raise failure
                signal.wait(_LOOK_S)

    def wait_until_in_sync(self, timeout_s: float = _WAIT_S) -> ClusterView:
        """Wait until every partition has a leader and all its replicas are in sync.

        Raises:
            EmbeddedBrokerError: As `wait_for`.
        """
        return self.wait_for(lambda view: view.is_in_sync, timeout_s, what="not in sync")

    def wait_until_applied(self, timeout_s: float = _WAIT_S) -> ClusterView:
        """Wait until all running brokers have applied the metadata as it is now.

        Raises:
            EmbeddedBrokerError: As `wait_for`.
        """
        end = self.view().end_offset
        running = {broker.id for broker in self.brokers if broker.is_running}
        return self.wait_for(
            lambda view: all(view.applied(member) >= end for member in view.active_brokers if member in running),
            timeout_s,
            what="not applied by all brokers",
        )

    def last_changes(self) -> str:
        """Return the last changes of the metadata as text, for the report of a failed test."""
        try:
            return f"{LAST_CHANGES}\n" + "\n".join(self.history()[-_HISTORY_LINES:])
        except EmbeddedBrokerError as error:
            return f"the history of the embedded cluster is not available: {error}"

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Send the host a command and return its answer.

        Raises:
            EmbeddedBrokerError: It answered an error.
            IllegalStateError: The cluster does not run, or belongs to another process.
        """
        return self._host.ask(command)

    def _view_with(self, topic: str, partition: int, what: str) -> ClusterView:
        """Return a view that has the partition. Raises ValueError, which `what` begins, if there is none."""
        view = self.view()
        count = view.topics.get(topic)
        if count is None:
            names = sorted(view.topics)
            more = ", ..." if len(names) > _SHOWN_TOPICS else ""
            raise ValueError(
                f"{what}: there is no such topic (topics: {', '.join(names[:_SHOWN_TOPICS]) or 'none'}{more})"
            )
        if partition not in range(count):
            raise ValueError(f"{what}: the topic has partitions 0 to {count - 1}")
        return view
