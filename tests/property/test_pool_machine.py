"""Any order of take, give, wait, try, leave and changed limits, on a pool that several nodes share.

What must hold whatever happens:
- what the nodes hold is what is in use, and never more than the capacity;
- nobody gets a slab beyond the limit of its node, but for a node that holds nothing;
- a node below its limit is refused only if the pool, or who waited before, needs what is free;
- nobody who waits sleeps while the bytes for all before it, and for it, are free;
- within a node, who comes later gets only what those before it leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkaprod._core.queues.buffer_pool import BufferPool
from tests.support.core.faces import SlabLease

KIB = 1024
CAPACITY = 32 * KIB
SLAB_HEADER = 64
NODES = (1, 2, 3)
TOTALS = st.sampled_from([KIB, 2 * KIB, 4 * KIB, 8 * KIB])
LIMITS = st.sampled_from([KIB, 4 * KIB, 8 * KIB, CAPACITY, 2 * CAPACITY])


@dataclass(eq=False)
class Waiting:
    """One in the queue: for which node its last try was (None: it has not tried), and whether it was told since."""

    ticket: int
    total: int
    node: int | None = None
    is_told: bool = False

    def wake(self) -> None:
        self.is_told = True


class PoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(CAPACITY)
        self.limits = dict.fromkeys(NODES, 10 * CAPACITY)
        self.leases: list[tuple[int, int, Any]] = []
        self.queue: list[Waiting] = []

    def held(self, node: int) -> int:
        return sum(total for owner, total, _ in self.leases if owner == node)

    def free(self) -> int:
        return CAPACITY - sum(total for _, total, _ in self.leases)

    def takes(self, node: int, total: int, before: int = 0) -> bool:
        held = self.held(node) + before
        return held == 0 or held + total <= self.limits[node]

    def attempt(self, node: int, total: int, waiting: Waiting | None) -> bool:
        """Try to take a slab, and compare the answer with the rules."""
        before = self.queue if waiting is None else self.queue[: self.queue.index(waiting)]
        in_line = sum(each.total for each in before if each.node == node)
        kept = sum(each.total for each in before if each.node is None or self.takes(each.node, each.total))
        may = self.free() >= total + kept and self.takes(node, total, in_line)
        try:
            lease = SlabLease(self.pool, total - SLAB_HEADER, 0 if waiting is None else waiting.ticket, node)
        except BufferError:
            assert not may
            return False
        assert may
        self.leases.append((node, total, lease))
        return True

    @rule(node=st.sampled_from(NODES), total=TOTALS)
    def take(self, node: int, total: int) -> None:
        self.attempt(node, total, None)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        _, _, lease = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        lease.release()

    @rule(total=TOTALS)
    def wait(self, total: int) -> None:
        waiting = Waiting(self.pool.new_ticket(), total)
        self.queue.append(waiting)
        self.pool.enqueue_waiter(total, waiting.wake, waiting.ticket)

    @precondition(lambda self: self.queue)
    @rule(data=st.data(), node=st.sampled_from(NODES))
    def try_again(self, data: st.DataObject, node: int) -> None:
        waiting = data.draw(st.sampled_from(self.queue))
        waiting.is_told = False
        if self.attempt(node, waiting.total, waiting):
            self.leave(waiting)
        else:
            waiting.node = node

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        self.leave(data.draw(st.sampled_from(self.queue)))

    def leave(self, waiting: Waiting) -> None:
        self.queue.remove(waiting)
        self.pool.dequeue_waiter(waiting.ticket)

    @rule(node=st.sampled_from(NODES), limit=LIMITS)
    def change_limit(self, node: int, limit: int) -> None:
        self.limits[node] = limit
        self.pool.set_limit(node, limit)

    @rule()
    def look_who_can_be_served(self) -> None:
        self.pool.wake_waiters()
        free = self.free()
        planned = dict.fromkeys(NODES, 0)
        for waiting in self.queue:
            if waiting.node is not None:
                planned[waiting.node] += waiting.total
                if not self.takes(waiting.node, waiting.total, planned[waiting.node] - waiting.total):
                    continue
            free -= waiting.total
            if free < 0:
                break
            assert waiting.is_told, f"{waiting} sleeps, and its bytes are free"

    @invariant()
    def bytes_add_up(self) -> None:
        assert self.pool.in_use == CAPACITY - self.free() <= CAPACITY
        shares = {node: held for node, held, _ in self.pool.shares()}
        assert all(shares.get(node, 0) == self.held(node) for node in NODES)
        assert self.pool.waiter_count == len(self.queue)

    def teardown(self) -> None:
        for waiting in self.queue.copy():
            self.leave(waiting)
        for _, _, lease in self.leases:
            lease.release()
        assert self.pool.in_use == 0


PoolMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestPool = PoolMachine.TestCase
