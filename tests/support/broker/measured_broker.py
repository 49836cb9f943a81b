"""The embedded broker's process, which notes how much CPU time its longest turn takes and what it answered there.

The same for the longest step of its control thread. CPU time of one thread, unlike what a client waits, does not depend
on what else the machine does.
"""

from __future__ import annotations

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
from kafkaprod.broker.embedding import child, embedded
from kafkaprod.broker.server.dispatcher import Dispatcher
from kafkaprod.broker.server.server import BrokerServer
from kafkaprod.broker.server.session import Session

_FILE = "KAFKAPROD_LONGEST_TURN"


class LongestTurn(NamedTuple):
    """Of the event loop of one broker."""

    cpu_s: float
    apis: tuple[str, ...]


@contextmanager
def measured_brokers() -> Iterator[Path]:
    """Have brokers that are embedded in the block measure their turns; yield what `longest_turn` reads."""
    module: Any = embedded
    start = module.start_module
    with TemporaryDirectory() as directory:
        path = Path(directory) / "longest_turn"
        os.environ[_FILE] = str(path)
        module.start_module = lambda _: start(__name__)
        try:
            yield path
        finally:
            module.start_module = start
            del os.environ[_FILE]


def longest_turn(path: Path) -> LongestTurn:
    """Return the longest turn until now."""
    cpu_s, apis = json.loads(path.read_text())
    return LongestTurn(cpu_s, tuple(apis))


def longest_step_s(path: Path) -> float:
    """Return the CPU time of the control thread's longest step until now, in seconds."""
    return float(_steps_of(path).read_text())


def _steps_of(path: Path) -> Path:
    return path.with_suffix(".control")


def _write(path: Path, text: str) -> None:
    written = path.with_name(path.name + ".new")
    written.write_text(text)
    written.replace(path)


def _measure(path: Path) -> None:
    _measure_turns(path)
    _measure_steps(_steps_of(path))


def _measure_steps(path: Path) -> None:
    submit = ControlThread.submit
    longest_s = 0.0
    _write(path, "0")

    def measured_submit(self: ControlThread, call: Callable[[], None], *, may_be_long: bool = False) -> None:
        def measured_call() -> None:
            nonlocal longest_s
            began_s = time.thread_time()
            call()
            used_s = time.thread_time() - began_s
            if used_s > longest_s:
                longest_s = used_s
                _write(path, str(used_s))

        submit(self, measured_call, may_be_long=may_be_long)

    ControlThread.submit = measured_submit  # type: ignore[method-assign]


def _measure_turns(path: Path) -> None:
    turn, begin_next = BrokerServer._turn, Dispatcher.begin_next
    longest_s, seen = 0.0, list[str]()

    def measured_begin(self: Dispatcher, session: Session) -> None:
        seen.extend(received.api.name for received in list(session.waiting)[:1])
        begin_next(self, session)

    def measured_turn(self: BrokerServer) -> None:
        nonlocal longest_s
        seen.clear()
        began_s = time.thread_time()
        turn(self)
        used_s = time.thread_time() - began_s
        if used_s > longest_s:
            longest_s = used_s
            _write(path, json.dumps([used_s, seen]))

    Dispatcher.begin_next = measured_begin  # type: ignore[method-assign]
    BrokerServer._turn = measured_turn  # type: ignore[method-assign]


if __name__ == "__main__":
    _measure(Path(os.environ[_FILE]))
    sys.exit(child.main())
