"""A thread's wait for something another thread does, safe against exceptions that signal handlers raise.

`threading.Event` and `Condition` are Python code around locks: Ctrl-C at the wrong instruction leaves such a lock held
for ever, and whoever sets the event hangs. A bare lock has no such place, and its `acquire` answers signals at once.
"""

from __future__ import annotations

import contextlib
import threading


class Waiter:
    """One thread waits, any thread wakes it. A wake that comes first is not lost."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Make the current or next `wait` return True. Never blocks; may be called again."""
        with contextlib.suppress(RuntimeError):  # released before, and nobody has waited since
            self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for `wake`, at most `timeout` seconds; return whether it came. Uses it up."""
        if timeout is None:
            return self._lock.acquire()
        return self._lock.acquire(timeout=min(max(timeout, 0.0), threading.TIMEOUT_MAX))
