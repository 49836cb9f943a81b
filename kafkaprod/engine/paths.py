"""The ways to the nodes, each measured by its own answers. Sender thread only."""

from __future__ import annotations

from kafkaprod._core.requests.node_path import Flight, NodePath
from kafkaprod._core.requests.produce_request import ProduceRequest
from kafkaprod.config import OPTIONS, ProducerConfig


class Paths:
    """What each node's path carries, by the requests of one producer that were answered.

    Args:
        config: Options.
        room_bytes: Most bytes of batches in a request near by.
    """

    def __init__(self, config: ProducerConfig, room_bytes: int) -> None:
        self._config = config
        self._room_bytes = room_bytes
        self._paths: dict[int, NodePath] = {}
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

    def on_sent(self, request: ProduceRequest, size_bytes: int, now_ms: int) -> None:
        """Note that a request was given to the connection of its node."""
        path = self.to(request.node_id)
        if path is not None:
            self._flights[request] = None  # takes memory, if there is any: what is counted below must be kept
            self._flights[request] = path.on_sent(size_bytes, now_ms)

    def on_ended(self, request: ProduceRequest, now_ms: int, *, is_answered: bool) -> None:
        """Note that a request has ended; once for each."""
        flight = self._flights.pop(request, None)
        path = self.to(request.node_id)
        if flight is None or path is None:
            return
        if is_answered:
            path.on_answer(flight, now_ms)
        else:
            path.on_lost(flight)

    def on_throttle(self, node_id: int, throttle_ms: int) -> None:
        """Note that a node wants nothing for a while."""
        path = self.to(node_id)
        if path is not None:
            path.on_throttle(throttle_ms)
