from __future__ import annotations

import os
import select
import threading
from array import array
from pathlib import Path

import pytest

from kafkaprod._core.machine.waking import Waiter, Wakeup
from tests.support.broker.fixtures_broker import wait_until
from tests.support.core import faces


def state_of(thread: threading.Thread) -> str:
    """The kernel's letter for what a thread does: S sleeps."""
    return Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()[0]


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


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see that a thread sleeps")
def test_a_wakeup_between_the_read_and_its_note_is_not_lost() -> None:
    """The read waits for the wake-up that comes in the middle of it; the one after that must be written again."""
    reader, writer = os.pipe()  # blocking: the read is where the taker waits
    wakeup, has_begun = Wakeup(writer, reader), array("i", [0])
    taker = threading.Thread(target=faces.take_wakeup, args=(wakeup, has_begun))
    try:
        taker.start()
        wait_until(lambda: has_begun[0] == 1 and state_of(taker) == "S", "the taker waits in its read")
        wakeup()
        taker.join(10)
        assert not taker.is_alive()
        wakeup()
        assert select.select([reader], [], [], 0)[0] == [reader]
    finally:
        os.write(writer, b"x")  # ends a read that nothing else has ended
        taker.join(10)
        os.close(reader)
        os.close(writer)


def test_many_wakeups_are_one_write_until_it_is_taken() -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        wakeup = Wakeup(writer, reader)
        for _ in range(3):
            wakeup()
            wakeup()
            assert select.select([reader], [], [], 0)[0] == [reader]
            wakeup.rearm()
            assert select.select([reader], [], [], 0)[0] == []
    finally:
        os.close(reader)
        os.close(writer)
