"""The test's side of an embedded cluster's host: start the process, ask it, end it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Any

from kafkaprod.broker.embedding.child_process import ChildProcess, EmbeddedBrokerError, start_module
from kafkaprod.errors import IllegalStateError

_START_S = 120.0
_ANSWER_S = 330.0  # the host gives a child up before, which takes it 300 s at most
_CLOSE_S = 15.0


class ClusterHost:
    """See the module docstring. Thread-safe: one command and its answer at a time.

    Attributes:
        options: Those of the host's process; the addresses of the brokers are added at the start.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        """Describe the host; `start` runs it."""
        self.options = options
        self._owner_pid = os.getpid()
        self._process: ChildProcess | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started and not closed."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The host's process id.

        Raises:
            IllegalStateError: It does not run, or belongs to another process.
        """
        return self._running().pid

    def start(self) -> None:
        """Start the host, which chooses the ports; no broker runs yet.

        Raises:
            EmbeddedBrokerError: It did not start.
            IllegalStateError: It runs already.
        """
        if self._process is not None:
            raise IllegalStateError("the embedded cluster runs already")
        self._process = start_module("kafkaprod.broker.embedding.host")
        try:
            addresses = self._exchange(self.options, _START_S)["addresses"]
        except BaseException:
            self.close()
            raise
        for name, address in addresses.items():
            self.options["brokers"][name] |= address

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Send a command and return its answer.

        Raises:
            EmbeddedBrokerError: No answer in time, or an error.
            IllegalStateError: The host does not run, or belongs to another process.
        """
        return self._exchange(command, _ANSWER_S)

    def close(self) -> None:
        """End the host and all its children. Idempotent; does nothing in a forked child."""
        if self._owner_pid != os.getpid() or self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdout is not None
        process.say_last("close")
        try:
            process.wait_patiently(_CLOSE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _exchange(self, command: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        answer = self._running().exchange(command, timeout_s, "the cluster's host")
        if "error" in answer:
            raise EmbeddedBrokerError(str(answer["error"]))
        return answer

    def _running(self) -> ChildProcess:
        if self._process is None or self._owner_pid != os.getpid():
            raise IllegalStateError("the embedded cluster does not run in this process")
        return self._process
