"""Requests that end their connection, as at a broker whose `socket.request.max.bytes` they exceed. Sender thread only.

A broker says nothing about such a request: it closes the connection. When the same has happened to a node three times
without an answer, its batches go out alone, so that only those suffer that are too large by themselves, and new batches
stay smaller. After 30 s larger requests are tried again.
"""

from __future__ import annotations

from typing import Final

from kafkaprod._core.requests.produce_request import ProduceRequest
from kafkaprod.errors import ConnectionLostError, KafkaError

MOST_ENDINGS: Final = 3
ALONE_MS: Final = 30_000
LEAST_BYTES: Final = 65_536  # a limit below this is unlikely: the connection ended for another reason
LEAST_BATCH_BYTES: Final = 16_384


class _Ending:
    """What happened to a node since its last answer.

    Attributes:
        count: How many connections have ended with requests on their way.
        at_ms: When the last of them did.
        size_bytes: The size of the smallest request that was the oldest one on its connection then.
        alone_until_ms: Until when batches go out alone.
    """

    __slots__ = ("alone_until_ms", "at_ms", "count", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.count = 0
        self.at_ms = -1
        self.size_bytes = size_bytes
        self.alone_until_ms = -1


class Endings:
    """What happened to the nodes of one producer."""

    def __init__(self) -> None:
        self._nodes: dict[int, _Ending] = {}
        self._sizes: dict[ProduceRequest, int] = {}

    def on_sent(self, request: ProduceRequest, size_bytes: int) -> None:
        """Note how large a request is."""
        self._sizes[request] = size_bytes

    def on_answer(self, request: ProduceRequest) -> None:
        """Note that a node takes requests of this size."""
        size_bytes = self._sizes.pop(request, 0)
        ending = self._nodes.get(request.node_id)
        if ending is not None and (ending.count < MOST_ENDINGS or size_bytes >= ending.size_bytes):
            del self._nodes[request.node_id]

    def on_lost(self, request: ProduceRequest, error: KafkaError, now_ms: int) -> KafkaError:
        """Note that a request got no answer; return the error for its records, which says what repeats itself."""
        size_bytes = self._sizes.pop(request, 0)
        if not isinstance(error, ConnectionLostError) or size_bytes < LEAST_BYTES:
            return error
        ending = self._nodes.setdefault(request.node_id, _Ending(size_bytes))
        if ending.at_ms != now_ms:  # the oldest one on its connection: the others were lost with it
            ending.at_ms = now_ms
            ending.count += 1
            ending.size_bytes = min(ending.size_bytes, size_bytes)
        if ending.count < MOST_ENDINGS:
            return error
        ending.alone_until_ms = now_ms + ALONE_MS
        repeated = ConnectionLostError(
            f"{error}; each request of {ending.size_bytes} bytes or more ended the connection, {ending.count} times: "
            "socket.request.max.bytes of the broker, or a limit of what is before it, may be less",
            **error.context,
        )
        repeated.__cause__ = error.__cause__
        return repeated

    def sends_alone(self, node_id: int, now_ms: int) -> bool:
        """Return whether each batch for a node has a request of its own now."""
        ending = self._nodes.get(node_id)
        if ending is None or ending.alone_until_ms < 0:
            return False
        if now_ms < ending.alone_until_ms:
            return True
        del self._nodes[node_id]
        return False

    def most_batch_bytes(self, node_id: int) -> int:
        """Return how far a batch may grow for a node to which they go alone."""
        return max(self._nodes[node_id].size_bytes // 2, LEAST_BATCH_BYTES)
