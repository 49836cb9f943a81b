from __future__ import annotations

import pytest

from kafkaprod._core.machine.waking import Waiter
from kafkaprod.engine.steps import Steps, run


def test_outcome_of_steps_that_need_no_wait() -> None:
    def steps() -> Steps[int]:
        return 7
        yield

    assert run(steps()) == 7


def test_each_step_gets_whether_it_was_woken() -> None:
    woken: list[bool] = []

    def steps() -> Steps[str]:
        waiter = Waiter()
        waiter.wake()
        woken.append((yield waiter, 10))
        woken.append((yield waiter, 0.001))
        return "done"

    assert run(steps()) == "done"
    assert woken == [True, False]


def test_wait_that_is_interrupted_leaves_the_line() -> None:
    line: list[str] = []

    class Interrupted(Waiter):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    def steps() -> Steps[None]:
        line.append("entered")
        try:
            yield Interrupted(), None
        finally:
            line.append("left")

    with pytest.raises(KeyboardInterrupt):
        run(steps())
    assert line == ["entered", "left"]
