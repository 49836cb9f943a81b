"""Waits as generators: a call that may have to wait yields its waiter, and its runner decides how to wait.

    waiter = make_waiter()          enter it somewhere, so that `waiter.wake` is called when there is news
    is_woken = yield waiter, 0.25   wait for that at most 0.25 s (None: without limit)
    return outcome

`run` waits on the calling thread; `kafkaprod.aio` awaits the same generators. They never block by themselves and leave
every waiting line they entered when they are closed, whatever ends the wait: Ctrl-C, a cancelled task, a timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from kafkaprod._core.machine.waking import Waiter

T = TypeVar("T")


class AnyWaiter(Protocol):
    """A waiter of threads or of event loops."""

    def wake(self) -> None:
        """End the current or next wait. Never blocks; thread-safe."""
        ...

    def __call__(self) -> None:
        """Do as `wake`."""
        ...

    def start_with(self, start: Callable[[], None]) -> None:
        """Call `start`, which wakes the thread to wait for, now or right before the next wait."""
        ...


MakeWaiter: TypeAlias = Callable[[], AnyWaiter]
Steps: TypeAlias = Generator[tuple[Any, float | None], bool, T]


class Ending(Generic[T]):
    """The outcome of a call, kept without allocating memory: what fails after it is known must not hide it.

    A generator that returns a value raises StopIteration, which needs memory. If there is none, a MemoryError would say
    that nothing was queued, of records that are.

    Attributes:
        is_reached: Whether `outcome` is set.
    """

    __slots__ = ("is_reached", "outcome")

    def __init__(self) -> None:
        self.is_reached = False
        self.outcome: T

    def of(self, steps: Steps[T]) -> Steps[None]:
        """Run the steps and keep their outcome."""
        self.outcome = yield from steps
        self.is_reached = True


def run(steps: Steps[T]) -> T:
    """Run the steps of a call on this thread; return its outcome or raise its error. Waiters must be `Waiter`s."""
    ending: Ending[T] = Ending()  # Ending[T]() would be three calls of typing's
    kept = ending.of(steps)
    try:
        step = next(kept, None)  # with a default: its end raises nothing
        while step is not None:
            waiter, patience_s = step
            assert isinstance(waiter, Waiter)
            step = kept.send(waiter.wait(patience_s))
    except (StopIteration, MemoryError):
        if not ending.is_reached:
            raise
    finally:
        if not ending.is_reached:
            kept.close()
    return ending.outcome
