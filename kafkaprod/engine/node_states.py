"""Which nodes are slow, and which are sick: by what they answer. Sender thread only, but what is only read.

`silent`: since the last answer, or since the oldest request was sent if that was later; without a connection, since
something waits for it. `usual`: in what time nearly all of its answers come (`NodePath.usual_ms`).

| state     | becomes   | when                                                                                       |
|-----------|-----------|--------------------------------------------------------------------------------------------|
| ok        | slow      | silent for partitioner_availability_timeout_ms (0: half a second), and twice the usual     |
| ok, slow  | sick      | silent for 1.5 s and four times the usual (at most a third of request_timeout_ms), while   |
|           |           | another node has answered, or no other is expected to                                      |
| sick      | slow      | it answers                                                                                 |
| slow      | ok        | it answers for the third time, or nothing is in flight any more                            |
| any       | throttled | it answers that a quota holds this producer back, for LONG_THROTTLE_MS or more             |
| throttled | ok        | that time is over                                                                          |
| any other | ok        | nothing is in flight, and nothing waits for it                                             |

Slow costs placement only, so that it may be wrong; sick costs memory, and must not be. A garbage collection or a slow
disk is over sooner. Two kinds of time are no silence: while a quota holds this producer back, and while this program
itself did not run (stopped, suspended).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kafkaprod._core.queues.placement import Placement
from kafkaprod._core.requests.drain import Drain
from kafkaprod._core.requests.node_path import NodePath
from kafkaprod.clock import NEVER_MS
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.memory_shares import MemoryShares
from kafkaprod.net.pool import NodePool
from kafkaprod.net.throttling import MAX_THROTTLE_MS

SLOW_MS: Final = 500
SICK_MS: Final = 1_500
UNKNOWN_USUAL_MS: Final = 500  # of a node that has never answered
SLOW_USUALS: Final = 2
SICK_USUALS: Final = 4
GOOD_ANSWERS: Final = 3
OWN_PAUSE_MS: Final = 50  # so much later than planned a turn of the sender may come
LOOK_AGAIN_MS: Final = 100
LONG_THROTTLE_MS: Final = SLOW_MS
NEVER_THROTTLED_MS: Final = -(1 << 62)
THROTTLE_LOG_MS: Final = 60_000  # without one, until a line says again that a node throttles

logger = logging.getLogger("kafkaprod.engine.node_states")


class NodeCondition(IntEnum):
    """How a node is."""

    OK = 0
    SLOW = 1
    SICK = 2
    THROTTLED = 3


@dataclass(slots=True)
class _Watch:
    """What is known of one node.

    Attributes:
        state: How it is.
        blocked_ms: Since when something waits for it that cannot be sent, while nothing is in flight; None: nothing.
        since_ms: Since when it was silent at the last look.
        grace_ms: How much of that time this program did not run.
        good_answers: Answers in time since it became slow, or was sick.
        throttled_until_ms: Until when it takes nothing, because of a quota.
    """

    state: NodeCondition = NodeCondition.OK
    blocked_ms: int | None = None
    since_ms: int = 0
    grace_ms: int = 0
    good_answers: int = 0
    throttled_until_ms: int = NEVER_THROTTLED_MS


class NodeStates:
    """Watches the nodes of one producer, and says who must know: placement, memory, the log.

    Args:
        config: Options.
        pool: The connections.
        drain: Says whether something waits for a node.
        placement: Avoids what is slow or sick.
        shares: Gives sick nodes less memory.

    Attributes:
        paths: What is measured of each node that was sent to, by node id; filled by `Paths`.
        next_ms: When to call `look` again.
        planned_ms: When the next turn comes at the latest; set by the loop.
    """

    def __init__(
        self, config: ProducerConfig, pool: NodePool, drain: Drain, placement: Placement, shares: MemoryShares
    ) -> None:
        self._slow_ms = config.partitioner_availability_timeout_ms or SLOW_MS
        self._avoids = config.partitioner_availability_timeout_ms > 0
        self._most_sick_ms = config.request_timeout_ms // 3
        self._pool = pool
        self._drain = drain
        self._placement = placement
        self._shares = shares
        self._watches: dict[int, _Watch] = {}
        self._unwell: set[int] = set()
        self.paths: dict[int, NodePath] = {}
        self.next_ms: int = NEVER_MS
        self.planned_ms: float = NEVER_MS

    def on_sent(self, node_id: int, now_ms: int) -> None:
        """Note that a request goes to a node."""
        self._watch(node_id).blocked_ms = None
        self.next_ms = min(self.next_ms, now_ms + self._slow_ms)

    def on_blocked(self, node_id: int, now_ms: int) -> None:
        """Note that something waits for a node that cannot be sent to."""
        watch = self._watch(node_id)
        path = self.paths.get(node_id)
        if watch.blocked_ms is None and (path is None or path.in_flight_count == 0):
            watch.blocked_ms = now_ms
            self.next_ms = min(self.next_ms, now_ms + self._slow_ms)

    def on_answer(self, node_id: int, now_ms: int) -> None:
        """Note that a node has answered, after its path did."""
        if node_id not in self._unwell:
            return
        watch, path = self._watches[node_id], self.paths[node_id]
        if watch.state is NodeCondition.THROTTLED:
            return
        if watch.state is NodeCondition.SICK:
            self._change(node_id, watch, NodeCondition.SLOW, 0)
        watch.good_answers += 1
        if watch.good_answers >= GOOD_ANSWERS or path.in_flight_count == 0:
            self._change(node_id, watch, NodeCondition.OK, 0)

    def on_throttle(self, node_id: int, throttle_ms: int, now_ms: int) -> None:
        """Note that a node has answered that it takes nothing for a while."""
        watch = self._watch(node_id)
        is_new = now_ms - watch.throttled_until_ms >= THROTTLE_LOG_MS
        until_ms = now_ms + min(throttle_ms, MAX_THROTTLE_MS)
        watch.throttled_until_ms = max(watch.throttled_until_ms, until_ms)
        if throttle_ms < LONG_THROTTLE_MS:
            return
        self.next_ms = min(self.next_ms, watch.throttled_until_ms)
        self._change(node_id, watch, NodeCondition.THROTTLED, 0)
        if is_new:
            logger.warning(
                "node %d throttles: a quota holds this producer back, for %d ms now; records without a key avoid it, "
                "others wait for it",
                node_id,
                throttle_ms,
            )

    def look(self, now_ms: int) -> None:
        """Judge every node; `next_ms` says when that is due."""
        late_ms = max(int(now_ms - self.planned_ms), 0)
        self.next_ms = NEVER_MS
        for node_id, watch in self._watches.items():
            if watch.state is NodeCondition.THROTTLED:
                if now_ms < watch.throttled_until_ms:
                    self.next_ms = min(self.next_ms, watch.throttled_until_ms)
                    continue
                self._change(node_id, watch, NodeCondition.OK, 0)
            since_ms = self._silent_since_ms(node_id, watch)
            if since_ms is None:
                if watch.state is not NodeCondition.OK and not self._drain.has_queued(node_id):
                    self._change(node_id, watch, NodeCondition.OK, 0)
                elif watch.state is not NodeCondition.OK:
                    self.next_ms = min(self.next_ms, now_ms + LOOK_AGAIN_MS)
                continue
            if since_ms != watch.since_ms:
                watch.since_ms, watch.grace_ms = since_ms, 0
            if late_ms > OWN_PAUSE_MS and since_ms <= self.planned_ms:
                watch.grace_ms += late_ms
            self._judge(node_id, watch, now_ms)

    def _judge(self, node_id: int, watch: _Watch, now_ms: int) -> None:
        silent_ms = now_ms - watch.since_ms - watch.grace_ms
        slow_ms, sick_ms = self._thresholds_ms(node_id)
        if silent_ms >= sick_ms and watch.state is not NodeCondition.SICK and self._may_be_sick(node_id, watch):
            self._change(node_id, watch, NodeCondition.SICK, silent_ms)
        elif silent_ms >= slow_ms and watch.state is NodeCondition.OK:
            self._change(node_id, watch, NodeCondition.SLOW, silent_ms)
        due_ms = LOOK_AGAIN_MS
        if watch.state is not NodeCondition.SICK:
            due_ms = max(due_ms, (slow_ms if watch.state is NodeCondition.OK else sick_ms) - silent_ms)
        self.next_ms = min(self.next_ms, now_ms + due_ms)

    def _silent_since_ms(self, node_id: int, watch: _Watch) -> int | None:
        path = self.paths.get(node_id)
        if path is not None and path.in_flight_count:
            return max(path.silent_since_ms, watch.throttled_until_ms)
        if watch.blocked_ms is not None and not self._drain.has_queued(node_id):
            watch.blocked_ms = None
        return None if watch.blocked_ms is None else max(watch.blocked_ms, watch.throttled_until_ms)

    def _thresholds_ms(self, node_id: int) -> tuple[int, int]:
        path = self.paths.get(node_id)
        usual_ms = UNKNOWN_USUAL_MS if path is None or path.usual_ms < 0 else path.usual_ms
        slow_ms = max(self._slow_ms, SLOW_USUALS * usual_ms)
        return slow_ms, max(slow_ms, SICK_MS, min(SICK_USUALS * usual_ms, self._most_sick_ms))

    def _may_be_sick(self, node_id: int, watch: _Watch) -> bool:
        """Return whether the node is at fault, and not the network or this machine."""
        path = self.paths.get(node_id)
        if (path is None or path.in_flight_count == 0) and self._pool.is_connected(node_id):
            return False
        others = [other for other in self._watches if other != node_id and self._is_expected(other, watch.since_ms)]
        return not others or any(self._has_answered(other, watch.since_ms) for other in others)

    def _is_expected(self, node_id: int, since_ms: int) -> bool:
        """Return whether a node had something to answer in the time since then: one that is idle says nothing."""
        path = self.paths.get(node_id)
        is_in_flight = path is not None and path.in_flight_count > 0
        return is_in_flight or self._watches[node_id].blocked_ms is not None or self._has_answered(node_id, since_ms)

    def _has_answered(self, node_id: int, since_ms: int) -> bool:
        path = self.paths.get(node_id)
        return path is not None and path.answered_ms > since_ms

    def _change(self, node_id: int, watch: _Watch, state: NodeCondition, silent_ms: int) -> None:
        before, watch.state = watch.state, state
        if state is NodeCondition.OK:
            self._unwell.discard(node_id)
        else:
            self._unwell.add(node_id)
            watch.good_answers = 0
        if NodeCondition.SICK in (before, state):
            self._shares.set_sick(node_id, is_sick=state is NodeCondition.SICK)
        if self._avoids and NodeCondition.OK in (before, state):
            self._placement.avoid_nodes(self._unwell)
        if state is NodeCondition.SICK:
            path = self.paths.get(node_id)
            logger.warning(
                "node %d is sick: no answer for %d ms (usually %d): records without a key avoid it, others wait for it",
                node_id,
                silent_ms,
                -1 if path is None else path.usual_ms,
            )
        elif before is NodeCondition.SICK:
            logger.info("node %d is no longer sick", node_id)

    def _watch(self, node_id: int) -> _Watch:
        watch = self._watches.get(node_id)
        if watch is None:
            watch = self._watches[node_id] = _Watch()
        return watch

    def throttled_until_ms(self, node_id: int) -> int:
        """Return until when a quota of a node holds, or held, this producer back; NEVER_THROTTLED_MS: none did."""
        watch = self._watches.get(node_id)
        return NEVER_THROTTLED_MS if watch is None else watch.throttled_until_ms

    # -- read by any thread --------------------------------------------------------------------------------------------

    def state_of(self, node_id: int) -> NodeCondition:
        """Return how a node is. Thread-safe."""
        watch = self._watches.get(node_id)
        return NodeCondition.OK if watch is None else watch.state

    def silence_ms(self, node_id: int, now_ms: int) -> tuple[int, int]:
        """Return how long a node is silent, 0 if nothing is expected of it, and its usual answer time. Thread-safe."""
        watch, path = self._watches.get(node_id), self.paths.get(node_id)
        since_ms = None if watch is None else watch.blocked_ms
        if path is not None and path.in_flight_count:
            since_ms = path.silent_since_ms
        usual_ms = -1 if path is None else path.usual_ms
        return (0 if since_ms is None else max(now_ms - since_ms, 0)), usual_ms
