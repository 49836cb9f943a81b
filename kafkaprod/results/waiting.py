"""A thread's wait for something another thread does, safe against exceptions that signal handlers raise.

`threading.Event` and `Condition` are Python code around locks: Ctrl-C at the wrong instruction leaves such a lock held
forever, and whatever sets the event hangs. A bare lock has no such place, and its `acquire` answers signals at once.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Final

# A signal just before the system call that waits does not end it: its handler runs when the wait starts again.
LOOK_S: Final = 0.05


class Waiter:
    """One thread waits, any thread wakes it. A wake that comes first is not lost."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Make the current or next `wait` return True. Never blocks; may be called again."""
        try:  # contextlib.suppress() would be three calls
            self._lock.release()
        except RuntimeError:  # released before, and no thread has waited since
            return

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for `wake`, at most `timeout` seconds; return whether it came. Uses it up."""
        end_s = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left_s = max(end_s - time.monotonic(), 0.0)
            if self._lock.acquire(timeout=min(left_s, LOOK_S)):
                return True
            if left_s <= LOOK_S:
                return False
