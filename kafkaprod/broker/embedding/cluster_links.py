"""What tests do to the links between the processes of an embedded cluster."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafkaprod.broker.embedding import arguments
from kafkaprod.broker.embedding.disturbance import Disturbance
from kafkaprod.broker.peers.rules import CONTROLLER, Direction, LinkRules
from kafkaprod.errors import ConfigError

CLIENTS = "clients"


@dataclass(slots=True, eq=False)
class _Change:
    """What one call has cut or made slower."""

    cuts: set[Direction] = field(default_factory=set)
    delays_ms: dict[Direction, int] = field(default_factory=dict)
    without_clients: set[str] = field(default_factory=set)


class LinkControls:
    """The part of `EmbeddedCluster` that cuts, slows down and heals links. Thread-safe.

    Each call acts at once and lasts until `heal`. What it returns mends only this call, as the end of a `with` block
    does.
    """

    def __init__(self) -> None:
        self._link_lock = threading.RLock()
        self._changes: list[_Change] = []  # guarded by _link_lock

    @abstractmethod
    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Send the host a command and return its answer."""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether it was started and not closed."""

    @property
    @abstractmethod
    def broker_ids(self) -> Sequence[int]:
        """The ids of all brokers."""

    def cut(self, source: int | str, target: int | str, *, one_way: bool = False) -> Disturbance:
        """Cut the links between two processes: ids of brokers, or "controller".

        Args:
            source: Where messages come from.
            target: Where they would arrive. "clients" cuts a broker off from its clients: their connections are closed,
                and new ones are closed as soon as they are open.
            one_way: Cut only this direction.

        Raises:
            ValueError: There is no such process, or the two are the same.
        """
        arguments.flag("one_way", one_way)
        if target == CLIENTS:
            if one_way:
                raise ConfigError(
                    'one_way=True cannot be combined with target "clients": cutting clients closes their connections'
                )
            return self._change(_Change(without_clients={self._broker_name(source)}))
        ends = self._ends(source, target)
        return self._change(_Change(cuts={ends} if one_way else {ends, ends[::-1]}))

    def isolate(self, broker_id: int) -> Disturbance:
        """Cut a broker off from the other brokers and the controller. Clients still reach it.

        Raises:
            ValueError: There is no such broker.
        """
        name = self._broker_name(broker_id)
        others = [CONTROLLER, *(str(other) for other in self.broker_ids if str(other) != name)]
        return self._change(_Change(cuts={ends for other in others for ends in ((name, other), (other, name))}))

    def slow(self, source: int | str, target: int | str, delay_ms: int) -> Disturbance:
        """Let messages from one process to another arrive later; the last call counts for one direction.

        Args:
            source: Where messages come from: the id of a broker, or "controller".
            target: Where they arrive.
            delay_ms: How much later, in milliseconds.

        Raises:
            ValueError: There is no such process, the two are the same, or the time is not a whole number.
        """
        delay_ms = arguments.milliseconds("delay_ms", delay_ms)
        return self._change(_Change(delays_ms={self._ends(source, target): delay_ms}))

    def heal(self) -> None:
        """Undo all cuts and delays."""
        with self._link_lock:
            self._changes.clear()
            self._send_links()

    def _change(self, change: _Change) -> Disturbance:
        with self._link_lock:
            self._changes.append(change)
            try:
                self._send_links()
            except BaseException:
                self._changes.remove(change)
                raise
        return Disturbance(lambda: self._undo(change))

    def _undo(self, change: _Change) -> None:
        with self._link_lock:
            if change in self._changes:
                self._changes.remove(change)
                if self.is_running:
                    self._send_links()

    def _send_links(self) -> None:
        rules, without_clients = LinkRules(), set[str]()
        for change in self._changes:
            rules.cuts |= change.cuts
            rules.delays_ms |= change.delays_ms
            without_clients |= change.without_clients
        self.ask({"command": "links", **rules.to_json(), "without_clients": sorted(without_clients)})

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
        names = [str(broker_id) for broker_id in self.broker_ids]
        if isinstance(broker, bool) or not isinstance(broker, int | str) or str(broker) not in names:
            raise ConfigError(f"there is no broker {broker!r}: brokers are {', '.join(names)}{more}")
        return str(broker)
