"""Work for one request in steps: where each slice runs, and how it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkaprod.broker.calls.request import NO_RESPONSE, CloseConnectionError, Deferred, NoResponse, Outcome, Ready
from kafkaprod.broker.calls.steps import Pause, PausingSteps, run_in_steps
from tests.support.clock import ManualClock

REFUSED = CloseConnectionError("refused")


class Scene:
    """Steps that take time, and a queue of the slices that wait."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.done: list[int] = []

    def steps(self, *pauses: tuple[Pause, int], fails: bool = False) -> PausingSteps[NoResponse]:
        for index, (pause, cost_ms) in enumerate(pauses):
            yield pause
            self.clock.advance(cost_ms)
            self.done.append(index)
        if fails:
            raise ValueError("the last step")
        return NO_RESPONSE

    def run(
        self, steps: PausingSteps[NoResponse], finish: Callable[[NoResponse], Outcome] = lambda result: result
    ) -> Outcome:
        return run_in_steps(
            steps, self.clock, lambda *calls: self.waiting.append(calls), finish, lambda error_code: REFUSED
        )

    def run_next_slice(self) -> None:
        work, then = self.waiting.pop(0)
        work()
        then()


def outcome_of(deferred: Outcome) -> list[Ready]:
    received: list[Ready] = []
    assert isinstance(deferred, Deferred)
    deferred.then(received.append)
    return received


def test_short_work_is_done_at_once() -> None:
    scene = Scene()
    assert scene.run(scene.steps((Pause.SHORT, 1), (Pause.SHORT, 1))) is NO_RESPONSE
    assert not scene.waiting


def test_long_step_waits_behind_others_and_many_steps_are_cut_into_slices() -> None:
    scene = Scene()
    received = outcome_of(
        scene.run(scene.steps((Pause.SHORT, 1), (Pause.LONG, 60), (Pause.LONG, 60), (Pause.SHORT, 1)))
    )
    assert scene.done == [0]
    scene.run_next_slice()
    assert (scene.done, received) == ([0, 1], [])
    scene.run_next_slice()
    scene.run_next_slice()
    assert (scene.done, received, scene.waiting) == ([0, 1, 2, 3], [NO_RESPONSE], [])


def test_first_slice_ends_after_some_milliseconds() -> None:
    scene = Scene()
    received = outcome_of(scene.run(scene.steps(*[(Pause.SHORT, 3)] * 10)))
    assert scene.done == [0, 1]
    scene.run_next_slice()
    assert received == [NO_RESPONSE]


def test_work_ends_when_the_client_goes() -> None:
    scene = Scene()
    deferred = scene.run(scene.steps((Pause.LONG, 60), (Pause.LONG, 60)))
    assert isinstance(deferred, Deferred)
    deferred.abandon()
    scene.run_next_slice()
    assert (scene.done, scene.waiting) == ([], [])


def test_exception_in_a_later_slice_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    received = outcome_of(scene.run(scene.steps((Pause.LONG, 1), fails=True)))
    scene.run_next_slice()
    assert received == [REFUSED]
    assert "the last step" in caplog.text


def test_exception_in_the_first_slice_is_the_callers() -> None:
    scene = Scene()
    with pytest.raises(ValueError, match="the last step"):
        scene.run(scene.steps((Pause.SHORT, 1), fails=True))


def test_outcome_may_come_later_than_the_last_step() -> None:
    scene, later = Scene(), Deferred()
    received = outcome_of(scene.run(scene.steps((Pause.LONG, 1)), lambda result: later))
    scene.run_next_slice()
    assert not received
    later.complete(NO_RESPONSE)
    assert received == [NO_RESPONSE]


def test_closing_the_connection_may_be_the_outcome() -> None:
    scene, closing = Scene(), CloseConnectionError("acks=0")

    def finish(result: NoResponse) -> Outcome:
        raise closing

    received = outcome_of(scene.run(scene.steps((Pause.LONG, 1)), finish))
    scene.run_next_slice()
    assert received == [closing]
