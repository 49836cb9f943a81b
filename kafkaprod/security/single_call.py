"""A call that may hang: one at a time, each on a thread of its own, with a bound.

A library that talks to servers by itself has limits of its own, often of minutes, and cannot be interrupted. A login
that gives up leaves its call behind; the next ones wait for that call's end instead of starting more threads.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any, TypeVar

from kafkaprod.clock import monotonic_s
from kafkaprod.threads import is_program_ending, make_thread

Result = TypeVar("Result")


class StillRunningError(Exception):
    """The call, or the one before it, has not ended within the bound."""


class SingleCall:
    """Makes one call at a time. Thread-safe.

    Args:
        name: The name of the threads.
        patience_s: How long a caller waits: for its turn and for its result together.
    """

    def __init__(self, name: str, patience_s: float) -> None:
        self._name = name
        self.patience_s = patience_s
        self._turn: queue.SimpleQueue[None] = queue.SimpleQueue()  # empty while a call runs
        self._turn.put(None)

    def make(self, call: Callable[[], Result]) -> Result:
        """Return what `call` returns, or raise what it raises.

        Raises:
            StillRunningError: It takes too long, and still runs.
        """
        end_s = monotonic_s() + self.patience_s
        try:
            self._turn.get(timeout=self.patience_s)
        except queue.Empty:
            raise StillRunningError from None
        outcome: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()

        def run() -> None:
            try:
                done: tuple[Any, Exception | None] = (call(), None)
            except Exception as error:
                done = (None, error)
            self._turn.put(None)
            outcome.put(done)

        self._start(run)
        try:
            result, error = outcome.get(timeout=max(end_s - monotonic_s(), 0.001))
        except queue.Empty:
            raise StillRunningError from None
        if error is not None:
            raise error
        answer: Result = result
        return answer

    def _start(self, run: Callable[[], None]) -> None:
        try:
            make_thread(run, self._name).start()
        except RuntimeError:
            if is_program_ending():
                run()  # it may hang, but there is nothing else to do any more
                return
            self._turn.put(None)
            raise
