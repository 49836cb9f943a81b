"""What tests do to the links between the processes of an embedded cluster."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from kafkaprod.broker.embedding import arguments
from kafkaprod.broker.embedding.cluster_state import ClusterState
from kafkaprod.broker.embedding.disturbance import Disturbance
from kafkaprod.broker.peers.rules import CONTROLLER, Direction, LinkRules
from kafkaprod.errors import ConfigError
from kafkaprod.locks import locked

CLIENTS = "clients"


@dataclass(slots=True, eq=False)
class _Change:
    """What one call has cut or made slower."""

    cuts: set[Direction] = field(default_factory=set)
    delays_ms: dict[Direction, int] = field(default_factory=dict)
    bytes_per_s: dict[Direction, int] = field(default_factory=dict)
    without_clients: set[str] = field(default_factory=set)


class ClusterLinks:
    """Cuts, slows down and heals links. Thread-safe.

    Each call acts at once and lasts until `heal`. What it returns mends only this call, as the end of a `with` block
    does. `EmbeddedCluster` describes the arguments.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._lock = threading.RLock()
        self._changes: list[_Change] = []  # guarded by _lock

    def cut(self, source: int | str, target: int | str, *, one_way: bool = False) -> Disturbance:
        """Cut the links between two processes: ids of brokers, or "controller"."""
        arguments.flag("one_way", one_way)
        if target == CLIENTS:
            if one_way:
                raise ConfigError(
                    f'one_way=True cannot be combined with target "{CLIENTS}": cutting clients closes their connections'
                )
            return self._change(_Change(without_clients={self._broker_name(source)}))
        ends = self._ends(source, target)
        return self._change(_Change(cuts={ends} if one_way else {ends, ends[::-1]}))

    def isolate(self, broker_id: int) -> Disturbance:
        """Cut a broker off from the other brokers and the controller. Clients still reach it."""
        name = self._broker_name(broker_id)
        others = [CONTROLLER, *(str(other) for other in self._state.broker_ids if str(other) != name)]
        return self._change(_Change(cuts={ends for other in others for ends in ((name, other), (other, name))}))

    def slow(
        self, source: int | str, target: int | str, delay_ms: int = 0, *, bytes_per_s: int | None = None
    ) -> Disturbance:
        """Let messages from one process to another arrive later, or slowly; the last call counts for one direction."""
        delay_ms = arguments.milliseconds("delay_ms", delay_ms)
        rate = 0 if bytes_per_s is None else arguments.whole("bytes_per_s", bytes_per_s, 1)
        ends = self._ends(source, target)
        return self._change(_Change(delays_ms={ends: delay_ms}, bytes_per_s={ends: rate}))

    @locked
    def heal(self) -> None:
        """Undo all cuts, delays and rates."""
        self._changes.clear()
        self.send()

    @locked
    def _change(self, change: _Change) -> Disturbance:
        self._changes.append(change)
        try:
            self.send()
        except BaseException:
            self._changes.remove(change)
            raise
        return Disturbance(lambda: self._undo(change))

    @locked
    def _undo(self, change: _Change) -> None:
        if change in self._changes:
            self._changes.remove(change)
            if self._state.is_running:
                self.send()

    def send(self) -> None:
        """Send the host all cuts, delays and rates that last."""
        rules, without_clients = LinkRules(), set[str]()
        for change in self._changes:
            rules.cuts |= change.cuts
            rules.delays_ms |= change.delays_ms
            rules.bytes_per_s |= change.bytes_per_s
            without_clients |= change.without_clients
        rules.bytes_per_s = {ends: rate for ends, rate in rules.bytes_per_s.items() if rate}
        self._state.ask({"command": "links", **rules.to_json(), "without_clients": sorted(without_clients)})

    def _ends(self, source: object, target: object) -> Direction:
        ends = self._process_name(source), self._process_name(target)
        if ends[0] == ends[1]:
            raise ConfigError(f"{source!r} and {target!r} are the same process: a link has two ends")
        return ends

    def _process_name(self, process: object) -> str:
        if process == CONTROLLER:
            return CONTROLLER
        return self._name_of(process, f'; "{CONTROLLER}" is a process, too, and cut takes "{CLIENTS}" as target')

    def _broker_name(self, broker: object) -> str:
        return self._name_of(broker)

    def _name_of(self, broker: object, more: str = "") -> str:
        names = [str(broker_id) for broker_id in self._state.broker_ids]
        if isinstance(broker, bool) or not isinstance(broker, int | str) or str(broker) not in names:
            raise ConfigError(f"there is no broker {broker!r}: brokers are {', '.join(names)}{more}")
        return str(broker)
