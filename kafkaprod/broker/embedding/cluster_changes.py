"""Wakes a thread of the test that waits for a change of the cluster: the controller sends a datagram to its socket."""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from typing import Self


class ChangeSignal:
    """A socket that one thread waits at, as a context manager.

    Attributes:
        path: Where the socket is. The command `view` takes it, for a datagram at the next change after the view.
    """

    def __init__(self, directory: str) -> None:
        """Make the socket in a directory whose path is short."""
        self.path = os.path.join(directory, f"wait-{uuid.uuid4().hex[:12]}")
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._sock.bind(self.path)
        except BaseException:
            self._sock.close()
            raise

    def wait(self, timeout_s: float) -> None:
        """Return at the next change, or when the time is over."""
        self._sock.settimeout(timeout_s)
        with contextlib.suppress(TimeoutError, BlockingIOError):
            self._sock.recv(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()
        with contextlib.suppress(FileNotFoundError):  # the cluster was closed meanwhile
            os.unlink(self.path)


def send_signal(path: str) -> None:
    """Wake the thread whose socket is at a path, if it waits still; do not block."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.sendto(b"\0", path)
