"""The test's side of an embedded cluster's host: start the process, ask it, end it."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from typing import Any

from kafkaprod.broker.embedding.child_process import EmbeddedBrokerError, exchange, say_last, start_module

_START_S = 120.0
_ANSWER_S = 60.0
_CLOSE_S = 15.0


class HostProcess:
    """See the module docstring. Thread-safe: one command and its answer at a time."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Start the host; `first_answer` is its answer when it is ready.

        Raises:
            EmbeddedBrokerError: It did not start.
        """
        self._owner_pid = os.getpid()
        self._lock = threading.Lock()
        self._process = start_module("kafkaprod.broker.embedding.host")
        try:
            self.first_answer = self._exchange(options, _START_S)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The host's process id."""
        return self._process.pid

    def ask(self, command: Mapping[str, Any], timeout_s: float = _ANSWER_S) -> dict[str, Any]:
        """Send a command and return its answer.

        Raises:
            EmbeddedBrokerError: No answer in time, or an error.
        """
        return self._exchange(command, timeout_s)

    def close(self) -> None:
        """End the host and all its children. Idempotent; does nothing in a forked child."""
        if self._owner_pid != os.getpid():
            return
        process = self._process
        assert process.stdout is not None
        say_last(process, "close")
        try:
            process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _exchange(self, command: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        answer = exchange(self._process, self._lock, command, timeout_s, "the cluster's host")
        if "error" in answer:
            raise EmbeddedBrokerError(str(answer["error"]))
        return answer
