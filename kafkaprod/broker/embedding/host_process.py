"""The test's side of an embedded cluster's host: start the process, ask it, end it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkaprod.broker.embedding.embedded import EmbeddedBrokerError

_START_S = 30.0
_ANSWER_S = 30.0
_CLOSE_S = 15.0


class HostProcess:
    """See the module docstring. Thread-safe: one command and its answer at a time."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Start the host; `first_answer` is what it says when it is ready.

        Raises:
            EmbeddedBrokerError: It did not start.
        """
        package_dir = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(filter(None, (package_dir, os.environ.get("PYTHONPATH"))))
        self._owner_pid = os.getpid()
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            # -P: not the working directory first, which may be a source tree that was never built.
            [sys.executable, "-P", "-m", "kafkaprod.broker.embedding.host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
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
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _exchange(self, command: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with self._lock:
            try:
                process.stdin.write(json.dumps(dict(command)).encode() + b"\n")
                process.stdin.flush()
            except (OSError, ValueError) as error:
                raise EmbeddedBrokerError(f"the cluster's host is gone: exit code {process.poll()}") from error
            if not select.select([process.stdout], [], [], timeout_s)[0]:
                raise EmbeddedBrokerError(f"the cluster's host did not answer within {timeout_s} s")
            line = process.stdout.readline()
        if not line:
            raise EmbeddedBrokerError(f"the cluster's host ended with exit code {process.wait(_CLOSE_S)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EmbeddedBrokerError(str(answer["error"]))
        return answer
