"""`kafkaprod cluster`: what its lines do, and what they refuse."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

import pytest

COMMAND = (sys.executable, "-m", "kafkaprod", "cluster", "--brokers", "2", "--topic", "orders:2")
END_S = 60


class Shell:
    """A cluster that runs in a process and obeys lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._input: IO[str] = process.stdin
        self._output: IO[str] = process.stdout
        self._errors: IO[str] = process.stderr
        assert self._output.readline().startswith("listening on 127.0.0.1:")
        assert "Lines: kill, start" in self._errors.readline()

    def say(self, line: str) -> str:
        """Send a line and return what it prints."""
        print(line, file=self._input, flush=True)
        return self._output.readline().strip()

    def refused(self, line: str) -> str:
        """Send a line that cannot be obeyed and return why."""
        print(line, file=self._input, flush=True)
        return self._errors.readline().strip()


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Shell(process)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) == 0


def test_brokers_are_added_and_removed(shell: Shell) -> None:
    assert shell.say("add").startswith("broker 3 listens on 127.0.0.1:")
    assert shell.say("add b").startswith("broker 4 listens on 127.0.0.1:")
    assert shell.say("remove 1") == "done"
    assert "there is no broker 1" in shell.refused("kill 1")
    assert shell.say("remove 3") == "done"
    assert shell.say("add").startswith("broker 5 listens on"), "ids are not used again"
    assert shell.say("remove 5") == "done"
    assert shell.say("remove 4") == "done"
    assert "broker 2 is the only one that runs" in shell.refused("remove 2")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("remove", "'remove' is not one of: kill, start"),
        ("remove 9", "there is no broker 9"),
        ("remove x", "'x' is not the id of a broker"),
        ("isolate x", "'x' is not the id of a broker"),
        ("kill x", "'x' is not the id of a broker"),
        ("add a b", "'add a b' is not one of: kill, start"),
    ],
)
def test_lines_that_are_refused(shell: Shell, line: str, reason: str) -> None:
    assert reason in shell.refused(line)
