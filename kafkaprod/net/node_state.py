"""The state of a broker across its connections, and the choice of the least loaded one. No I/O.

Source: Kafka's ClusterConnectionStates and NetworkClient.leastLoadedNode.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from kafkaprod.errors import AuthenticationError, KafkaError, printable
from kafkaprod.metrics.sums import NodeCounters
from kafkaprod.net.channel import Link
from kafkaprod.net.node import ConnectionStage, NodeConnection
from kafkaprod.net.throttling import MAX_THROTTLE_MS
from kafkaprod.net.transport import is_unknown_name
from kafkaprod.structs import Node

_UNCONNECTED: Final = (ConnectionStage.RESOLVE, ConnectionStage.CONNECT)
UNFIT_ATTEMPTS: Final = 8  # about 4 s with the default reconnect backoff
HEAD_START_MS: Final = 250  # RFC 8305: how long one attempt is alone before another begins beside it
logger = logging.getLogger("kafkaprod.net")


class ConnectionFailure(NamedTuple):
    """A connection that ended.

    Attributes:
        stage: Its progress.
        error: Why it ended.
        attempt: Consecutive failed connections to this node, this one included.
        was_idle: Whether it had served requests and nothing was in flight: the peer tidies up, and nothing is lost.
        at_ms: When it ended.
    """

    node: Node
    stage: ConnectionStage
    error: KafkaError
    attempt: int
    was_idle: bool = False
    at_ms: int = 0

    @property
    def is_hopeless(self) -> bool:
        """Whether retries cannot help.

        A resolver says that there is no such name; a certificate or credentials were refused; or the port takes
        connections and ends each of them before the first answer, UNFIT_ATTEMPTS consecutive times, as it does when
        `security_protocol` does not fit.
        """
        if isinstance(self.error, AuthenticationError):
            return True
        if self.stage is ConnectionStage.RESOLVE:
            cause = self.error.__cause__
            return cause is None or is_unknown_name(cause)
        return self.stage is not ConnectionStage.CONNECT and self.attempt >= UNFIT_ATTEMPTS


class NodeState(Link):
    """A broker as the pool sees it; outlives its connections. See also `Link`.

    Attributes:
        is_bootstrap: Whether it is one of the user's bootstrap servers, and no broker that an answer has named.
        was_ready: Whether `connection` has been ready.
        checks_identity: Whether the broker may check its cluster and node id: true until its versions exclude it.
        failure_count: Failed connections since it last answered a request.
        last_attempt_ms: When it was last connected, -1 if never.
        next_attempt_ms: When it may be connected again.
        has_overthrottled: Whether a throttle beyond MAX_THROTTLE_MS was logged.
        last_failure: Why the last connection ended; None once a later one answered a request.
    """

    connection: NodeConnection | None

    def __init__(self, node: Node, metrics: NodeCounters) -> None:
        self.node = node
        self.metrics = metrics
        self.is_bootstrap = False
        self.was_ready = False
        self.checks_identity = True
        self.failure_count = 0
        self.last_attempt_ms = -1
        self.next_attempt_ms = 0
        self.last_failure: ConnectionFailure | None = None
        self.has_overthrottled = False

    @property
    def is_silent(self) -> bool:
        """Whether the first connection is in progress and has no answer so far."""
        connection = self.connection
        return connection is not None and not connection.is_ready and self.last_failure is None

    @property
    def is_connected(self) -> bool:
        """Whether it has a connection that takes requests."""
        return self.connection is not None and self.connection.is_ready

    @property
    def stage(self) -> ConnectionStage | None:
        """The progress of the connection; None without one."""
        connection = self.connection
        return None if connection is None else connection.stage

    @property
    def silence_hint(self) -> str:
        """Advice if the connection has no answer yet; empty if it is not even open."""
        connection = self.connection
        return "" if connection is None or connection.stage in _UNCONNECTED else connection.hint()

    def can_connect(self, now_ms: int) -> bool:
        """Return whether it is not connected and the backoff has passed."""
        return self.connection is None and now_ms >= self.next_attempt_ms

    def ready_delay_ms(self, now_ms: int, max_in_flight: int) -> int | None:
        """Return how long certainly nothing can be sent; 0: try now; None: until an event of the connection."""
        if self.connection is None:
            return max(self.next_attempt_ms - now_ms, 0)
        if self.connection.is_ready and now_ms < self.throttled_until_ms:
            return self.throttled_until_ms - now_ms
        return 0 if self.can_send(now_ms, max_in_flight) else None

    def throttle(self, throttle_ms: int, now_ms: int) -> None:
        """Send nothing for that long, at most `MAX_THROTTLE_MS`, and extend the timeouts of requests in flight."""
        if throttle_ms > MAX_THROTTLE_MS and not self.has_overthrottled:
            self.has_overthrottled = True
            logger.warning(
                "%s throttles for %d ms: %d are obeyed", printable(self.node.name), throttle_ms, MAX_THROTTLE_MS
            )
        throttle_ms = min(throttle_ms, MAX_THROTTLE_MS)
        self.throttled_until_ms = max(self.throttled_until_ms, now_ms + throttle_ms)
        if self.connection is not None:
            self.connection.protocol.extend_deadlines(throttle_ms)


def least_loaded(states: Iterable[NodeState], now_ms: int, max_in_flight: int) -> int | None:
    """Return the node for a request that any broker can answer; None if none can be reached now.

    The order: ready with nothing in flight; ready with the fewest in flight; connecting; the one that may be connected
    and was tried least recently. Among equals the first. Bootstrap servers are tried beside one another: another one
    comes before those that have been connecting for HEAD_START_MS.
    """
    ready: list[tuple[int, int]] = []  # requests in flight, node id
    connecting: list[tuple[int, int]] = []  # last attempt, node id
    connectable: list[tuple[int, int]] = []  # last attempt, node id
    for state in states:
        node_id, connection = state.node.node_id, state.connection
        if connection is None:
            if state.can_connect(now_ms):
                connectable.append((state.last_attempt_ms, node_id))
        elif state.can_send(now_ms, max_in_flight):
            if not connection.protocol.in_flight_count:
                return node_id
            ready.append((connection.protocol.in_flight_count, node_id))
        elif not connection.is_ready:
            connecting.append((state.last_attempt_ms, node_id))
    if ready:
        return min(ready, key=_first)[1]
    next_one = min(connectable, key=_first)[1] if connectable else None
    if not connecting or (
        next_one is not None and next_one < 0 and now_ms - max(connecting, key=_first)[0] >= HEAD_START_MS
    ):
        return next_one
    return connecting[0][1]


def _first(pair: tuple[int, int]) -> int:
    return pair[0]
