"""How much of the producer's memory one node's records may hold. Sender thread only.

| while                                     | a node's records may hold                                               |
|-------------------------------------------|-------------------------------------------------------------------------|
| its rate is known                         | what it takes in a quarter of delivery_timeout_ms; at least a part of   |
|                                           | LEAST_BYTES                                                             |
| it is not, and no attempt has failed      | what it has shown to take within delivery_timeout_ms; at least a part   |
|                                           | of START_BYTES, where `send()` waits: a program fills 64 MiB in a       |
|                                           | second, and a slow link has answered nothing by then                    |
| other nodes lead partitions, too          | all but half of the others' fair shares                                 |
| it is sick                                | its fair share: the capacity, divided by the nodes that lead            |
| partitions have no leader                 | together the share of one more node, which is sick                      |

64 MiB are nine minutes of a link of 1 Mbit/s: a producer that buffers so much sends only what is about to expire. Of a
node whose rate is known to be low, records are therefore taken as it delivers them, and `send()` waits. A rate is
measured where a request left something behind to send. A program that sends steadily leaves nothing behind; each answer
shows how much the node takes at least, and so much may wait for it when it stalls. All nodes may be behind one thin
link: each has its part of LEAST_BYTES and START_BYTES, divided by the nodes that lead, FLOOR_BYTES at least. Half of a
fair share is kept free for every other node, so that a healthy one finds memory beside one that has just begun to hang.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod.config import ProducerConfig

LEAST_BYTES: Final = 1 << 20
FLOOR_BYTES: Final = 64 << 10  # what may be under way to a node whatever its rate
START_BYTES: Final = 8 << 20  # a minute of 1 Mbit/s: half of the default delivery_timeout_ms
NO_LIMIT: Final = sys.maxsize
NO_LEADER: Final = -1  # the account of partitions without one
_SHARE_OF_TIMEOUT: Final = 4


def waits_for_first_answer(config: ProducerConfig) -> bool:
    """Return whether `send()` waits for memory as long as a first request may take, and requests are answered."""
    waits = config.buffer_full_policy in ("block", "isolate")
    return waits and config.acks != 0 and config.max_block_ms >= config.request_timeout_ms


@dataclass(slots=True)
class _Share:
    """What one node may hold.

    Attributes:
        by_rate: The bytes that its rate, or the start, allows.
        shown: The bytes that it has shown to take within delivery_timeout_ms.
        limit: The last one that was set in the pool.
        is_tried: Whether the start is over: a rate is known, a connection or a request failed, or it is sick.
        is_sick: Whether it may hold no more than its fair share.
    """

    by_rate: int = NO_LIMIT
    shown: int = 0
    limit: int = NO_LIMIT
    is_tried: bool = False
    is_sick: bool = False


class MemoryShares:
    """Limits what nodes hold in the pool.

    Args:
        pool: The memory.
        delivery_timeout_ms: After which records fail.
        may_wait: Whether `send()` waits for memory until a first request has ended; where it raises sooner, no record
            is refused because of the start.
    """

    def __init__(self, pool: BufferPool, delivery_timeout_ms: int, *, may_wait: bool = True) -> None:
        self._pool = pool
        self._delivery_timeout_ms = delivery_timeout_ms
        self._patience_ms = delivery_timeout_ms / _SHARE_OF_TIMEOUT
        self._may_wait = may_wait
        self._shares: dict[int, _Share] = {}
        self._leader_count = 1

    def on_sent(self, node_id: int, *, leaves_more: bool) -> bool:
        """Note a request to a node; return whether there was more to send, also in a program that found no memory."""
        return self._pool.take_refused(node_id) or leaves_more

    def on_answer(self, node_id: int, rate: float, shown_rate: float) -> None:
        """Take what a node's answers say.

        Args:
            node_id: Its id.
            rate: Bytes a millisecond that it takes, before compression; 0.0: not known yet.
            shown_rate: Bytes a millisecond that it takes at least.
        """
        share = self._share_of(node_id)
        if rate > 0:
            share.is_tried = True
            least = self._part_of(LEAST_BYTES)
            share.by_rate = max(least, min(int(rate * self._patience_ms), self._pool.capacity))
        elif not share.is_tried:
            share.shown = min(int(shown_rate * self._delivery_timeout_ms), self._pool.capacity)
            self._begin(share)
        self._apply(node_id, share)

    def on_no_answer(self, node_id: int) -> None:
        """Note that a connection or a request has failed: the start is over, and says nothing about a rate."""
        share = self._shares.get(node_id)
        if share is not None:
            self._end_start(share)
            self._apply(node_id, share)

    def set_leaders(self, node_ids: Iterable[int]) -> None:
        """Share the memory among the nodes that lead partitions; -1 among them: some partitions have no leader."""
        leaders = set(node_ids)
        for node_id in leaders:
            self._share_of(node_id)
        if NO_LEADER in self._shares:
            self._shares[NO_LEADER].is_sick = NO_LEADER in leaders
        self._leader_count = max(len(leaders), 1)
        for node_id, share in self._shares.items():
            if node_id != NO_LEADER:
                self._begin(share)
            self._apply(node_id, share)

    def set_sick(self, node_id: int, *, is_sick: bool) -> None:
        """Let a sick node hold its fair share only; what it holds beyond that stays until it ends."""
        share = self._share_of(node_id)
        share.is_sick = is_sick
        if is_sick:
            self._end_start(share)  # it takes nothing: that is no slow link
        self._apply(node_id, share)

    def _begin(self, share: _Share) -> None:
        """Limit what a node may hold until its rate is known."""
        if self._may_wait and not share.is_tried:
            share.by_rate = max(self._part_of(START_BYTES), share.shown)

    def _end_start(self, share: _Share) -> None:
        if not share.is_tried:
            share.is_tried, share.by_rate = True, NO_LIMIT

    def _part_of(self, size: int) -> int:
        return max(size // self._leader_count, FLOOR_BYTES)

    def _share_of(self, node_id: int) -> _Share:
        share = self._shares.get(node_id)
        if share is None:
            share = self._shares[node_id] = _Share()
        return share

    def _apply(self, node_id: int, share: _Share) -> None:
        limit = share.by_rate
        if self._leader_count > 1:
            fair = self._pool.capacity // self._leader_count
            most = fair if share.is_sick else self._pool.capacity - (self._leader_count - 1) * (fair // 2)
            limit = min(limit, most)
        if limit != share.limit:
            share.limit = limit
            self._pool.set_limit(node_id, limit)
