"""Makes and ends the connections of a pool; decides when to try again, and keeps why they ended.

Threads: the I/O thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kafkaprod.clock import Clock
from kafkaprod.errors import AuthenticationError, KafkaError
from kafkaprod.net.background import BackgroundCalls, Offload
from kafkaprod.net.network import Readiness
from kafkaprod.net.node import NodeConnection
from kafkaprod.net.node_state import ConnectionFailure, NodeState
from kafkaprod.net.settings import ConnectionSettings
from kafkaprod.protocol.in_flight import InFlightRequest

RECEIVE_BUFFER_BYTES: Final = 64 << 10
MIN_AUTHENTICATION_RETRY_MS: Final = 1000  # many attempts with refused credentials do not help


class Connector:
    """Makes and ends connections.

    Args:
        settings: The settings of all connections.
        clock: The time at which results of blocking calls arrive.
        random: Source of jitter.
        poller: Watches the sockets.
        finished: The list to which connections append requests that have ended.
        touched: The brokers whose connection was used.

    Attributes:
        cluster_id: Sent to brokers that check it (KIP-1242); None: not checked.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        clock: Clock,
        random: Callable[[], float],
        poller: Readiness,
        finished: list[InFlightRequest],
        touched: dict[NodeState, None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._random = random
        self._poller = poller
        self._finished = finished
        self._touched = touched
        self._reconnect_backoff = settings.reconnect_backoff
        self._setup_timeout = settings.setup_timeout
        self._background = BackgroundCalls(poller.wakeup)
        self._receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.run_finished = self._background.run_finished
        self.cluster_id: str | None = None

    def connect(self, state: NodeState, now_ms: int) -> None:
        """Begin a connection to a broker that has none."""
        state.last_attempt_ms = now_ms
        connection = NodeConnection(
            state.node,
            self._settings,
            self._poller,
            self._offload_for(state),
            state.metrics,
            self._receive_buffer,
            self._finished,
            setup_timeout_ms=self._setup_timeout.delay_ms(state.failure_count, self._random),
            identity=self._identity(state),
            is_bootstrap=state.is_bootstrap,
        )
        state.connection, state.was_ready, state.is_steady = connection, False, False
        connection.start(now_ms)
        self._touched[state] = None

    def _identity(self, state: NodeState) -> tuple[str, int] | None:
        """Return the identity the broker must have; None if it does not check, which saves a round trip."""
        if self.cluster_id is None or state.is_bootstrap or not state.checks_identity:
            return None
        return self.cluster_id, state.node.node_id

    def _offload_for(self, state: NodeState) -> Offload:
        def offload(
            call: Callable[[], Any], on_result: Callable[[Any, int], None], on_error: Callable[[Exception, int], None]
        ) -> None:
            def deliver(callback: Callable[[Any, int], None]) -> Callable[[Any], None]:
                def run(outcome: Any) -> None:
                    callback(outcome, self._clock.now_ms())
                    self._touched[state] = None

                return run

            self._background.submit(call, deliver(on_result), deliver(on_error))

        return offload

    def close(self, state: NodeState, error: KafkaError) -> None:
        """End the connection of a broker, if it has one; its requests fail with `error` as their cause."""
        if state.connection is not None:
            state.connection.close(error)  # if memory runs out in it, the next call finds the connection again
            state.connection = None

    def back_off(self, state: NodeState, now_ms: int, least_ms: int = 0) -> None:
        """Set the broker's backoff, longer after each consecutive failure."""
        delay_ms = self._reconnect_backoff.delay_ms(state.failure_count, self._random)
        state.failure_count += 1
        state.next_attempt_ms = now_ms + max(delay_ms, least_ms)

    def on_closed(self, state: NodeState, connection: NodeConnection, now_ms: int) -> ConnectionFailure | None:
        """Handle the end of a connection; return its failure, None if this client ended it."""
        state.connection = None
        error = connection.failure
        if connection.is_closed_by_us or error is None:
            return None
        self.back_off(state, now_ms, MIN_AUTHENTICATION_RETRY_MS if isinstance(error, AuthenticationError) else 0)
        state.last_failure = ConnectionFailure(
            state.node, connection.stage, error, state.failure_count, connection.was_idle, now_ms
        )
        if connection.was_idle:
            state.failure_count = 0  # the next failure is the first of an outage, and is logged as that
        return state.last_failure
