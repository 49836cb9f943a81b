"""The slab pool under many threads: every byte comes back, waiters are served in order and leave nothing behind."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from kafkaprod._core.queues.buffer_pool import BufferPool
from tests.support.core.faces import SlabLease

SIZES = [10, 500, 976, 1000, 4000, 4048, 5000, 16_000, 60_000, 70_000, 200_000]


def run_threads(count: int, work: Callable[[int], None]) -> None:
    """Run work(0) ... work(count - 1) at once; raise the first error of any."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def guarded(index: int) -> None:
        try:
            barrier.wait()
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_sixteen_threads_of_random_operations_give_every_byte_back() -> None:
    pool = BufferPool(1 << 21)

    def work(index: int) -> None:
        rng = random.Random(index)
        leases: list[SlabLease] = []
        for _ in range(50_000):
            if leases and (len(leases) > 20 or rng.random() < 0.5):
                lease = leases.pop(rng.randrange(len(leases)))
                assert lease.holds_only(index) if lease.size < 5000 else True
                lease.release()
                continue
            try:
                lease = SlabLease(pool, rng.choice(SIZES))
            except BufferError:
                if leases:
                    leases.pop().release()
                continue
            if lease.size < 5000:
                lease.fill(index)  # nobody else may write here until it is released
            leases.append(lease)
            assert pool.in_use <= pool.capacity
        for lease in leases:
            lease.release()

    run_threads(16, work)
    assert (pool.in_use, pool.refused_release_count, pool.waiter_count) == (0, 0, 0)
    assert pool.cached <= pool.capacity


def test_waiting_threads_are_all_served() -> None:
    """Twelve threads share room for two; nobody is forgotten, whoever is last."""
    pool = BufferPool(8192)

    def work(index: int) -> None:
        for _ in range(100):
            lease = wait_for(pool, 4000)
            lease.fill(index)
            assert lease.holds_only(index)
            lease.release()
            pool.wake_waiters()

    run_threads(12, work)
    assert (pool.in_use, pool.waiter_count) == (0, 0)


def wait_for(pool: BufferPool, need: int) -> SlabLease:
    """Take a slab, waiting in the queue as a producer does."""
    try:
        return SlabLease(pool, need)
    except BufferError:
        pass
    woken = threading.Event()
    ticket = pool.enqueue_waiter(4096, woken.set)
    try:
        while True:
            pool.wake_waiters()
            assert woken.wait(30), "a waiter was forgotten"
            woken.clear()
            try:
                return SlabLease(pool, need, ticket)
            except BufferError:
                continue
    finally:
        pool.dequeue_waiter(ticket)


def test_waiters_that_time_out_or_are_interrupted_leave_nothing_behind() -> None:
    pool = BufferPool(4096)
    lease = SlabLease(pool, 3000)

    class Interrupted(BaseException):
        pass

    def work(index: int) -> None:
        rng = random.Random(index)
        for _ in range(200):
            woken = threading.Event()
            ticket = pool.enqueue_waiter(rng.choice([1024, 4096]), woken.set)
            try:
                if rng.random() < 0.5:
                    raise Interrupted
                assert not woken.wait(0)  # the pool stays full
            except Interrupted:
                pass
            finally:
                pool.dequeue_waiter(ticket)

    run_threads(8, work)
    assert pool.waiter_count == 0
    lease.release()
    assert not pool.wake_waiters()
    assert pool.in_use == 0
    SlabLease(pool, 3000).release()


def test_order_of_waiters_is_the_order_of_their_tickets() -> None:
    pool = BufferPool(1024)
    lease = SlabLease(pool, 100)
    served: list[int] = []
    tickets = [pool.enqueue_waiter(1024, lambda i=i: served.append(i)) for i in range(50)]  # type: ignore[misc]
    lease.release()
    for turn, ticket in enumerate(tickets):
        assert pool.wake_waiters() == (turn == 0)  # who leaves wakes the next
        SlabLease(pool, 100, ticket).release()
        pool.dequeue_waiter(ticket)
    assert list(dict.fromkeys(served)) == list(range(50))
