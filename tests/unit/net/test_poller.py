from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from kafkaprod._core.machine.waking import Waiter
from kafkaprod.errors import ConfigError
from kafkaprod.net.poller import READABLE, WRITABLE, Poller
from tests.support.processes import open_descriptors


@pytest.fixture
def poller() -> Iterator[Poller]:
    poller = Poller()
    yield poller
    poller.close()


@pytest.fixture(params=["usual", "portable"])
def woken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Poller]:
    """A poller as this system has it, and one as systems without epoll, kqueue and eventfd have it."""
    if request.param == "portable":
        monkeypatch.setattr("kafkaprod.net.poller.READY_SET", "")
    poller = Poller()
    yield poller
    poller.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    yield left, right
    left.close()
    right.close()


Pair = tuple[socket.socket, socket.socket]


def test_readiness_comes_back_with_the_callers_object(poller: Poller, pair: Pair) -> None:
    left, right = pair
    poller.register(left, READABLE, "left")
    assert poller.poll(0) == []
    right.send(b"x")
    assert poller.poll(None) == [("left", READABLE)]
    poller.modify(left, READABLE | WRITABLE, "both")
    assert poller.poll(None) == [("both", READABLE | WRITABLE)]


def test_interest_zero_watches_nothing_and_can_be_raised_again(poller: Poller, pair: Pair) -> None:
    left, _ = pair
    poller.register(left, 0, "left")
    assert poller.poll(0) == []
    poller.modify(left, WRITABLE, "left")
    assert poller.poll(None) == [("left", WRITABLE)]
    poller.modify(left, 0, "left")
    assert poller.poll(0) == []
    poller.modify(left, 0, "left")


def test_unregister_may_be_repeated(poller: Poller, pair: Pair) -> None:
    poller.register(pair[0], WRITABLE, 1)
    poller.unregister(pair[0])
    poller.unregister(pair[0])
    assert poller.poll(0) == []


def test_a_wakeup_from_another_thread_ends_an_endless_poll(woken: Poller) -> None:
    thread = threading.Thread(target=woken.wakeup)
    thread.start()
    assert woken.poll(None) == []
    thread.join()


def test_a_wakeup_before_the_poll_is_not_lost(woken: Poller) -> None:
    woken.wakeup()
    assert woken.poll(None) == []


def test_a_poll_wakes_each_thread_once_before_it_waits(poller: Poller) -> None:
    waiters = [Waiter() for _ in range(20)]  # more than are woken without the GIL
    calls: list[str] = []
    poller.to_wake += [*waiters, lambda: calls.append("called")]
    poller.poll(0)
    assert poller.to_wake == []
    assert calls == ["called"]
    assert all(waiter.wait(0) for waiter in waiters)
    poller.poll(0)
    assert calls == ["called"]
    assert not any(waiter.wait(0) for waiter in waiters)


def test_many_wakeups_end_one_poll_only(woken: Poller, pair: Pair) -> None:
    for _ in range(100):
        woken.wakeup()
    woken.poll(None)
    woken.register(pair[0], WRITABLE, "next")
    assert woken.poll(None) == [("next", WRITABLE)]
    woken.unregister(pair[0])
    before = woken.wait_ns
    woken.poll(20)
    assert woken.wait_ns - before >= 10_000_000  # it waited: no left-over wakeup


def test_no_wakeup_is_lost_among_racing_threads(woken: Poller) -> None:
    """Each thread publishes, then wakes; the poller may only sleep when everything published was seen."""
    published = [0] * 4
    rounds = 500

    def publish(index: int) -> None:
        for _ in range(rounds):
            published[index] += 1
            woken.wakeup()

    threads = [threading.Thread(target=publish, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    seen = 0
    while seen < 4 * rounds:
        woken.poll(None)  # a lost wakeup would hang here (and trip the test timeout)
        seen = sum(published)
    for thread in threads:
        thread.join()


def test_a_closed_poller_leaves_no_descriptor_open(woken: Poller) -> None:
    before = open_descriptors()
    others = [Poller() for _ in range(3)]
    assert len(open_descriptors() - before) >= 3
    for other in others:
        other.wakeup()
        other.poll(0)
        other.close()
    assert open_descriptors() == before


def test_wakeup_after_close_touches_no_foreign_descriptor(woken: Poller) -> None:
    woken.close()
    reader, writer = os.pipe()  # takes the descriptors that were just released
    other = socket.socketpair()
    for _ in range(3):
        woken.wakeup()
    for end in other:
        end.setblocking(False)
        with pytest.raises(BlockingIOError):
            end.recv(1)
    for end in other:
        end.close()
    os.close(reader)
    os.close(writer)
    woken.close()


def test_parts_of_a_millisecond_are_waited_for_exactly(poller: Poller) -> None:
    # poll() counts whole milliseconds; epoll (with ppoll), select() and kqueue count less.
    limit_ns = 1_900_000 if os.environ.get("KAFKAPROD_SELECTOR") == "poll" else 900_000
    shortest_ns = 10_000_000
    for _ in range(500):  # the machine may wake us late, but not each time
        before = poller.wait_ns
        poller.poll(0.3)
        shortest_ns = min(shortest_ns, poller.wait_ns - before)
        assert shortest_ns >= 300_000
        if shortest_ns < limit_ns:
            break
    assert shortest_ns < limit_ns


@pytest.mark.parametrize("name", ["poll", "select"])
def test_other_selectors_tell_the_same(name: str, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKAPROD_SELECTOR", name)
    poller = Poller()
    try:
        poller.register(pair[0], READABLE, "ours")
        poller.register(pair[1], READABLE | WRITABLE, "theirs")
        assert poller.poll(0) == [("theirs", WRITABLE)]
        pair[1].send(b"x")
        assert sorted(poller.poll(None)) == [("ours", READABLE), ("theirs", WRITABLE)]
        poller.unregister(pair[0])
        poller.modify(pair[1], 0, "theirs")
        threading.Timer(0.01, poller.wakeup).start()
        assert poller.poll(None) == []
        assert poller.poll(0.3) == []
    finally:
        poller.close()


@pytest.mark.parametrize("name", ["base", "default", "nonsense", "kqueue", ""])
def test_a_selector_that_is_not_there_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKAPROD_SELECTOR", name)
    with pytest.raises(ConfigError, match=f"KAFKAPROD_SELECTOR={name}: this system has no such selector"):
        Poller()


def test_readiness_and_wakeups_end_a_wait_for_parts_of_a_millisecond(poller: Poller, pair: Pair) -> None:
    poller.wakeup()
    assert poller.poll(60_000.5) == []
    poller.register(pair[0], WRITABLE, "left")
    assert poller.poll(60_000.5) == [("left", WRITABLE)]


def test_polls_and_waiting_time_are_counted(poller: Poller) -> None:
    poller.poll(1)
    poller.poll(-5)
    assert poller.poll_count == 2
    assert poller.wait_ns > 0
