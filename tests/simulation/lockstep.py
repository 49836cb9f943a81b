"""A program that waits, as a thread of its own that runs only while the world stands still: one of both at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.simulation.world import Process, World


class EndedError(BaseException):
    """The program's process has ended: it does nothing more."""


class Program:
    """Runs a function, whose waits take virtual time.

    Args:
        world, process: Where it runs.
        run: The function; it raises nothing but EndedError.
    """

    def __init__(self, world: World, process: Process, run: Callable[[], None]) -> None:
        self._world = world
        self._process = process
        self._run = run
        self._to_program = threading.Semaphore(0)
        self._to_world = threading.Semaphore(0)
        self._is_waiting = False
        self._has_ended = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, daemon=True)

    def start(self) -> None:
        """Run until the first wait."""
        self._thread.start()
        self._await_program()

    def kill(self) -> None:
        """Let a program that waits end there."""
        self._has_ended = True
        if self._is_waiting:
            self._resume()

    def wait_for(self, begin: Callable[[Callable[[Any], None]], None]) -> Any:
        """Begin something, and return what its end gives; called by the program."""
        given: list[Any] = []

        def end(value: Any) -> None:
            if not given and not self._has_ended:
                given.append(value)
                if self._is_waiting:
                    self._resume()

        begin(end)
        if not given:
            self._is_waiting = True
            self._to_world.release()
            self._to_program.acquire()
            if self._has_ended:
                raise EndedError
        return given[0]

    def sleep(self, length_ms: int) -> None:
        """Wait for so long."""
        self.wait_for(lambda end: self._world.in_process(self._process, length_ms, lambda: end(None)))

    def _resume(self) -> None:
        self._is_waiting = False
        self._to_program.release()
        self._await_program()

    def _await_program(self) -> None:
        self._to_world.acquire()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _main(self) -> None:
        try:
            self._run()
        except EndedError:
            pass
        except BaseException as error:
            self._failure = error
        self._has_ended = True
        self._to_world.release()
