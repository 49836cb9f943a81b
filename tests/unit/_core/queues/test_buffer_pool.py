"""The slab pool: sizes, bound, cache, release, and who waits first."""

import pytest

from kafkaprod._core.queues.buffer_pool import BufferPool
from kafkaprod.errors import IllegalStateError, InvalidRecordError
from tests.support.core.faces import SlabLease

KIB = 1024
CLASSES = [KIB, 2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB]
SLAB_HEADER = 64  # what a slab keeps for itself


def class_of(need):
    """Bytes that a slab for `need` counts against the pool."""
    pool = BufferPool(1 << 22)
    lease = SlabLease(pool, need)
    size = pool.in_use
    lease.release()
    return size


def test_slab_counts_with_its_class():
    assert [class_of(size - SLAB_HEADER) for size in CLASSES] == CLASSES
    assert [class_of(size - SLAB_HEADER + 1) for size in CLASSES[:-1]] == CLASSES[1:]


def test_slab_beyond_the_largest_class_is_exact():
    assert class_of(1_000_000) - 1_000_000 <= SLAB_HEADER + 15


def test_bytes_come_back_on_release():
    pool = BufferPool(64 * KIB)
    leases = [SlabLease(pool, 100) for _ in range(64)]
    assert (pool.in_use, pool.available) == (64 * KIB, 0)
    for lease in leases:
        lease.release()
    assert (pool.in_use, pool.available) == (0, 64 * KIB)


def test_full_pool_refuses_and_changes_nothing():
    pool = BufferPool(4 * KIB)
    lease = SlabLease(pool, 3000)
    with pytest.raises(BufferError, match=r"no room for 10 bytes: 4096 of 4096 in use"):
        SlabLease(pool, 10)
    assert pool.in_use == 4 * KIB
    lease.release()


def test_freed_slab_is_cached_and_reused():
    pool = BufferPool(64 * KIB)
    SlabLease(pool, 100).release()
    assert (pool.in_use, pool.cached) == (0, KIB)
    again = SlabLease(pool, 100)
    assert (pool.in_use, pool.cached) == (KIB, 0)
    again.release()


def test_cache_gives_way_to_another_class():
    pool = BufferPool(64 * KIB)
    for lease in [SlabLease(pool, 100) for _ in range(64)]:
        lease.release()
    assert pool.cached == 64 * KIB
    large = SlabLease(pool, 60 * KIB)
    assert pool.in_use == 64 * KIB
    assert pool.cached == 0
    large.release()


def test_cache_and_use_never_pass_the_capacity_together():
    pool = BufferPool(32 * KIB)
    small = [SlabLease(pool, 100) for _ in range(16)]
    for lease in small[:8]:
        lease.release()
    large = SlabLease(pool, 15 * KIB)
    assert pool.in_use + pool.cached <= pool.capacity
    for lease in [large, *small[8:]]:
        lease.release()


def test_exact_slab_is_not_cached():
    pool = BufferPool(1 << 20)
    SlabLease(pool, 500_000).release()
    assert (pool.in_use, pool.cached) == (0, 0)


def test_second_release_is_refused():
    pool = BufferPool(64 * KIB)
    lease = SlabLease(pool, 100)
    lease.release()
    with pytest.raises(IllegalStateError, match="released"):
        lease.release()
    with pytest.raises(IllegalStateError):
        lease.fill(1)
    assert (pool.in_use, pool.refused_release_count) == (0, 0)


def test_forgotten_lease_gives_its_slab_back():
    pool = BufferPool(64 * KIB)
    lease = SlabLease(pool, 100)
    del lease
    assert pool.in_use == 0


@pytest.mark.parametrize("capacity", [0, -1, KIB - 1])
def test_capacity_below_one_slab_is_refused(capacity):
    with pytest.raises(InvalidRecordError, match=f"capacity={capacity} bytes is below the smallest slab of 1024"):
        BufferPool(capacity)


def test_negative_need_is_refused():
    with pytest.raises(InvalidRecordError, match="need=-1"):
        SlabLease(BufferPool(KIB), -1)


class Waiter:
    """Somebody in the queue, and how often they were woken."""

    def __init__(self, pool, need):
        self.woken = 0
        self.pool = pool
        self.need = need
        self.ticket = pool.enqueue_waiter(need, self._wake)

    def _wake(self):
        self.woken += 1

    def take(self):
        return self.take_for(-1)

    def take_for(self, node):
        lease = SlabLease(self.pool, self.need - SLAB_HEADER, self.ticket, node)
        self.pool.dequeue_waiter(self.ticket)
        return lease


def test_head_waiter_is_woken_when_its_bytes_are_free():
    pool = BufferPool(4 * KIB)
    lease = SlabLease(pool, 3000)
    waiter = Waiter(pool, 4 * KIB)
    assert not pool.wake_waiters()
    assert waiter.woken == 0
    lease.release()
    assert pool.wake_waiters()
    assert waiter.woken == 1
    waiter.take().release()
    assert (pool.waiter_count, pool.in_use) == (0, 0)


def test_waiters_are_served_first_in_first_out():
    pool = BufferPool(4 * KIB)
    lease = SlabLease(pool, 3000)
    large, small = Waiter(pool, 4 * KIB), Waiter(pool, KIB)
    lease.release()
    pool.wake_waiters()
    assert (large.woken, small.woken) == (1, 0)
    with pytest.raises(BufferError):
        small.take()  # its bytes are free, but it is not its turn
    assert pool.waiter_count == 2
    large.take().release()
    pool.wake_waiters()
    assert small.woken == 1
    small.take().release()
    assert (pool.waiter_count, pool.in_use) == (0, 0)


def test_newcomer_does_not_overtake_a_waiter():
    pool = BufferPool(8 * KIB)
    lease = SlabLease(pool, 3000)
    waiter = Waiter(pool, 8 * KIB)
    with pytest.raises(BufferError):
        SlabLease(pool, 10)
    pool.dequeue_waiter(waiter.ticket)
    SlabLease(pool, 10).release()
    lease.release()


def test_newcomer_is_served_beside_a_waiter_from_what_the_waiter_does_not_need():
    pool = BufferPool(8 * KIB)
    lease = SlabLease(pool, 3000)
    blocked = SlabLease(pool, 3000)
    waiter = Waiter(pool, 4 * KIB)
    lease.release()
    blocked.release()  # the waiter could be served now, but has not run yet
    beside = [SlabLease(pool, 10) for _ in range(4)]
    with pytest.raises(BufferError):
        SlabLease(pool, 10)
    waiter.take().release()
    for lease in beside:
        lease.release()
    assert (pool.in_use, pool.waiter_count) == (0, 0)


def test_all_waiters_whose_bytes_are_free_are_woken_together_and_once_a_try():
    pool = BufferPool(64 * KIB)
    lease = SlabLease(pool, 60 * KIB)
    waiters = [Waiter(pool, KIB) for _ in range(40)]
    lease.release()
    assert pool.wake_waiters()
    assert not pool.wake_waiters()
    assert [waiter.woken for waiter in waiters] == [1] * 40
    with pytest.raises(BufferError):
        SlabLease(pool, 40 * KIB, waiters[3].ticket)  # more than it said
    assert pool.wake_waiters()
    assert [waiter.woken for waiter in waiters] == [1] * 3 + [2] + [1] * 36
    for waiter in reversed(waiters):
        waiter.take().release()
    assert (pool.in_use, pool.waiter_count) == (0, 0)


def test_waiter_that_gives_up_leaves_nothing_behind_and_lets_the_next_in():
    pool = BufferPool(4 * KIB)
    lease = SlabLease(pool, 100)
    first, second = Waiter(pool, 4 * KIB), Waiter(pool, KIB)
    pool.dequeue_waiter(first.ticket)
    assert second.woken == 1
    pool.dequeue_waiter(first.ticket)  # a second call does nothing
    assert pool.waiter_count == 1
    second.take().release()
    lease.release()
    assert (pool.in_use, pool.waiter_count) == (0, 0)
    assert not pool.wake_waiters()


def test_served_waiter_lets_the_next_in():
    pool = BufferPool(8 * KIB)
    leases = [SlabLease(pool, 3000), SlabLease(pool, 3000)]
    first, second = Waiter(pool, 4 * KIB), Waiter(pool, 4 * KIB)
    for lease in leases:
        lease.release()
    pool.wake_waiters()
    taken = first.take()
    assert second.woken == 1
    second.take().release()
    taken.release()


def test_need_beyond_the_capacity_can_never_be_met():
    with pytest.raises(InvalidRecordError, match="5000 bytes can never be free in a pool of capacity=4096"):
        BufferPool(4 * KIB).enqueue_waiter(5000, lambda: None)


def test_ticket_of_nobody_is_ignored():
    pool = BufferPool(4 * KIB)
    pool.dequeue_waiter(99)
    assert pool.waiter_count == 0


def test_ticket_can_be_had_before_queueing():
    """Whoever has it can leave the queue, however the wait is interrupted."""
    pool = BufferPool(4 * KIB)
    ticket = pool.new_ticket()
    assert pool.waiter_count == 0
    pool.dequeue_waiter(ticket)  # interrupted before it queued
    assert pool.enqueue_waiter(KIB, lambda: None, ticket) == ticket
    assert pool.enqueue_waiter(KIB, lambda: None) != ticket
    pool.dequeue_waiter(ticket)
    assert pool.waiter_count == 1


# -- nodes -------------------------------------------------------------------------------------------------------------


def held_by(pool, node):
    return {node_id: held for node_id, held, _ in pool.shares()}[node]


def test_bytes_are_counted_by_node():
    pool = BufferPool(64 * KIB)
    first, second = SlabLease(pool, 100, node=1), SlabLease(pool, 3000, node=2)
    assert sorted(pool.shares()) == [(1, KIB, None), (2, 4 * KIB, None)]
    first.release()
    assert (held_by(pool, 1), held_by(pool, 2), pool.in_use) == (0, 4 * KIB, 4 * KIB)
    second.release()


def test_node_at_its_limit_gets_nothing_and_others_everything():
    pool = BufferPool(64 * KIB)
    pool.set_limit(1, 8 * KIB)
    leases = [SlabLease(pool, 100, node=1) for _ in range(8)]
    with pytest.raises(BufferError, match=r"no room for 100 bytes of node 1: .*\(1, 8192, 8192\)"):
        SlabLease(pool, 100, node=1)
    leases += [SlabLease(pool, 100, node=2) for _ in range(56)]
    for lease in leases:
        lease.release()
    assert (pool.in_use, held_by(pool, 1), held_by(pool, 2)) == (0, 0, 0)


def test_node_that_holds_nothing_gets_a_slab_beyond_its_limit():
    """A record that is larger than the limit would wait for ever."""
    pool = BufferPool(64 * KIB)
    pool.set_limit(1, KIB)
    large = SlabLease(pool, 20 * KIB, node=1)
    with pytest.raises(BufferError):
        SlabLease(pool, 100, node=1)
    large.release()
    SlabLease(pool, 100, node=1).release()


def test_lowered_limit_takes_nothing_away_and_a_raised_one_wakes():
    pool = BufferPool(64 * KIB)
    leases = [SlabLease(pool, 100, node=1) for _ in range(8)]
    pool.set_limit(1, 2 * KIB)
    assert held_by(pool, 1) == 8 * KIB
    waiter = Waiter(pool, KIB)
    with pytest.raises(BufferError):
        waiter.take_for(1)
    assert not pool.wake_waiters()
    pool.set_limit(1, 9 * KIB)
    assert pool.wake_waiters()
    assert waiter.woken == 1
    for lease in [*leases, waiter.take_for(1)]:
        lease.release()


def test_waiter_of_a_full_node_holds_up_no_other_node():
    pool = BufferPool(8 * KIB)
    pool.set_limit(1, KIB)
    full = SlabLease(pool, 100, node=1)
    sick, well = Waiter(pool, 4 * KIB), Waiter(pool, 4 * KIB)
    with pytest.raises(BufferError):
        sick.take_for(1)
    assert pool.wake_waiters()
    assert (sick.woken, well.woken) == (0, 1)
    leases = [well.take_for(2), SlabLease(pool, 1900, node=2)]  # and a newcomer: nothing is kept back for `sick`
    assert pool.waiter_count == 1
    for lease in leases:
        lease.release()
    full.release()
    assert sick.woken == 0
    assert pool.wake_waiters()
    sick.take_for(1).release()
    assert (pool.in_use, pool.waiter_count) == (0, 0)


def test_newcomer_of_a_full_node_does_not_overtake_its_waiters():
    pool = BufferPool(64 * KIB)
    pool.set_limit(1, 4 * KIB)
    leases = [SlabLease(pool, 100, node=1) for _ in range(4)]
    first, second = Waiter(pool, 2 * KIB), Waiter(pool, KIB)
    for waiter in (first, second):
        with pytest.raises(BufferError):
            waiter.take_for(1)
    leases.pop().release()
    assert not pool.wake_waiters()  # one KiB is free, and the first needs two
    with pytest.raises(BufferError):
        SlabLease(pool, 100, node=1)
    leases.pop().release()
    assert pool.wake_waiters()
    assert (first.woken, second.woken) == (1, 0)
    leases += [first.take_for(1)]
    leases.pop(0).release()
    pool.wake_waiters()
    assert second.woken == 1
    for lease in [*leases, second.take_for(1)]:
        lease.release()
    assert (pool.in_use, held_by(pool, 1), pool.waiter_count) == (0, 0, 0)


def test_waiter_may_try_for_another_node_and_keeps_its_ticket():
    pool = BufferPool(64 * KIB)
    for node in (1, 2):
        pool.set_limit(node, KIB)
    leases = [SlabLease(pool, 100, node=node) for node in (1, 2)]
    waiter = Waiter(pool, KIB)
    for node in (1, 2):
        with pytest.raises(BufferError):
            waiter.take_for(node)
    leases[0].release()  # of node 1, which it no longer waits for
    assert not pool.wake_waiters()
    leases[1].release()
    assert pool.wake_waiters()
    waiter.take_for(2).release()
    assert (pool.in_use, pool.waiter_count) == (0, 0)


def test_refusal_is_told_once():
    pool = BufferPool(8 * KIB)
    pool.set_limit(1, KIB)
    assert not pool.take_refused(1)
    lease = SlabLease(pool, 100, node=1)
    with pytest.raises(BufferError):
        SlabLease(pool, 100, node=1)
    assert (pool.take_refused(1), pool.take_refused(1), pool.take_refused(2)) == (True, False, False)
    lease.release()
