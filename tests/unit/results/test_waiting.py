from __future__ import annotations

import threading

from kafkaprod.results.waiting import Waiter


def test_wake_ends_the_wait() -> None:
    waiter = Waiter()
    out: list[bool] = []
    thread = threading.Thread(target=lambda: out.append(waiter.wait(10)))
    thread.start()
    waiter.wake()
    thread.join(10)
    assert out == [True]


def test_wake_before_the_wait_is_not_lost_and_used_up_by_it() -> None:
    waiter = Waiter()
    waiter.wake()
    waiter.wake()
    assert waiter.wait(0)
    assert not waiter.wait(0)
    waiter.wake()
    assert waiter.wait()


def test_timeouts_below_zero_and_beyond_the_clock_are_taken() -> None:
    waiter = Waiter()
    assert not waiter.wait(-5)
    waiter.wake()
    assert waiter.wait(float("inf"))
