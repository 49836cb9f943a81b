"""Something that happens at a chosen point of the package, because of a signal.

A trace function stands in for the signal: at any line; with KAFKAPROD_STRESS=full at any bytecode. For what raises, a
profile function does: the interpreter looks for signals where a function begins and when a C function has returned, so
it raises nothing between the end of a `with` block and the release of its lock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.stress.scale import IS_FULL

EVENT = "opcode" if IS_FULL else "line"


class Interruption:
    """Runs `handler` before line or bytecode number `at` of the package; None: counts them only."""

    def __init__(self, handler: Callable[[], Any] = lambda: None, at: int | None = None) -> None:
        self._handler = handler
        self._at = at
        self.count = 0

    def run(self, call: Callable[[], Any]) -> None:
        previous = sys.gettrace()
        sys.settrace(self._enter)
        try:
            call()
        finally:
            sys.settrace(previous)

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_globals.get("__name__", "").startswith("kafkaprod"):
            return None
        frame.f_trace_opcodes = IS_FULL
        return self._step

    def _step(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == EVENT:
            self.count += 1
            if self.count - 1 == self._at:
                self._handler()
        return self._step


class RaisingInterruption(Interruption):
    """Runs `handler`, which may raise, at point number `at` of those where the interpreter looks for signals."""

    def run(self, call: Callable[[], Any]) -> None:
        sys.setprofile(self._look)
        try:
            call()
        finally:
            sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "c_return") and frame.f_globals.get("__name__", "").startswith("kafkaprod"):
            self.count += 1
            if self.count - 1 == self._at:
                self._handler()
