"""Waits as generators: a call that may have to wait yields its waiter, and its runner decides how to wait.

    waiter = make_waiter()          enter it somewhere, so that `waiter.wake` is called when there is news
    is_woken = yield waiter, 0.25   wait for that at most 0.25 s (None: without limit)
    return outcome

`run` waits on the calling thread; `kafkaprod.aio` awaits the same generators. They never block by themselves and leave
every waiting line they entered when they are closed, whatever ends the wait: Ctrl-C, a cancelled task, a timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeAlias, TypeVar

from kafkaprod.results.waiting import Waiter

T = TypeVar("T")


class AnyWaiter(Protocol):
    """A waiter of threads or of event loops."""

    def wake(self) -> None:
        """End the current or next wait. Never blocks; thread-safe."""
        ...


MakeWaiter: TypeAlias = Callable[[], AnyWaiter]
Steps: TypeAlias = Generator[tuple[Any, float | None], bool, T]


def run(steps: Steps[T]) -> T:
    """Run the steps of a call on this thread; return its outcome or raise its error. Waiters must be `Waiter`s."""
    try:
        waiter, patience_s = next(steps)
        while True:
            assert isinstance(waiter, Waiter)
            waiter, patience_s = steps.send(waiter.wait(patience_s))
    except StopIteration as end:
        outcome: T = end.value
        return outcome
    finally:
        steps.close()
