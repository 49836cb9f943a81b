"""The parent's side of a process of this package: start it, and exchange lines of JSON over its stdin and stdout."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkaprod.errors import KafkaError

_END_TIMEOUT_S = 30.0


class EmbeddedBrokerError(KafkaError):
    """The broker's process could not be started, or did not answer."""


def start_module(module: str) -> subprocess.Popen[bytes]:
    """Start a module of this package in a process with pipes as stdin and stdout."""
    package_dir = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, (package_dir, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        # -P: not the working directory first, which may be a source tree that was never built.
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )


def say_last(process: subprocess.Popen[bytes], command: str) -> None:
    """Send a process its last command, and close its stdin. The end of stdin alone is the death of its parent."""
    assert process.stdin is not None
    with contextlib.suppress(OSError, ValueError):  # it is gone; a closed pipe is a ValueError
        process.stdin.write(json.dumps({"command": command}).encode() + b"\n")
    with contextlib.suppress(OSError):
        process.stdin.close()


def exchange(
    process: subprocess.Popen[bytes], lock: threading.Lock, command: Mapping[str, Any], timeout_s: float, name: str
) -> dict[str, Any]:
    """Send a process a command and return its answer, which may be an error. Thread-safe.

    Args:
        process: A process that `start_module` started.
        lock: Held from the command to its answer.
        command: What to send.
        timeout_s: How long to wait for the answer, in seconds.
        name: The process in messages: "the embedded broker".

    Raises:
        EmbeddedBrokerError: No answer in time, or the process has ended.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    with lock:
        try:
            process.stdin.write(json.dumps(dict(command)).encode() + b"\n")
            process.stdin.flush()
        except (OSError, ValueError) as error:  # a closed pipe is a ValueError
            raise EmbeddedBrokerError(f"{name} is gone: exit code {process.poll()}") from error
        with selectors.DefaultSelector() as files:  # select() takes no descriptor above 1,023
            files.register(process.stdout, selectors.EVENT_READ)
            has_answer = bool(files.select(timeout_s))
        if not has_answer:
            raise EmbeddedBrokerError(f"{name} did not answer within {timeout_s} s")
        line = process.stdout.readline()
    if not line:
        raise EmbeddedBrokerError(f"{name} ended with exit code {process.wait(_END_TIMEOUT_S)}")
    answer: dict[str, Any] = json.loads(line)
    return answer
