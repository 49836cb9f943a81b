"""Blocking calls off the I/O thread: name resolution, SCRAM key derivation, fetching OAuth tokens.

Each call gets a short-lived daemon thread: such calls are rare (a few for each new connection), and a resolver that
hangs must neither delay other brokers nor the exit of the program. Results come back on the I/O thread. A thread that
cannot start is a failed call; while the program ends, when Python may start none, the call runs in place.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from kafkaprod.threads import is_program_ending, make_thread

Result = TypeVar("Result")


class Offload(Protocol):
    """Runs `call` on a helper thread, then one of the callbacks on the I/O thread, with the time."""

    def __call__(
        self, call: Callable[[], Any], on_result: Callable[[Any, int], None], on_error: Callable[[Exception, int], None]
    ) -> None:
        """Start it."""
        ...


class ThreadStartError(OSError):
    """The system gives no more threads, such as at a limit of processes; a later call may get one."""


class BackgroundCalls:
    """Runs calls on helper threads and delivers their results on the I/O thread.

    Args:
        wakeup: Called on a helper thread when a result waits; must be thread-safe.
    """

    def __init__(self, wakeup: Callable[[], None]) -> None:
        self._wakeup = wakeup
        self._finished: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def submit(
        self,
        call: Callable[[], Result],
        on_result: Callable[[Result], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        """Start `call` on a helper thread; `run_finished` later calls `on_result` or `on_error`. I/O thread only."""

        def run() -> None:
            try:
                result = call()
            except Exception as error:
                failure = error  # `error` is unbound when the block ends
                self._finished.put(lambda: on_error(failure))
            else:
                self._finished.put(lambda: on_result(result))
            self._wakeup()

        try:
            make_thread(run, "kafkaprod-background").start()
        except RuntimeError as error:
            if is_program_ending():
                run()  # it may block, but there is nothing else to do any more
                return
            failure = ThreadStartError(f"no helper thread could be started: {error}")
            failure.__cause__ = error
            self._finished.put(lambda: on_error(failure))
            self._wakeup()

    def run_finished(self) -> None:
        """Deliver all results that wait. I/O thread only."""
        while not self._finished.empty():  # no other thread takes from it; an exception at its end would cost more
            self._finished.get_nowait()()
