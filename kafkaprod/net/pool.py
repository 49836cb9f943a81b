"""The connections of one client: readiness of nodes, sending, and the outcomes of requests.

The sender checks `is_ready` (which also starts connecting), sends, and calls `poll`, which returns the requests that
have ended. Each carries its outcome and the callback given to `send`, which the loop calls.

Memory: buffers given to `send_body` are read until the request comes out of `poll`, never after: a connection closes
its socket in the call in which its requests fail.
Threads: the I/O thread, except `wakeup`.
Sources: Kafka's NetworkClient and ClusterConnectionStates; KIP-144, KIP-601 (backoff, setup timeout), KIP-219
(throttling), KIP-899 and KIP-1102 (rebootstrap).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from kafkaprod.clock import NEVER_MS, Clock
from kafkaprod.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionLostError,
    IllegalStateError,
    KafkaError,
    UnsupportedVersionError,
    printable,
)
from kafkaprod.metrics.sums import NodeCounters
from kafkaprod.net.connector import Connector
from kafkaprod.net.known_nodes import KnownNodes
from kafkaprod.net.node import NodeConnection
from kafkaprod.net.node_state import ConnectionFailure, NodeState, least_loaded
from kafkaprod.net.settings import ConnectionSettings
from kafkaprod.net.throttling import throttle_of
from kafkaprod.net.traffic import Traffic
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.in_flight import InFlightRequest, OnDone
from kafkaprod.protocol.negotiation import IDENTITY_VERSION, BrokerVersions
from kafkaprod.protocol.schema import Request
from kafkaprod.structs import Node

logger = logging.getLogger("kafkaprod.net")


class NodePool(Traffic):
    """The connections of one client. See also `Traffic`.

    Args:
        settings: The settings of all connections.
        clock: Measures every timeout.
        random: Source of jitter and of the least-loaded scan's starting point.

    Attributes:
        members: The known brokers, and why they could not be connected.
        is_rebootstrap_required: Whether a broker of another cluster refused this client (REBOOTSTRAP_REQUIRED,
            KIP-1102).
        ready_count: Connections that have become ready so far: with each a broker has announced its versions.
        wakeup: Called, it makes `poll` return soon. For any thread, and for signal handlers.
        to_wake: Called, and removed, right before `poll` waits, most of them without the GIL.
        add_node: `KnownNodes.add`, for a broker that another one named, such as a coordinator.
        settings: The settings of all connections.
    """

    def __init__(
        self, settings: ConnectionSettings, clock: Clock, *, random: Callable[[], float] = random.random
    ) -> None:
        super().__init__(clock)
        self.settings = settings
        self._max_in_flight = settings.options.max_in_flight_requests_per_connection
        self._max_idle_ms, self._never_logs_in = settings.options.connections_max_idle_ms, settings.mechanism is None
        self._random = random
        self._poller = settings.network.make_poller()
        self.wakeup = self._poller.wakeup
        self.to_wake = self._poller.to_wake
        self._connector = Connector(settings, clock, random, self._poller, self._finished, self._touched)
        self._run_background = self._connector.run_finished
        self.members = KnownNodes(self._connector.close)
        self._states = self.members.states
        self.add_node = self.members.add
        self._failures: list[ConnectionFailure] = []
        self._next_timer_ms = NEVER_MS
        self.ready_count = 0
        self.is_rebootstrap_required = False

    # -- which brokers there are ---------------------------------------------------------------------------------------

    def set_bootstrap(self, servers: Iterable[tuple[str, int]]) -> None:
        """Take the bootstrap servers as nodes -1, -2, ... Names are resolved on each connect."""
        self.members.set_bootstrap(servers)

    def update_nodes(self, nodes: Mapping[int, Node], cluster_id: str | None = None) -> None:
        """Take the brokers of new cluster metadata.

        A broker that moved to another host or port is another broker: its connection is closed at once. One that is
        gone gets no more requests and is closed when the last is answered. An empty mapping is ignored.

        Args:
            nodes: Node id -> broker.
            cluster_id: Sent to brokers that check it (KIP-1242), so that one of another cluster refuses this
                client; None: do not check.
        """
        if nodes:
            self._connector.cluster_id = cluster_id
            self.members.update(nodes)

    def rebootstrap(self) -> None:
        """Forget the cluster: close all connections and start over with the bootstrap servers (KIP-899)."""
        self.is_rebootstrap_required = False
        self._connector.cluster_id = None
        self.members.start_over(self._clock.now_ms())

    def node_ids(self) -> list[int]:
        """The nodes that may be sent to now."""
        return list(self.members.states)

    # -- connecting ----------------------------------------------------------------------------------------------------

    def _connect(self, link: NodeState, now_ms: int) -> None:
        if link.can_connect(now_ms):
            self._check_open()
            self._connector.connect(link, now_ms)

    def ready_delay_ms(self, node_id: int, now_ms: int) -> int | None:
        """Return how long `is_ready` is certainly false; 0: try now; None: until an event of it, which ends `poll`."""
        state = self.members.states.get(node_id)
        return None if state is None else state.ready_delay_ms(now_ms, self._max_in_flight)

    def least_loaded_node(self, now_ms: int, *, other_than: int | None = None) -> int | None:
        """Return the node for a request that any broker can answer, not `other_than`; None if none can be reached now.

        The scan starts at a random node, so that not all clients load the same broker. Call `is_ready` next, which
        connects if needed.
        """
        states = [state for node_id, state in self.members.states.items() if node_id != other_than]
        start = int(self._random() * len(states))
        return least_loaded(states[start:] + states[:start], now_ms, self._max_in_flight)

    def may_be_accepted_later(self, error: AuthenticationError) -> bool:
        """Return whether what was refused was accepted once, and rotates."""
        return self.ready_count > 0 and self.settings.may_be_accepted_later(error)

    def is_connected(self, node_id: int) -> bool:
        """Return whether a node has a connection that takes requests, even if not now."""
        state = self.members.states.get(node_id)
        return state is not None and state.is_connected

    @property
    def is_any_connected(self) -> bool:
        """Whether some node is connected, even if it takes no request now."""
        return any(state.connection is not None and state.connection.is_ready for state in self.members)

    # -- requests ------------------------------------------------------------------------------------------------------

    def versions(self, node_id: int) -> BrokerVersions | None:
        """Return the versions that the node announced; None while it is not connected."""
        connection = self._connection(node_id)
        return None if connection is None else connection.protocol.versions

    def _refuse(
        self, link: NodeState, request: Request, lowest: int, highest: int, on_done: OnDone, now_ms: int
    ) -> None:
        assert link.connection is not None
        spoken = link.connection.protocol.versions
        theirs = None if spoken is None else spoken.ranges.get(request.api)
        refused = InFlightRequest(link.node.node_id, on_done, request.api, highest, -1, now_ms, now_ms)
        refused.error = UnsupportedVersionError(
            f"{type(request).__name__}: {link.node.name} speaks versions {theirs}, we speak {lowest}..{highest}",
            node=link.node.node_id,
            api=request.api.name,
        )
        self._finished.append(refused)

    def throttle(self, node_id: int, throttle_ms: int, now_ms: int) -> None:
        """Obey a node that throttles: send nothing for that long, and extend the timeouts of requests in flight."""
        state = self.members.states.get(node_id)
        if state is not None and throttle_ms > 0:
            state.throttle(throttle_ms, now_ms)

    def _connection(self, node_id: int) -> NodeConnection | None:
        state = self.members.states.get(node_id)
        return None if state is None else state.connection

    def _raise_not_ready(self, node_id: int) -> NoReturn:
        raise IllegalStateError(f"{self.members.name_of(node_id)} is not ready for requests", node=node_id)

    def _owner_of(self, connection: NodeConnection) -> NodeState | None:
        return self.members.owner_of(connection)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def take_failures(self) -> list[ConnectionFailure]:
        """Return the connections that failed since the last call; each is a sign that metadata may be stale."""
        failures, self._failures = self._failures, []
        return failures

    def disconnect(self, node_id: int, error: KafkaError) -> None:
        """Close the connection to a node, if any, and back off; its requests fail with `error` as the cause."""
        state = self.members.states.get(node_id)
        if state is not None and state.connection is not None:
            self._connector.close(state, error)
            self._connector.back_off(state, self._clock.now_ms())

    def close(self) -> list[InFlightRequest]:
        """Close all connections; return the last outcomes. Idempotent. Only `wakeup` may be called afterwards."""
        for state in self.members:
            self._connector.close(state, ConnectionLostError(f"{state.node.name}: the client closes"))
        self._is_closed = True
        self._poller.close()
        return self._take_finished(self._clock.now_ms())

    def _take_finished(self, now_ms: int) -> list[InFlightRequest]:
        for request in self._finished:
            if request.response is not None and getattr(request.response, "throttle_time_ms", 0) > 0:
                self.throttle(request.node_id, throttle_of(request), now_ms)
        finished = self._finished.copy()
        self._finished.clear()  # the connections hold the list itself; last, as memory may run out before
        return finished

    def _check_open(self) -> None:
        if self._is_closed:
            raise IllegalStateError("the connection pool is closed")

    def _run_timers(self, now_ms: int) -> None:
        """Let every connection check the time; `_collect` finds the next deadline."""
        self._next_timer_ms = NEVER_MS
        for state in self.members:
            if state.connection is not None:
                state.connection.on_time(now_ms)
                self._touched[state] = None

    def _collect(self, now_ms: int) -> None:
        """Collect state and next deadline of the connections that were used since the last call."""
        while self._touched:
            state = next(iter(self._touched))
            del self._touched[state]
            connection = state.connection
            if connection is None:
                continue
            if not state.was_ready and connection.is_ready:
                state.was_ready = True
                logger.log(
                    logging.DEBUG if self.ready_count else logging.INFO, "connected to %s", printable(state.node.name)
                )
                self.ready_count += 1
                usable = connection.protocol.usable_version(ApiKey.API_VERSIONS, IDENTITY_VERSION, IDENTITY_VERSION)
                state.checks_identity = usable is not None
            if connection.has_answered:
                state.failure_count, state.last_failure = 0, None
            if connection.failure is not None:
                self._on_closed(state, connection, now_ms)
            deadline_ms = connection.next_deadline_ms()
            if deadline_ms is not None:
                self._next_timer_ms = min(self._next_timer_ms, deadline_ms)
            state.is_steady = connection.is_ready and self._never_logs_in and state.failure_count == 0
            self.members.close_if_retired(state)

    def _on_closed(self, state: NodeState, connection: NodeConnection, now_ms: int) -> None:
        failure = self._connector.on_closed(state, connection, now_ms)
        if failure is None:
            return
        self._failures.append(failure)
        self._has_failed = True
        if isinstance(failure.error, BrokerError) and failure.error.code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self.is_rebootstrap_required = True

    # -- counters ------------------------------------------------------------------------------------------------------

    def metrics(self) -> Mapping[int, NodeCounters]:
        """Return the live counters of each node, including nodes that left; they never go back."""
        return self.members.metrics

    @property
    def poll_count(self) -> int:
        """Calls of the kernel for readiness."""
        return self._poller.poll_count

    @property
    def wait_ns(self) -> int:
        """Nanoseconds spent waiting for readiness."""
        return self._poller.wait_ns

    @property
    def connection_count(self) -> int:
        """Connections that exist now, those being made included."""
        return sum(state.connection is not None for state in self.members)
