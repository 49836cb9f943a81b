"""All brokers of a cluster: who is connected, who may be connected when, and what came back.

The sender asks `is_ready` (which also starts connecting), sends, and calls `poll` for the outcomes. Brokers are known
by their node id; the bootstrap servers, used until the first metadata, have negative ids.

Memory: buffers given to `send_body` are read until the request's `Completion` comes out of `poll`, never after: a
connection is closed before the failure of its requests is reported.
Threads: the I/O thread, except `wakeup`.
Sources: Kafka's NetworkClient and ClusterConnectionStates; KIP-144, KIP-601 (backoff, setup timeout), KIP-219
(throttling), KIP-899 and KIP-1102 (rebootstrap).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafkaprod.clock import Clock
from kafkaprod.errors import (
    AuthenticationError,
    BootstrapError,
    BrokerError,
    ConnectionLostError,
    IllegalStateError,
    KafkaError,
    UnsupportedVersionError,
)
from kafkaprod.net.background import BackgroundCalls, Offload
from kafkaprod.net.completion import Completion, NodeMetrics
from kafkaprod.net.node import NodeConnection
from kafkaprod.net.node_state import ConnectionFailure, NodeState, least_loaded
from kafkaprod.net.poller import Poller
from kafkaprod.net.settings import ConnectionSettings
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.negotiation import IDENTITY_VERSION, BrokerVersions
from kafkaprod.protocol.outgoing import Buffer, ByteChain
from kafkaprod.protocol.schema import Request
from kafkaprod.structs import Node

RECEIVE_BUFFER_BYTES = 64 << 10
MIN_AUTHENTICATION_RETRY_MS = 1000  # refused credentials do not get better by asking often
NEVER_MS = 1 << 62

# First version of each API after which the broker answers first and expects the client to hold back (KIP-219).
# Below it the broker delays the response itself. Produce is told by the sender, which reads its responses.
CLIENT_THROTTLED_FROM = {3: 6, 10: 2, 18: 2, 19: 3, 20: 2, 22: 1, 24: 1, 25: 1, 26: 1, 28: 1, 37: 1, 71: 0, 72: 0}


class NodePool:
    """The connections of one client.

    Args:
        settings: Of all connections.
        clock: The time of every timeout.
        random: Source of jitter and of the least-loaded scan's starting point.

    Attributes:
        wakeup: Called, it makes `poll` return soon. For any thread, and for signal handlers.
    """

    def __init__(
        self, settings: ConnectionSettings, clock: Clock, *, random: Callable[[], float] = random.random
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._random = random
        self._reconnect_backoff = settings.reconnect_backoff
        self._setup_timeout = settings.setup_timeout
        self._poller = Poller()
        self.wakeup = self._poller.wakeup
        self._background = BackgroundCalls(self.wakeup)
        self._receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._bootstrap: dict[int, Node] = {}
        self._cluster_id: str | None = None
        self._states: dict[int, NodeState] = {}
        self._metrics: dict[int, NodeMetrics] = {}
        self._retired: dict[int, NodeState] = {}  # left the cluster with requests in flight
        self._completions: list[Completion] = []
        self._failures: list[ConnectionFailure] = []
        self._has_news = False  # something happened outside of `poll`, which then must not wait
        self._next_timer_ms = NEVER_MS  # not later than the earliest deadline of any connection
        self._is_closed = False
        self._is_rebootstrap_required = False

    # --- who is there ----------------------------------------------------------------------------------------------

    def set_bootstrap(self, servers: Iterable[tuple[str, int]]) -> None:
        """Take the bootstrap servers as nodes -1, -2, ... Names are resolved on each connect."""
        self._bootstrap = {-index: Node(-index, host, port) for index, (host, port) in enumerate(servers, 1)}
        self._take_nodes(self._bootstrap)

    def update_nodes(self, nodes: Mapping[int, Node], cluster_id: str | None = None) -> None:
        """Take the brokers of new cluster metadata.

        A broker that moved to another host or port is another broker: its connection is closed at once. One that is
        gone, bootstrap servers included, gets no more requests and is closed when the last is answered.
        An empty mapping is ignored: a broker that knows no broker knows nothing.

        Args:
            nodes: Node id -> broker.
            cluster_id: Told to brokers that check it (KIP-1242), so that one of another cluster refuses us; None: do
                not check.
        """
        if nodes:
            self._cluster_id = cluster_id
            self._take_nodes(nodes)

    def rebootstrap(self) -> None:
        """Forget the cluster: close all connections and start over with the bootstrap servers (KIP-899)."""
        for state in [*self._states.values(), *self._retired.values()]:
            self._close(state, ConnectionLostError(f"node {state.node.node_id}: starting over from bootstrap"))
        self._states = {}
        self._is_rebootstrap_required = False
        self._cluster_id = None
        self._take_nodes(self._bootstrap)

    @property
    def is_rebootstrap_required(self) -> bool:
        """Whether a broker refused us as strangers to its cluster (error 129, KIP-1102); `rebootstrap` lowers it."""
        return self._is_rebootstrap_required

    def node_ids(self) -> list[int]:
        """The nodes that may be asked now."""
        return list(self._states)

    def _take_nodes(self, nodes: Mapping[int, Node]) -> None:
        known = {**self._retired, **self._states}
        self._states = {}
        for node_id, node in nodes.items():
            state = known.pop(node_id, None)
            if state is not None and (node.host, node.port) != (state.node.host, state.node.port):
                self._close(state, ConnectionLostError(f"node {node_id} moved to {node.host}:{node.port}"))
                state = None
            if state is None:
                state = NodeState(node, self._metrics.setdefault(node_id, NodeMetrics()))
            state.node = node  # the rack may differ
            self._retired.pop(node_id, None)
            self._states[node_id] = state
        for state in known.values():
            self._retire(state)

    def _retire(self, state: NodeState) -> None:
        """Keep the connection of a node that left until its requests are answered."""
        node_id, connection = state.node.node_id, state.connection
        if connection is None or not state.was_ready or not connection.protocol.in_flight_count:
            self._retired.pop(node_id, None)
            self._close(state, ConnectionLostError(f"node {node_id} left the cluster"))
        else:
            self._retired[node_id] = state

    # --- connecting ------------------------------------------------------------------------------------------------

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        """Whether a request may be sent to the node now. Starts connecting if it is not connected and may be."""
        state = self._states.get(node_id)
        if state is None:
            return False
        if state.can_connect(now_ms):
            self._connect(state, now_ms)
        return state.can_send(now_ms, self._settings.max_in_flight)

    def ready_delay_ms(self, node_id: int, now_ms: int) -> int | None:
        """How long `is_ready` is sure to be false: 0 if it is worth asking; None if something must happen first.

        That something (connected, answered, written) ends `poll` by itself.
        """
        state = self._states.get(node_id)
        return None if state is None else state.ready_delay_ms(now_ms, self._settings.max_in_flight)

    def least_loaded_node(self, now_ms: int) -> int | None:
        """The node to ask something any broker can answer; None if none can be reached now.

        The scan starts anywhere, so that not all clients load the same broker. Ask `is_ready` of the answer next: it
        connects where that is needed.
        """
        states = list(self._states.values())
        start = int(self._random() * len(states))
        return least_loaded(states[start:] + states[:start], now_ms, self._settings.max_in_flight)

    @property
    def is_any_connected(self) -> bool:
        """Whether some node is connected, if only it takes no request now: its requests in flight have yet to end."""
        return any(state.connection is not None and state.connection.is_ready for state in self._states.values())

    def _connect(self, state: NodeState, now_ms: int) -> None:
        self._check_open()
        state.last_attempt_ms = now_ms
        connection = NodeConnection(
            state.node,
            self._settings,
            self._poller,
            self._offload_for(state),
            state.metrics,
            self._receive_buffer,
            setup_timeout_ms=self._setup_timeout.delay_ms(state.failure_count, self._random),
            identity=self._identity(state),
        )
        state.connection, state.was_ready = connection, False
        connection.start(now_ms)
        self._settle(state, connection)

    def _identity(self, state: NodeState) -> tuple[str, int] | None:
        """What the broker must be. Left out where it is known not to check: asking would cost it a round trip."""
        if self._cluster_id is None or state.node.node_id < 0 or not state.checks_identity:
            return None
        return self._cluster_id, state.node.node_id

    def _offload_for(self, state: NodeState) -> Offload:
        def offload(
            call: Callable[[], Any], on_result: Callable[[Any, int], None], on_error: Callable[[Exception, int], None]
        ) -> None:
            connection = state.connection

            def deliver(callback: Callable[[Any, int], None]) -> Callable[[Any], None]:
                def run(outcome: Any) -> None:
                    callback(outcome, self._clock.now_ms())
                    if connection is not None:
                        self._settle(state, connection)

                return run

            self._background.submit(call, deliver(on_result), deliver(on_error))

        return offload

    # --- requests --------------------------------------------------------------------------------------------------

    def versions(self, node_id: int) -> BrokerVersions | None:
        """What the node announced; None while it is not connected."""
        connection = self._connection(node_id)
        return None if connection is None else connection.protocol.versions

    def api_version(self, node_id: int, api_key: int, our_min: int, our_max: int) -> int | None:
        """The highest version of an API that the node and we speak; None if there is none or it is not connected."""
        connection = self._connection(node_id)
        return None if connection is None else connection.protocol.usable_version(api_key, our_min, our_max)

    def in_flight_count(self, node_id: int) -> int:
        """Requests without an outcome."""
        connection = self._connection(node_id)
        return 0 if connection is None else connection.protocol.in_flight_count

    def send(
        self, node_id: int, request: Request, *, token: Any, now_ms: int, timeout_ms: int, version: int | None = None
    ) -> int:
        """Send a declared request to a node that is ready; return the version it is sent in.

        Args:
            node_id: Where to.
            request: What.
            token: Comes back in the `Completion`, which carries the decoded response.
            now_ms: The time.
            timeout_ms: How long to wait for the response; the connection is closed when it passes.
            version: None: the highest both sides speak.

        Raises:
            IllegalStateError: The node is not ready.
            UnsupportedVersionError: No version is spoken by both. Nothing was sent in either case.
        """
        state, connection = self._ready_state(node_id)
        if version is None:
            lowest, highest = request.versions
            version = connection.protocol.usable_version(request.api, lowest, highest)
            if version is None:
                spoken = connection.protocol.versions
                theirs = None if spoken is None else spoken.ranges.get(request.api)
                raise UnsupportedVersionError(
                    f"{type(request).__name__}: node {node_id} speaks versions {theirs}, we speak {lowest}..{highest}",
                    node=node_id,
                    api=request.api.name,
                )
        connection.protocol.send(request, version, token=token, now_ms=now_ms, timeout_ms=timeout_ms)
        self._sent(state, connection, now_ms)
        return version

    def send_body(
        self,
        node_id: int,
        api_key: int,
        version: int,
        parts: Sequence[Buffer | ByteChain],
        size: int,
        *,
        token: Any,
        now_ms: int,
        timeout_ms: int,
        expects_response: bool = True,
    ) -> None:
        """Send a request whose body is encoded already; its `Completion` carries the raw response body.

        The parts travel uncopied: they must not change before the `Completion` of `token` has come out of `poll`.
        Arguments and errors as in `protocol.client.Connection.send_body`.
        """
        state, connection = self._ready_state(node_id)
        connection.protocol.send_body(
            api_key,
            version,
            parts,
            size,
            token=token,
            now_ms=now_ms,
            timeout_ms=timeout_ms,
            expects_response=expects_response,
        )
        self._sent(state, connection, now_ms)

    def throttle(self, node_id: int, throttle_ms: int, now_ms: int) -> None:
        """The node asked us to hold back: send nothing for so long, and give requests in flight that much more time."""
        state = self._states.get(node_id)
        if state is not None and throttle_ms > 0:
            state.throttled_until_ms = max(state.throttled_until_ms, now_ms + throttle_ms)
            if state.connection is not None:
                state.connection.protocol.extend_deadlines(throttle_ms)

    def _connection(self, node_id: int) -> NodeConnection | None:
        state = self._states.get(node_id)
        return None if state is None else state.connection

    def _ready_state(self, node_id: int) -> tuple[NodeState, NodeConnection]:
        state = self._states.get(node_id)
        if state is None or state.connection is None or not state.connection.is_ready:
            raise IllegalStateError(f"node {node_id} is not ready for requests", node=node_id)
        return state, state.connection

    def _sent(self, state: NodeState, connection: NodeConnection, now_ms: int) -> None:
        state.metrics.requests_sent += 1
        connection.flush(now_ms)
        self._settle(state, connection)

    # --- the loop --------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float) -> list[Completion]:
        """Move bytes for at most `timeout_ms`; return the outcomes of requests, in order for each node.

        Returns at once when outcomes wait already, and early for any readiness, deadline or `wakeup`.
        """
        self._check_open()
        now_ms = self._clock.now_ms()
        if self._has_news:
            timeout_ms = 0
        ready = self._poller.poll(min(timeout_ms, max(self._next_timer_ms - now_ms, 0)))
        now_ms = self._clock.now_ms()
        self._background.run_finished()
        for connection, _ in ready:
            state = self._state_of(connection)
            if state is not None:  # else it was closed a moment ago
                connection.on_io(now_ms)
                self._settle(state, connection)
        if now_ms >= self._next_timer_ms:
            self._run_timers(now_ms)
        completions, self._completions = self._completions, []
        self._has_news = False
        return completions

    def take_failures(self) -> list[ConnectionFailure]:
        """Connections that ended since the last call, those we ended ourselves left out.

        Look at it after each `poll`: metadata is stale, or, with an AuthenticationError, the credentials are refused.
        """
        failures, self._failures = self._failures, []
        return failures

    def disconnect(self, node_id: int, error: KafkaError) -> None:
        """Close the connection to a node, if any, and back off; its requests fail with `error` as the cause."""
        state = self._states.get(node_id)
        if state is not None and state.connection is not None:
            self._close(state, error)
            self._back_off(state, self._clock.now_ms(), 0)

    def close(self) -> list[Completion]:
        """Close all connections; return the last outcomes. Idempotent. Only `wakeup` may be called afterwards."""
        for state in [*self._states.values(), *self._retired.values()]:
            self._close(state, ConnectionLostError(f"node {state.node.node_id}: the client closes"))
        self._is_closed = True
        self._poller.close()
        completions, self._completions = self._completions, []
        return completions

    def _close(self, state: NodeState, error: KafkaError) -> None:
        if state.connection is not None:
            connection = state.connection
            connection.close(error, self._clock.now_ms())
            self._settle(state, connection)

    def _check_open(self) -> None:
        if self._is_closed:
            raise IllegalStateError("the connection pool is closed")

    def _state_of(self, connection: NodeConnection) -> NodeState | None:
        node_id = connection.node.node_id
        for state in (self._states.get(node_id), self._retired.get(node_id)):
            if state is not None and state.connection is connection:
                return state
        return None

    def _run_timers(self, now_ms: int) -> None:
        """Let every connection look at the time, and find the next deadline anew."""
        self._next_timer_ms = NEVER_MS
        for state in [*self._states.values(), *self._retired.values()]:
            if state.connection is not None:
                connection = state.connection
                connection.on_time(now_ms)
                self._settle(state, connection)

    def _settle(self, state: NodeState, connection: NodeConnection) -> None:
        """Take notice of whatever has just happened to a connection. Called after every touch of one."""
        now_ms = self._clock.now_ms()
        for completion in connection.take_completions():
            self._watch_throttle(completion, now_ms)
            self._completions.append(completion)
            self._has_news = True
        if connection.is_ready and not state.was_ready:
            state.was_ready, state.failure_count, state.last_failure = True, 0, None
            state.checks_identity = (
                connection.protocol.usable_version(ApiKey.API_VERSIONS, IDENTITY_VERSION, IDENTITY_VERSION) is not None
            )
        if connection.failure is not None and state.connection is connection:
            self._on_closed(state, connection, connection.failure, now_ms)
        deadline_ms = connection.next_deadline_ms()
        if deadline_ms is not None:
            self._next_timer_ms = min(self._next_timer_ms, deadline_ms)
        if self._retired.get(state.node.node_id) is state:
            self._retire(state)

    def _on_closed(self, state: NodeState, connection: NodeConnection, error: KafkaError, now_ms: int) -> None:
        state.connection = None
        if connection.is_closed_by_us:
            return
        self._back_off(state, now_ms, MIN_AUTHENTICATION_RETRY_MS if isinstance(error, AuthenticationError) else 0)
        state.last_failure = ConnectionFailure(state.node, connection.stage, error, state.failure_count)
        self._failures.append(state.last_failure)
        self._has_news = True
        if isinstance(error, BrokerError) and error.code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._is_rebootstrap_required = True

    def _back_off(self, state: NodeState, now_ms: int, least_ms: int) -> None:
        delay_ms = self._reconnect_backoff.delay_ms(state.failure_count, self._random)
        state.failure_count += 1
        state.next_attempt_ms = now_ms + max(delay_ms, least_ms)

    def _watch_throttle(self, completion: Completion, now_ms: int) -> None:
        throttle_ms = getattr(completion.response, "throttle_time_ms", 0)
        if throttle_ms > 0 and completion.version >= CLIENT_THROTTLED_FROM.get(completion.api_key, 1 << 15):
            self.throttle(completion.node_id, throttle_ms, now_ms)

    # --- what went wrong, what was done ----------------------------------------------------------------------------

    def bootstrap_failures(self) -> list[ConnectionFailure]:
        """The last failure of each bootstrap server that was tried and is not connected."""
        states = (self._states.get(node_id) for node_id in self._bootstrap)
        return [state.last_failure for state in states if state is not None and state.last_failure is not None]

    @property
    def is_bootstrap_hopeless(self) -> bool:
        """Whether every bootstrap server failed in a way that trying again does not heal."""
        failures = self.bootstrap_failures()
        return len(failures) == len(self._bootstrap) and all(failure.is_hopeless for failure in failures)

    def bootstrap_error(self) -> BootstrapError | AuthenticationError:
        """An error that names each failed bootstrap server, how far the connection came, and why it ended.

        An AuthenticationError if that is why all of them ended.
        """
        failures = self.bootstrap_failures()
        lines = [f"{failure.node.host}:{failure.node.port} ({failure.stage}): {failure.error}" for failure in failures]
        is_refused = failures and all(isinstance(failure.error, AuthenticationError) for failure in failures)
        kind = AuthenticationError if is_refused else BootstrapError
        error = kind("no bootstrap server could be used: " + ("; ".join(lines) or "none was tried"))
        error.__cause__ = failures[-1].error if failures else None
        return error

    def metrics(self) -> Mapping[int, NodeMetrics]:
        """The live counters of each node, those that left included; they never go back."""
        return self._metrics

    @property
    def poll_count(self) -> int:
        """How many times the kernel was asked for readiness."""
        return self._poller.poll_count

    @property
    def wait_ns(self) -> int:
        """Nanoseconds spent waiting for readiness."""
        return self._poller.wait_ns

    @property
    def connection_count(self) -> int:
        """Connections that exist now, those being made included."""
        states = [*self._states.values(), *self._retired.values()]
        return sum(state.connection is not None for state in states)
