"""What tests do to the links between the processes of an embedded cluster."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafkaprod.broker.peers.rules import CONTROLLER, LinkRules

CLIENTS = "clients"


class LinkControls:
    """The part of `EmbeddedCluster` that cuts, slows down and heals links."""

    def __init__(self) -> None:
        self._rules = LinkRules()

    @abstractmethod
    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Send the host a command and return its answer."""

    @property
    @abstractmethod
    def broker_ids(self) -> Sequence[int]:
        """The ids of all brokers."""

    @contextmanager
    def cut(self, source: int | str, target: int | str, *, one_way: bool = False) -> Iterator[None]:
        """Cut the links between two processes, ids or "controller", while the `with` block runs.

        Args:
            source: Where messages come from.
            target: Where they would arrive; "clients" cuts the first one off from all clients.
            one_way: Cut only this direction.
        """
        before = self._rules.to_json()
        self.cut_links(source, target, one_way=one_way)
        try:
            yield
        finally:
            if target == CLIENTS:
                self._cut_clients(int(source), is_cut=False)
            self._rules.replace(**before)
            self._send_links()

    def cut_links(self, source: int | str, target: int | str, *, one_way: bool = False) -> None:
        """Cut as `cut` does, until `heal`."""
        if target == CLIENTS:
            self._cut_clients(int(source), is_cut=True)
            return
        self._rules.cuts.add((str(source), str(target)))
        if not one_way:
            self._rules.cuts.add((str(target), str(source)))
        self._send_links()

    def isolate(self, broker_id: int) -> None:
        """Cut a broker off from the other brokers and the controller, until `heal`. Clients still reach it."""
        names = [CONTROLLER, *(str(other) for other in self.broker_ids if other != broker_id)]
        for name in names:
            self._rules.cuts |= {(str(broker_id), name), (name, str(broker_id))}
        self._send_links()

    def slow(self, source: int | str, target: int | str, delay_ms: int) -> None:
        """Let messages from one process to another arrive later, until `heal`."""
        self._rules.delays_ms[str(source), str(target)] = delay_ms
        self._send_links()

    def heal(self) -> None:
        """Undo all cuts and delays."""
        self._rules.replace((), {})
        self._send_links()
        for name in self.ask({"command": "processes"})["pids"]:
            if name != CONTROLLER:
                self._cut_clients(int(name), is_cut=False)

    def _send_links(self) -> None:
        self.ask({"command": "links", **self._rules.to_json()})

    def _cut_clients(self, broker_id: int, *, is_cut: bool) -> None:
        what = {"command": "clients", "is_cut": is_cut}
        self.ask({"command": "tell", "name": str(broker_id), "what": what})
