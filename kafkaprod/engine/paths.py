"""The ways to the nodes, each measured by its own answers. Sender thread only."""

from __future__ import annotations

from kafkaprod._core.requests.node_path import Flight, NodePath
from kafkaprod._core.requests.produce_request import ProduceRequest
from kafkaprod.config import OPTIONS, ProducerConfig
from kafkaprod.engine.memory_shares import MemoryShares
from kafkaprod.engine.node_states import NodeStates


class Paths:
    """What each node's path carries, by the requests of one producer that were answered.

    Args:
        config: Options.
        room_bytes: Most bytes of batches in a request near by.
        shares: What nodes may hold; follows the rates.
        states: Which nodes are slow or sick; follows the answers.
    """

    def __init__(self, config: ProducerConfig, room_bytes: int, shares: MemoryShares, states: NodeStates) -> None:
        self._config = config
        self._room_bytes = room_bytes
        self._shares = shares
        self._states = states
        self._paths: dict[int, NodePath] = states.paths
        self._flights: dict[ProduceRequest, Flight | None] = {}

    def to(self, node_id: int) -> NodePath | None:
        """Return the way to a node; None with acks=0, where no answer says what arrives."""
        path = self._paths.get(node_id)
        if path is None and self._config.acks != 0:
            path = self._paths[node_id] = NodePath(
                self._config.batch_size,
                self._room_bytes,
                self._config.max_request_size < OPTIONS["max_request_size"].default,
                self._config.request_timeout_ms,
                self._config.max_in_flight_requests_per_connection,
            )
        return path

    def on_sent(self, request: ProduceRequest, size_bytes: int, plain_bytes: int, now_ms: int) -> None:
        """Note that a request was given to the connection of its node.

        Args:
            request: The request.
            size_bytes: Its bytes as sent.
            plain_bytes: The bytes of its batches before compression.
            now_ms: The time.
        """
        path = self.to(request.node_id)
        if path is None:
            self._states.on_sent(request.node_id, now_ms)
            return
        self._flights[request] = None  # takes memory, if there is any: what is counted below must be kept
        leaves_more = self._shares.on_sent(request.node_id, leaves_more=request.leaves_more)
        self._states.on_sent(request.node_id, now_ms)
        self._flights[request] = path.on_sent(size_bytes, now_ms, plain_bytes, leaves_more)

    def on_ended(self, request: ProduceRequest, now_ms: int, *, is_answered: bool) -> None:
        """Note that a request has ended; once for each."""
        flight = self._flights.pop(request, None)
        path = self.to(request.node_id)
        if flight is None or path is None:
            return
        if is_answered:
            path.on_answer(flight, now_ms)
            self._shares.on_answer(request.node_id, path.memory_rate, path.shown_rate)
            self._states.on_answer(request.node_id, now_ms)
        else:
            path.on_lost(flight)
            self._shares.on_no_answer(request.node_id)

    def on_throttle(self, node_id: int, throttle_ms: int, now_ms: int) -> None:
        """Note that a node wants nothing for a while."""
        self._states.on_throttle(node_id, throttle_ms, now_ms)
        path = self.to(node_id)
        if path is not None:
            path.on_throttle(throttle_ms)
