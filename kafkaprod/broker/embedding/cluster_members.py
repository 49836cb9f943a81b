"""What tests do to the set of brokers of a running embedded cluster: a broker comes, or goes for good."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kafkaprod.broker.config import DEFAULT_HOST
from kafkaprod.broker.embedding import arguments
from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError
from kafkaprod.broker.embedding.cluster_host import ClusterHost
from kafkaprod.broker.embedding.cluster_options import control_path, directories_of
from kafkaprod.broker.embedding.cluster_processes import ClusterBroker, ask_controller
from kafkaprod.broker.embedding.cluster_state import ClusterState
from kafkaprod.broker.embedding.cluster_topics import ClusterTopics
from kafkaprod.broker.listeners import Listener, listeners_text, parse_listeners
from kafkaprod.errors import IllegalStateError


class ClusterMembers:
    """Adds and removes brokers. `EmbeddedCluster` describes the arguments."""

    def __init__(self, host: ClusterHost, state: ClusterState, topics: ClusterTopics, data_dir: str) -> None:
        self._host = host
        self._state = state
        self._topics = topics
        self._data_dir = data_dir
        self._first_ids = frozenset(state.broker_ids)
        self._last_id = max(state.broker_ids)

    def add(self, rack: str | None = None) -> ClusterBroker:
        """Start one more broker, with the options of the others; return it when all know it."""
        if not self._state.is_running:
            raise IllegalStateError("the embedded cluster does not run: brokers can be added while it does")
        if rack is not None:
            arguments.text("rack", rack)
        known = self._host.options["brokers"]
        broker_id = self._last_id + 1  # ids are not used again
        options = {
            **next(iter(known.values())),
            **directories_of(self._data_dir, broker_id, len(self._state.brokers[0].log_dirs)),
            "journal": os.path.join(self._host.options["temporary"], f"synced-{broker_id}"),
            "control": self._control_of(broker_id, known),
            "port": 0,
            "listeners": listeners_text(each._replace(port=0) for each in _listeners(known)),
            "advertised": "",
            "node_id": broker_id,
        }
        options["cluster"] = {**options["cluster"], "rack": rack}
        broker = ClusterBroker(self._host, broker_id, options)
        address = self._host.ask({"command": "add", "name": str(broker_id), "options": options})
        known[str(broker_id)] = options | {key: address[key] for key in ("port", "listeners")}
        self._last_id = broker_id
        self._state.brokers.append(broker)
        broker.start()
        self._state.wait_for(lambda view: broker_id in view.active_brokers)
        self._state.wait_until_applied()
        return broker

    def _control_of(self, broker_id: int, known: Mapping[str, Mapping[str, Any]]) -> str | None:
        """Return the control socket of a broker that is added, if the others have one."""
        has_window = any(options["control"] is not None for options in known.values())
        return control_path(self._host.options["temporary"], broker_id) if has_window else None

    def remove(self, broker_id: int) -> None:
        """Take a broker out of the cluster for good: move its partitions away, stop it, unregister it."""
        broker = self._state.broker(broker_id)
        view = self._state.view()
        others = [other for other in view.active_brokers if other != broker_id]
        if not others:
            raise EmbeddedBrokerError(f"broker {broker_id} is the only one that runs: none could take its partitions")
        places = [(topic, index) for topic, count in view.topics.items() for index in range(count)]
        replicas = {place: view.replicas(*place) for place in places}
        counts = Counter(member for members in replicas.values() for member in members)
        for place, members in replicas.items():
            if broker_id in members:
                self._topics.reassign(*place, _without(broker_id, members, others, counts))
        self._state.wait_for(lambda view: all(broker_id not in view.replicas(*place) for place in places))
        if broker.is_running:
            broker.stop()
        ask_controller(self._state.controller, {"command": "unregister", "broker_id": broker_id})
        self._host.ask({"command": "remove", "name": str(broker_id)})
        del self._host.options["brokers"][str(broker_id)]
        self._state.brokers.remove(broker)
        self._state.wait_until_applied()

    def remove_added(self) -> None:
        """Remove the brokers that `add_broker` has added; those that were removed do not come back.

        Raises:
            EmbeddedBrokerError: As `remove_broker`.
        """
        for broker_id in [broker.id for broker in self._state.brokers if broker.id not in self._first_ids]:
            self.remove(broker_id)


def _listeners(brokers: Mapping[str, Mapping[str, Any]]) -> tuple[Listener, ...]:
    """Return the listeners of the first broker, none if all have but one without a name."""
    text = next(iter(brokers.values()))["listeners"]
    return parse_listeners(text, DEFAULT_HOST) if text else ()


def _without(broker_id: int, members: Sequence[int], others: Sequence[int], counts: Counter[int]) -> list[int]:
    """Return a partition's replicas with another broker in the place of one, or without it if all have one."""
    free = [other for other in others if other not in members]
    if not free:
        return [member for member in members if member != broker_id]
    chosen = min(free, key=lambda other: (counts[other], other))
    counts[chosen] += 1
    return [chosen if member == broker_id else member for member in members]
