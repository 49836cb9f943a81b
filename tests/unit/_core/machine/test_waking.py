from __future__ import annotations

import os
import threading

import pytest

from kafkaprod._core.machine.waking import Waiter, Wakeup


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


def test_what_starts_the_other_thread_is_called_once_by_the_next_wait() -> None:
    waiter = Waiter()
    calls: list[str] = []
    waiter.start_with(lambda: calls.append("started"))
    assert not calls
    assert not waiter.wait(0)
    assert not waiter.wait(0)
    assert calls == ["started"]


def test_a_wakeup_that_starts_the_other_thread_is_written_before_the_wait() -> None:
    reader, writer = os.pipe()
    try:
        wakeup, waiter = Wakeup(writer), Waiter()
        out: list[bool] = []
        waiter.start_with(wakeup)
        thread = threading.Thread(target=lambda: out.append(waiter.wait(10)))
        thread.start()
        assert os.read(reader, 10)  # blocks until the wait has begun
        waiter()
        thread.join(10)
        assert out == [True]
    finally:
        os.close(reader)
        os.close(writer)


def test_an_error_of_the_start_ends_the_wait() -> None:
    waiter = Waiter()
    waiter.start_with(lambda: 1 // 0)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        waiter.wait(10)
    assert not waiter.wait(0)
