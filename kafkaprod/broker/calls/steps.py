"""Work for one request in steps, so that no client holds a thread for long.

A handler whose work grows with the request writes it as a generator and yields between two steps. The first slice
runs where the handler runs; what is left is put at the end of a queue, after what other clients want.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from enum import Enum
from typing import Generic, Protocol, TypeVar

from kafkaprod.broker.calls.request import CloseConnectionError, Deferred, Outcome, Ready
from kafkaprod.clock import Clock
from kafkaprod.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

T = TypeVar("T")
OutcomeT = TypeVar("OutcomeT", bound=Outcome)

FIRST_SLICE_MS = 5
_LATER_SLICE_MS = 50


class Pause(Enum):
    """What comes after a yield."""

    SHORT = "a step of some microseconds"
    LONG = "a step of many milliseconds, which must not run on the handler's thread"


PausingSteps = Generator[Pause, None, T]
RunLater = Callable[[Callable[[], None], Callable[[], None]], None]
"""Run the first call behind those that wait, on a thread of its own choice; then the second on the handler's thread."""


class RunControl(Protocol):
    """Runs a call on the control thread, after those before it, and then another one in the event loop, if given."""

    def __call__(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None: ...


class Threads(Protocol):
    """The threads of a broker; see `cluster.broker.Broker`."""

    @property
    def clock(self) -> Clock:
        """Measures slices."""

    @property
    def post(self) -> Callable[[Callable[[], None]], None]:
        """Have a call made by the event loop, from any thread."""

    @property
    def run_control(self) -> RunControl:
        """Run a call on the control thread."""


def finish_now(steps: PausingSteps[T]) -> T:
    """Run all steps at once; return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def run_in_steps(
    steps: PausingSteps[T],
    clock: Clock,
    run_later: RunLater,
    finish: Callable[[T], Outcome],
    refuse: Callable[[int], Ready],
    *,
    ends_with_client: bool = True,
    later_slice_ms: int = _LATER_SLICE_MS,
) -> Outcome:
    """Run the first slice, and have the others run later, each behind the work that waits by then.

    Args:
        steps: The work; two threads never run it at a time.
        clock: Measures the slices.
        run_later: Runs all slices but the first, which ends early before a long step.
        finish: Makes the outcome of what the steps return; on the handler's thread.
        refuse: Makes the answer to an exception after the first slice, of an error code.
        ends_with_client: End the work at the next yield if the client goes.
        later_slice_ms: How long each slice but the first may take.

    Returns:
        The outcome, if one slice was enough; else a `Deferred`.
    """
    work = _Work(steps, clock, later_slice_ms)
    work.run(FIRST_SLICE_MS, stops_at_long=True)
    if work.results:
        return finish(work.results[0])
    return _run_rest(work, run_later, finish, refuse, ends_with_client=ends_with_client)


def _run_rest(
    work: _Work[T],
    run_later: RunLater,
    finish: Callable[[T], Outcome],
    refuse: Callable[[int], Ready],
    *,
    ends_with_client: bool,
) -> Deferred:
    """Have all slices but the first run; as `run_in_steps`."""
    deferred = Deferred()
    if ends_with_client:
        deferred.on_abandon = work.stop

    def run_slice() -> None:
        try:
            work.run(work.later_slice_ms, stops_at_long=False)
        except Exception as error:
            work.failure = error

    def after_slice() -> None:
        if work.is_stopped:
            return
        if work.failure is None and not work.results:
            run_later(run_slice, after_slice)
            return
        try:
            if work.failure is not None:
                raise work.failure
            outcome = finish(work.results[0])
        except CloseConnectionError as error:
            deferred.complete(error)
        except Exception:
            logger.exception("a request failed after its first steps")
            deferred.complete(refuse(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            pass_on(outcome, deferred)

    run_later(run_slice, after_slice)
    return deferred


def run_in_loop_steps(
    broker: Threads, steps: PausingSteps[T], finish: Callable[[T], Outcome], refuse: Callable[[int], Ready]
) -> Outcome:
    """Run all steps in the event loop, a slice a turn: for what belongs to the loop, and for what is short.

    Args:
        broker: Has the event loop, in which this is called.
        steps: The work; it ends with the client.
        finish: Makes the outcome of what the steps return.
        refuse: Makes the answer to an exception after the first slice.
    """

    def run_later(work: Callable[[], None], then: Callable[[], None]) -> None:
        def run() -> None:
            work()
            then()

        broker.post(run)

    return run_in_steps(steps, broker.clock, run_later, finish, refuse, later_slice_ms=FIRST_SLICE_MS)


def run_in_control_steps(broker: Threads, steps: PausingSteps[OutcomeT], refuse: Callable[[int], Ready]) -> Outcome:
    """Run the steps of a change on the control thread; they do not end with the client.

    Args:
        broker: Has the control thread, on which this is called.
        steps: The change; what they return is the outcome, or one that comes later.
        refuse: Makes the answer to an exception after the first slice.
    """

    def run_later(work: Callable[[], None], then: Callable[[], None]) -> None:
        def run() -> None:
            work()
            then()

        broker.run_control(run)

    return run_in_steps(steps, broker.clock, run_later, _same, refuse, ends_with_client=False)


def each_short(changes: Generator[None, None, T]) -> PausingSteps[T]:
    """Run a change with a short pause where it yields."""
    while True:
        try:
            next(changes)
        except StopIteration as end:
            result: T = end.value
            return result
        yield Pause.SHORT


def _same(outcome: OutcomeT) -> OutcomeT:
    return outcome


def pass_on(outcome: Outcome, deferred: Deferred) -> None:
    """Complete a deferred outcome with another one, at once or when that completes."""
    if isinstance(outcome, Deferred):
        deferred.on_abandon = outcome.abandon
        outcome.then(deferred.complete)
    else:
        deferred.complete(outcome)


class _Work(Generic[T]):
    """A generator that runs in slices.

    Attributes:
        later_slice_ms: How long each slice but the first may take.
        results: What it returned, once it has.
        failure: What it raised after its first slice.
        is_stopped: Its result is not needed any more.
    """

    def __init__(self, steps: PausingSteps[T], clock: Clock, later_slice_ms: int) -> None:
        self._steps = steps
        self._clock = clock
        self.later_slice_ms = later_slice_ms
        self.results: list[T] = []
        self.failure: Exception | None = None
        self.is_stopped = False

    def run(self, slice_ms: int, *, stops_at_long: bool) -> None:
        """Run until the time is over, a long step comes, or the end."""
        ends_ms = self._clock.now_ms() + slice_ms
        try:
            while not self.is_stopped:
                pause = next(self._steps)
                if self._clock.now_ms() >= ends_ms or (stops_at_long and pause is Pause.LONG):
                    return
        except StopIteration as end:
            self.results.append(end.value)

    def stop(self) -> None:
        """Let the work end at its next yield."""
        self.is_stopped = True
