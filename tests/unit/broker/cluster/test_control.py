"""The order of the control thread's calls."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from kafkaprod.broker.cluster.control import ControlThread
from tests.support.clock import ManualClock


def control_thread() -> ControlThread:
    """Return a thread, not started, of a broker without timers."""
    without_timers: Any = SimpleNamespace(on_time=lambda *_: None, next_deadline_ms=lambda *_: None)
    return ControlThread(lambda: (without_timers, without_timers), ManualClock(), lambda: None)


def order_of(submitted: list[tuple[str, bool]]) -> list[str]:
    """Submit named calls behind one that runs, and return the order in which they ran."""
    control, seen, may_go_on = control_thread(), list[str](), threading.Event()

    def wait() -> None:
        may_go_on.wait(30)

    control.submit(wait)
    for name, may_be_long in submitted:
        control.submit(lambda name=name: seen.append(name), may_be_long=may_be_long)  # type: ignore[misc]
    control.start()
    may_go_on.set()
    control.stop()
    return seen


def test_short_calls_come_past_those_that_may_be_long() -> None:
    assert order_of([("a", False), ("B", True), ("C", True), ("d", False), ("e", False)]) == ["a", "d", "e", "B", "C"]


def test_a_long_call_has_its_turn_under_a_flood_of_short_ones() -> None:
    seen = order_of([("A", True), ("B", True), *((str(number), False) for number in range(40))])
    assert (seen.index("A"), seen.index("B")) == (16, 33)
    assert len(seen) == 42


def test_a_stop_waits_for_what_was_submitted() -> None:
    assert order_of([(str(number), number % 2 == 0) for number in range(100)]).count("98") == 1
