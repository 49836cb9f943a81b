"""Embedded brokers' processes, which note how much CPU time their longest turn takes and what they answered there.

The same for the longest step of their control threads, and for the turns of a cluster's controller. CPU time of one
thread, unlike what a client waits, does not depend on what else the machine does.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from kafkaprod.broker.cluster.control import ControlThread
from kafkaprod.broker.controller.process import ControllerProcess
from kafkaprod.broker.embedding import child_process, cluster_host, embedded
from kafkaprod.broker.server.dispatcher import Dispatcher
from kafkaprod.broker.server.server import BrokerServer
from kafkaprod.broker.server.session import Session

_DIRECTORY = "KAFKAPROD_LONGEST_TURNS"
_MODULE = "KAFKAPROD_MEASURED_MODULE"
_TURN, _STEP = "turn", "step"


class LongestTurn(NamedTuple):
    """Of the event loop of one broker, or of the controller."""

    cpu_s: float
    apis: tuple[str, ...]


@contextmanager
def measured_brokers() -> Iterator[Path]:
    """Have brokers and clusters that are embedded in the block measure; yield what the functions below read."""
    modules: tuple[Any, ...] = (embedded, cluster_host)
    start = child_process.start_module

    def start_measured(module: str) -> Any:
        os.environ[_MODULE] = module
        return start(__name__)

    with TemporaryDirectory() as directory:
        os.environ[_DIRECTORY] = directory
        for module in modules:
            module.start_module = start_measured
        try:
            yield Path(directory)
        finally:
            for module in modules:
                module.start_module = start
            for name in (_DIRECTORY, _MODULE):
                os.environ.pop(name, None)


def longest_turn(directory: Path) -> LongestTurn:
    """Return the longest turn of any of the processes until now."""
    turns = (json.loads(path.read_text()) for path in directory.glob(f"*.{_TURN}"))
    return max((LongestTurn(cpu_s, tuple(apis)) for cpu_s, apis in turns), default=LongestTurn(0.0, ()))


def longest_step_s(directory: Path) -> float:
    """Return the CPU time of the longest step of any broker's control thread until now, in seconds."""
    return max((float(path.read_text()) for path in directory.glob(f"*.{_STEP}")), default=0.0)


def _write(kind: str, text: str) -> None:
    """Write what this process measured: after a fork each has a file of its own."""
    path = Path(os.environ[_DIRECTORY], f"{os.getpid()}.{kind}")
    written = path.with_name(f"{path.name}.new")
    written.write_text(text)
    written.replace(path)


def _measure_steps() -> None:
    submit = ControlThread.submit
    longest_s = 0.0

    def measured_submit(self: ControlThread, call: Callable[[], None], *, may_be_long: bool = False) -> None:
        def measured_call() -> None:
            nonlocal longest_s
            began_s = time.thread_time()
            call()
            used_s = time.thread_time() - began_s
            if used_s > longest_s:
                longest_s = used_s
                _write(_STEP, str(used_s))

        submit(self, measured_call, may_be_long=may_be_long)

    ControlThread.submit = measured_submit  # type: ignore[method-assign]


def _measure_turns(loop: Any, seen: list[str]) -> None:
    turn = loop._turn
    longest_s = 0.0

    def measured_turn(self: Any) -> None:
        nonlocal longest_s
        seen.clear()
        began_s = time.thread_time()
        turn(self)
        used_s = time.thread_time() - began_s
        if used_s > longest_s:
            longest_s = used_s
            _write(_TURN, json.dumps([used_s, seen]))

    loop._turn = measured_turn


def _note_apis(seen: list[str]) -> None:
    begin_next = Dispatcher.begin_next

    def measured_begin(self: Dispatcher, session: Session) -> None:
        seen.extend(received.api.name for received in list(session.waiting)[:1])
        begin_next(self, session)

    Dispatcher.begin_next = measured_begin  # type: ignore[method-assign]


def _measure() -> None:
    seen: list[str] = []
    _note_apis(seen)
    _measure_turns(BrokerServer, seen)
    _measure_turns(ControllerProcess, [])
    _measure_steps()


if __name__ == "__main__":
    _measure()
    sys.exit(importlib.import_module(os.environ[_MODULE]).main())
