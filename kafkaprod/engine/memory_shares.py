"""How much of the producer's memory one node's records may hold: what it can take in a quarter of delivery_timeout_ms.

64 MiB are nine minutes of a link of 1 Mbit/s: a producer that buffers so much sends only what is about to expire. Of a
node whose rate is known to be low, records are therefore taken as it delivers them, and `send()` waits.

    sample  bytes delivered while a request was under way / the time since the delivery before it was sent
    rate    the largest sample of the last eight answer times (1 to 10 s)

A rate is known from requests that left more behind: after others, the program may have had no more to send. Their
samples raise a rate and never lower it. Bytes are those before compression, as in the memory. Sender thread only.

From the first request that leaves more behind until its answer, a node's records may hold START_BYTES, where `send()`
waits: a program fills 64 MiB in a second, and a slow link has answered nothing by then.
Source of the samples: BBR (draft-cheng-iccrg-delivery-rate-estimation), which takes a connection's and not a node's.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod._core.requests.produce_request import ProduceRequest

LEAST_BYTES: Final = 1 << 20
START_BYTES: Final = 8 << 20  # a minute of 1 Mbit/s: half of the default delivery_timeout_ms
_NO_LIMIT: Final = sys.maxsize
_SHARE_OF_TIMEOUT: Final = 4
_ANSWER_TIMES: Final = 8
_SHORTEST_MEMORY_MS: Final = 1_000
_LONGEST_MEMORY_MS: Final = 10_000


class _Flight(NamedTuple):
    """A request under way.

    Attributes:
        size: Its bytes.
        sent_ms: When it was sent.
        start_ms: When the delivery before it came, or it itself was sent if nothing was under way.
        delivered: What its node had delivered when it was sent.
        left_more: Whether there was more to send.
    """

    size: int
    sent_ms: int
    start_ms: int
    delivered: int
    left_more: bool


@dataclass(slots=True)
class _Path:
    """What is known of the way to a node.

    Attributes:
        under_way: Requests without an answer.
        start_ms: The last delivery, or the first sending after nothing was under way.
        delivered: Bytes of all answered requests.
        limit: The last one that was set in the pool.
        samples: (time, bytes per second), each larger than those that came later.
        is_tried: Whether the start is over: a rate is known, or a request got no answer.
    """

    under_way: int = 0
    start_ms: int = 0
    delivered: int = 0
    limit: int = _NO_LIMIT
    samples: deque[tuple[int, float]] = field(default_factory=deque)
    is_tried: bool = False


class MemoryShares:
    """Limits what nodes hold in the pool by the rates at which they answer.

    Args:
        pool: The memory.
        delivery_timeout_ms: After which records fail.
        may_wait: Whether `send()` waits for memory; where it raises, records are not refused at the start.
    """

    def __init__(self, pool: BufferPool, delivery_timeout_ms: int, *, may_wait: bool = True) -> None:
        self._pool = pool
        self._timeout_ms = delivery_timeout_ms
        self._may_wait = may_wait
        self._paths: dict[int, _Path] = {}
        self._flights: dict[ProduceRequest, _Flight] = {}

    def on_sent(self, request: ProduceRequest, size: int, now_ms: int) -> None:
        """Note a request of `size` bytes before compression."""
        path = self._paths.get(request.node_id)
        if path is None:
            path = self._paths[request.node_id] = _Path()
        if path.under_way == 0:
            path.start_ms = now_ms
        left_more = self._pool.take_refused(request.node_id) or request.leaves_more
        self._flights[request] = _Flight(size, now_ms, path.start_ms, path.delivered, left_more)
        path.under_way += 1  # last: it is counted back for each flight that was kept
        if left_more and self._may_wait and not path.is_tried:
            self._set_limit(request.node_id, path, START_BYTES)

    def on_answer(self, request: ProduceRequest, now_ms: int) -> None:
        """Learn from a request that was answered."""
        flight = self._flights.pop(request, None)
        if flight is None:
            return
        path = self._paths[request.node_id]
        path.under_way -= 1
        path.start_ms = now_ms
        path.delivered += flight.size
        rate = (path.delivered - flight.delivered) * 1000 / max(now_ms - flight.start_ms, 1)
        if not flight.left_more and (not path.samples or rate <= path.samples[0][1]):
            return
        memory_ms = min(max(_ANSWER_TIMES * (now_ms - flight.sent_ms), _SHORTEST_MEMORY_MS), _LONGEST_MEMORY_MS)
        path.is_tried = True
        while path.samples and path.samples[-1][1] <= rate:
            path.samples.pop()
        path.samples.append((now_ms, rate))
        while path.samples[0][0] < now_ms - memory_ms:
            path.samples.popleft()
        share = int(path.samples[0][1] * self._timeout_ms / (1000 * _SHARE_OF_TIMEOUT))
        self._set_limit(request.node_id, path, max(LEAST_BYTES, min(share, self._pool.capacity)))

    def on_no_answer(self, request: ProduceRequest) -> None:
        """Forget a request that failed, or that expects no answer: it says nothing about a rate."""
        if self._flights.pop(request, None) is None:
            return
        path = self._paths[request.node_id]
        path.under_way -= 1
        if not path.is_tried:
            path.is_tried = True
            self._set_limit(request.node_id, path, _NO_LIMIT)

    def _set_limit(self, node_id: int, path: _Path, limit: int) -> None:
        if limit != path.limit:
            path.limit = limit
            self._pool.set_limit(node_id, limit)
