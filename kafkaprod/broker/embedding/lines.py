"""Lines of JSON between two processes: the one reader and writer of them in this package.

A command that wants an answer has a number, and its answer has the same:

    {"command": "view", "number": 7}        {"topics": ..., "number": 7}

So an answer that comes after its command's timeout is dropped, and not taken for that of the next command.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

from kafkaprod.broker.embedding.patience import Patience
from kafkaprod.locks import locked

NUMBER = "number"
"""The key of a command's number, which its answer repeats; a command without it wants no answer."""

_CHUNK_BYTES = 65_536


class Descriptor(Protocol):
    """A pipe or a socket."""

    def fileno(self) -> int:
        """Return the descriptor; ValueError if it is closed."""


class JsonLines:
    """Sends and receives objects, a line each, over two descriptors, which stay the caller's to close.

    `send` and `reply` are thread-safe; one thread at a time may receive or ask. Nothing else may use the descriptors.

    Args:
        reader: Where lines come from.
        writer: Where lines go; a socket is both.
    """

    def __init__(self, reader: Descriptor, writer: Descriptor) -> None:
        self._reader = reader
        self._writer = writer
        self._lock = threading.RLock()
        self._buffer = bytearray()
        self._asked = 0

    def fileno(self) -> int:
        """Return the descriptor that lines come from, for `select`."""
        return self._reader.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a line; wait until all of it is with the kernel.

        Raises:
            OSError: The other process is gone.
            ValueError: The writer is closed.
        """
        self._write(memoryview(json.dumps(dict(message)).encode() + b"\n"))

    @locked
    def _write(self, left: memoryview) -> None:
        while left:
            left = left[os.write(self._writer.fileno(), left) :]

    def receive(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """Return the next line, or None when the other process is gone.

        Args:
            timeout_s: How long to wait for it, in seconds; None: without end.

        Raises:
            TimeoutError: It did not come in time.
            ValueError: The reader is closed, or the line is not JSON.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while (message := self.take()) is None:
            if deadline_s is not None and not self._is_readable(deadline_s - time.monotonic()):
                raise TimeoutError(f"no line came within {timeout_s} s")
            if not self.fill():
                return None
        return message

    def ask(self, command: Mapping[str, Any], patience: Patience) -> dict[str, Any] | None:
        """Send a command and return its answer, or None when the other process is gone. Drops answers that come late.

        Raises:
            TimeoutError: It did not answer in time.
            OSError: It is gone.
            ValueError: A descriptor is closed, or a line is not JSON.
        """
        self._asked += 1
        self.send({**command, NUMBER: self._asked})
        while (answer := self.receive_patiently(patience)) is not None:
            if answer.pop(NUMBER, None) == self._asked:
                break
        return answer

    def receive_patiently(self, patience: Patience) -> dict[str, Any] | None:
        """Return the next line, or None when the other process is gone. Raises as `receive`."""
        while left_s := patience.left_s():
            with contextlib.suppress(TimeoutError):
                return self.receive(left_s)
        return self.receive(0.0)

    def reply(self, number: int | None, answer: Mapping[str, Any]) -> None:
        """Answer the command with a number; without one it wants no answer. Raises as `send`."""
        if number is not None:
            self.send({**answer, NUMBER: number})

    def fill(self) -> bool:
        """Read what there is, or wait for it; return False when the other process is gone."""
        try:
            chunk = os.read(self._reader.fileno(), _CHUNK_BYTES)
        except ConnectionResetError:  # it has not read all
            return False
        self._buffer += chunk
        return bool(chunk)

    def take(self) -> dict[str, Any] | None:
        """Return the next line of those that `fill` has read, or None."""
        line, end, rest = self._buffer.partition(b"\n")
        if not end:
            return None
        self._buffer = rest
        message: dict[str, Any] = json.loads(line)
        return message

    def _is_readable(self, timeout_s: float) -> bool:
        with selectors.DefaultSelector() as files:  # select() takes no descriptor above 1,023
            files.register(self._reader, selectors.EVENT_READ)
            return bool(files.select(max(timeout_s, 0.0)))
