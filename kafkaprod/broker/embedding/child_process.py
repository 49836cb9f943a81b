"""The parent's side of a process of this package: start it, and exchange lines of JSON over its stdin and stdout."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafkaprod.broker.embedding.lines import JsonLines
from kafkaprod.broker.embedding.patience import Patience, starved_s
from kafkaprod.errors import KafkaError
from kafkaprod.locks import locked

_END_TIMEOUT_S = 30.0


class EmbeddedBrokerError(KafkaError):
    """The broker's process could not be started, or did not answer."""


class ChildProcess(subprocess.Popen[bytes]):
    """A process with pipes as stdin and stdout, which answers each line with one."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        super().__init__(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert self.stdin is not None
        assert self.stdout is not None
        self._lines = JsonLines(self.stdout, self.stdin)
        self._lock = threading.RLock()

    def exchange(self, command: Mapping[str, Any], timeout_s: float, name: str) -> dict[str, Any]:
        """Send a command and return its answer, which may be an error. Thread-safe: one after another.

        Args:
            command: What to send.
            timeout_s: How long to wait for the answer, in seconds; what the process waits for a processor is added.
            name: The process in messages: "the embedded broker".

        Raises:
            EmbeddedBrokerError: No answer in time, or the process has ended.
        """
        try:
            answer = self._ask(command, timeout_s)
        except TimeoutError:
            raise EmbeddedBrokerError(
                f"{name} did not answer within {timeout_s} s, besides {starved_s(self.pid):.1f} s for which it had no "
                "processor"
            ) from None
        except (OSError, ValueError) as error:  # a closed pipe is a ValueError
            raise EmbeddedBrokerError(f"{name} is gone: exit code {self.poll()}") from error
        if answer is None:
            raise EmbeddedBrokerError(f"{name} ended with exit code {self.wait(_END_TIMEOUT_S)}")
        return answer

    @locked
    def _ask(self, command: Mapping[str, Any], timeout_s: float) -> dict[str, Any] | None:
        return self._lines.ask(command, Patience(timeout_s, self.pid))

    def wait_patiently(self, timeout_s: float) -> None:
        """Wait for its end; what it waits for a processor is added to the timeout, in seconds.

        Raises:
            subprocess.TimeoutExpired: It has not ended.
        """
        patience = Patience(timeout_s, self.pid)
        while left_s := patience.left_s():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(left_s)
                return
        self.wait(0.0)

    def say(self, message: Mapping[str, Any]) -> None:
        """Send a line that wants no answer; a process that is gone gets none."""
        with contextlib.suppress(OSError, ValueError):
            self._lines.send(message)

    def say_last(self, command: str) -> None:
        """Send the last command, and close stdin. The end of stdin alone is the death of the parent."""
        assert self.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it is gone; a closed pipe is a ValueError
            self._lines.send({"command": command})
        with contextlib.suppress(OSError):
            self.stdin.close()


def start_module(module: str) -> ChildProcess:
    """Start a module of this package in a process with pipes as stdin and stdout.

    Raises:
        EmbeddedBrokerError: The program is packed, as by PyInstaller: it would start itself again instead.
    """
    if getattr(sys, "frozen", False):
        raise EmbeddedBrokerError(
            "a packed program has no Python to run an embedded broker with: run `kafkaprod broker` beside it"
        )
    package_dir = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, (package_dir, os.environ.get("PYTHONPATH"))))
    # -P: not the working directory first, which may be a source tree that was never built.
    return ChildProcess([sys.executable, "-P", "-m", module], {**os.environ, "PYTHONPATH": path})
