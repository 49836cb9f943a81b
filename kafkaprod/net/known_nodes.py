"""The known brokers, and the failures of connections to the bootstrap servers. No I/O of its own.

Brokers are known by their node id; the bootstrap servers, used until the first metadata, have negative ids. A broker
that leaves the cluster with requests in flight is retired: it gets no more requests, and is closed when the last one is
answered. Threads: the I/O thread, except `bootstrap_error`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from kafkaprod.errors import AuthenticationError, BootstrapError, ConnectionLostError, CorruptDataError, KafkaError
from kafkaprod.metrics.sums import NodeCounters
from kafkaprod.net.node import NodeConnection
from kafkaprod.net.node_state import ConnectionFailure, NodeState
from kafkaprod.structs import Node


def check_broker_id(node_id: int) -> None:
    """Refuse a broker id that an answer may not have.

    Raises:
        CorruptDataError: It is negative.
    """
    if node_id < 0:
        raise CorruptDataError(f"an answer names a broker with the id {node_id}, which is negative")


class KnownNodes:
    """The brokers of one client.

    Args:
        close: Ends the connection of a broker, if it has one; its requests fail with the error as their cause.

    Attributes:
        states: The brokers that may be sent to, by node id.
        metrics: Counters of every broker ever known.
        started_over_ms: When the client last returned to the bootstrap servers; -1: never.
    """

    def __init__(self, close: Callable[[NodeState, KafkaError], None]) -> None:
        self._close = close
        self._bootstrap: dict[int, Node] = {}
        self._retired: dict[int, NodeState] = {}
        self._failing: dict[int, NodeState] = {}  # when the client started over: they keep their backoff
        self.started_over_ms = -1
        self.states: dict[int, NodeState] = {}
        self.metrics: dict[int, NodeCounters] = {}

    def __iter__(self) -> Iterator[NodeState]:
        return iter([*self.states.values(), *self._retired.values()])

    def set_bootstrap(self, servers: Iterable[tuple[str, int]]) -> None:
        """Take the bootstrap servers as nodes -1, -2, ..."""
        self._bootstrap = {-index: Node(-index, host, port) for index, (host, port) in enumerate(servers, 1)}
        self._update(self._bootstrap, are_bootstrap=True)

    def start_over(self, now_ms: int) -> None:
        """Close all connections and return to the bootstrap servers.

        A broker that could not be reached before, and is named again, is in the same outage: it keeps its backoff.
        """
        for state in self:
            self._close(state, ConnectionLostError(f"{state.node.name}: starting over from bootstrap"))
        self._failing.update((node_id, state) for node_id, state in self.states.items() if state.failure_count)
        self.started_over_ms = now_ms
        self.states.clear()
        self._retired = {}
        self._update(self._bootstrap, are_bootstrap=True)

    def update(self, nodes: Mapping[int, Node]) -> None:
        """Take the brokers of new cluster metadata.

        A broker that moved to another host or port is another broker: its connection is closed at once.

        Raises:
            CorruptDataError: One has a negative id, as bootstrap servers have here; nothing has changed.
        """
        for node_id in nodes:
            check_broker_id(node_id)
        self._update(nodes, are_bootstrap=False)

    def _update(self, nodes: Mapping[int, Node], *, are_bootstrap: bool) -> None:
        known = {**self._retired, **self.states}
        self.states.clear()  # the pool has the same mapping
        for node_id, node in nodes.items():
            state = known.pop(node_id, None)
            if state is not None and (node.host, node.port) != (state.node.host, state.node.port):
                self._close(state, ConnectionLostError(f"node {node_id} moved to {node.host}:{node.port}"))
                state = None
            if state is None:
                state = self._failing_at(node) or NodeState(node, self.metrics.setdefault(node_id, NodeCounters()))
            state.node = node  # the rack may differ
            state.is_bootstrap = are_bootstrap
            self._retired.pop(node_id, None)
            self.states[node_id] = state
        for state in known.values():
            self._retired[state.node.node_id] = state
            state.is_steady = False
            self.close_if_retired(state)

    def _failing_at(self, node: Node) -> NodeState | None:
        """Return the state of a broker that could not be reached before the client started over; None for another."""
        state = self._failing.pop(node.node_id, None)
        if state is None or (state.node.host, state.node.port) != (node.host, node.port):
            return None
        state.checks_identity = True
        return state

    @property
    def is_any_untried(self) -> bool:
        """Whether some broker was not connected since the client started over, because its backoff has not passed."""
        return any(state.last_attempt_ms < self.started_over_ms for state in self.states.values())

    def add(self, node: Node) -> None:
        """Add a broker that is not in the metadata yet, until the next metadata; ignored if its id is known.

        Raises:
            CorruptDataError: Its id is negative.
        """
        check_broker_id(node.node_id)
        if node.node_id in self.states:
            return
        state = self._retired.pop(node.node_id, None)
        if state is None:
            state = NodeState(node, self.metrics.setdefault(node.node_id, NodeCounters()))
        self.states[node.node_id] = state

    def close_if_retired(self, state: NodeState) -> None:
        """Close a broker that left the cluster once its requests are answered."""
        node_id, connection = state.node.node_id, state.connection
        if self._retired.get(node_id) is not state:
            return
        state.is_steady = False  # each answer may be the last one
        if connection is None or not state.was_ready or not connection.protocol.in_flight_count:
            del self._retired[node_id]
            self._close(state, ConnectionLostError(f"node {node_id} left the cluster"))

    def owner_of(self, connection: NodeConnection) -> NodeState | None:
        """Return the broker that has this connection; None if it was replaced."""
        node_id = connection.node.node_id
        for state in (self.states.get(node_id), self._retired.get(node_id)):
            if state is not None and state.connection is connection:
                return state
        return None

    def name_of(self, node_id: int) -> str:
        """Return a broker for messages, with its address as far as it is known."""
        state = self.states.get(node_id)
        return f"node {node_id}" if state is None else state.node.name

    def last_failure(self, node_id: int) -> ConnectionFailure | None:
        """Return why the last connection to a node ended, None if one has answered since."""
        state = self.states.get(node_id)
        return None if state is None else state.last_failure

    def newest_failure_ms(self, node_id: int) -> int:
        """Return when the last connection failed without which nothing reaches a node; -1: none, or it is connected."""
        state = self.states.get(node_id)
        if state is not None and (state.last_failure is not None or state.is_connected):
            return -1 if state.last_failure is None else state.last_failure.at_ms
        failures = (state.last_failure for state in self.states.values())  # the node is not known yet
        return max((failure.at_ms for failure in failures if failure is not None), default=-1)

    # -- the bootstrap servers -----------------------------------------------------------------------------------------

    def bootstrap_failures(self) -> list[ConnectionFailure]:
        """Return the last failure of each bootstrap server that has not answered since."""
        states = (self.states.get(node_id) for node_id in self._bootstrap)
        return [state.last_failure for state in states if state is not None and state.last_failure is not None]

    @property
    def has_every_bootstrap_failed(self) -> bool:
        """Whether each bootstrap server was tried and failed, and none has answered since."""
        return len(self.bootstrap_failures()) == len(self._bootstrap)

    @property
    def is_bootstrap_hopeless(self) -> bool:
        """Whether every bootstrap server failed in a way that retries cannot change."""
        return self.has_every_bootstrap_failed and all(failure.is_hopeless for failure in self.bootstrap_failures())

    def why_not_connected(self) -> KafkaError | None:
        """Return `bootstrap_error`, or why a broker cannot be reached; None if no attempt has failed. Thread-safe."""
        states = list(self.states.copy().values())
        if self.bootstrap_failures() or any(state.is_silent for state in states):
            return self.bootstrap_error()
        return next((state.last_failure.error for state in states if state.last_failure is not None), None)

    def bootstrap_error(self) -> BootstrapError | AuthenticationError:
        """Return an error that names each failed bootstrap server, how far the connection came, and why it ended.

        It is an AuthenticationError if all of them ended for that.
        """
        failures = self.bootstrap_failures()
        silent = [state for state in self.states.copy().values() if state.is_silent]
        lines = [f"{failure.node.host}:{failure.node.port} ({failure.stage}): {failure.error}" for failure in failures]
        lines += [f"{s.node.host}:{s.node.port} ({s.stage}): no answer yet{s.silence_hint}" for s in silent]
        is_refused = (
            failures and not silent and all(isinstance(failure.error, AuthenticationError) for failure in failures)
        )
        kind = AuthenticationError if is_refused else BootstrapError
        error = kind("no bootstrap server could be used: " + ("; ".join(lines) or "none was tried"))
        error.__cause__ = failures[-1].error if failures else None
        return error
