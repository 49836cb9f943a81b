"""A locked method lets go of its lock, however it ends."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import pytest

from kafkaprod.locks import locked

INTERRUPTIONS = 300
PERIOD_S = 0.0005


class SoftLimitError(Exception):
    """What a signal handler raises."""


class Counter:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.count = 0

    @locked
    def add(self, number: int = 1, *, then: Callable[[], object] = lambda: None) -> int:
        """Count."""
        self.count += number
        then()
        return self.count

    def is_free(self) -> bool:
        """Whether another thread gets the lock."""
        found: list[bool] = []

        def look() -> None:
            found.append(self._lock.acquire(blocking=False))
            if found[0]:
                self._lock.release()

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return found[0]


def interrupt(calls: Iterable[Callable[[], object]]) -> None:
    """Make calls until a signal comes."""
    signal.setitimer(signal.ITIMER_REAL, PERIOD_S)
    for call in calls:
        call()


@pytest.fixture
def raising_alarm() -> Iterator[None]:
    def raise_limit(number: int, frame: FrameType | None) -> None:
        raise SoftLimitError

    previous: Any = signal.signal(signal.SIGALRM, raise_limit)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)


def test_a_locked_method_holds_the_lock_only_while_it_runs() -> None:
    counter = Counter()
    seen: list[bool] = []
    assert counter.add(2, then=lambda: seen.append(counter.is_free())) == 2
    assert seen == [False]
    assert counter.is_free()


def test_a_locked_method_keeps_its_name_and_its_docstring() -> None:
    assert (Counter.add.__name__, Counter.add.__doc__) == ("add", "Count.")


def test_a_locked_method_may_call_another_of_its_object() -> None:
    counter = Counter()
    assert counter.add(then=counter.add) == 2
    assert counter.is_free()


def test_an_error_of_the_method_lets_go_of_the_lock() -> None:
    counter = Counter()
    with pytest.raises(ZeroDivisionError):
        counter.add(then=lambda: 1 / 0)
    assert counter.is_free()


@pytest.mark.usefixtures("raising_alarm")
def test_no_exception_of_a_signal_handler_leaves_the_lock_locked() -> None:
    counter = Counter()
    for _ in range(INTERRUPTIONS):
        with pytest.raises(SoftLimitError):
            interrupt(itertools.repeat(counter.add))
        assert counter.is_free()
    assert counter.count > INTERRUPTIONS


@pytest.mark.usefixtures("raising_alarm")
def test_an_exception_ends_the_wait_for_the_lock_and_takes_it_from_nobody() -> None:
    counter = Counter()
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        may_go.wait(20)

    holder = threading.Thread(target=lambda: counter.add(then=hold))
    holder.start()
    is_held.wait(20)
    with pytest.raises(SoftLimitError):
        interrupt([counter.add])
    assert not counter.is_free()
    may_go.set()
    holder.join(20)
    assert counter.is_free()
