"""How long to wait for another process, where many processes share few processors.

A process that is ready to run, but has no processor, cannot answer. The time that it waits for one does not count, so
that only a process that has time and uses it for nothing, or for something without an end, is given up.
"""

from __future__ import annotations

import contextlib
import os
import time

_MOST_TIMES = 10  # a timeout, however long the process had to wait


class Patience:
    """What is left of a timeout.

    Args:
        timeout_s: What the process may take, in seconds.
        pid: The process; None: all time counts, as it does where the system does not say how long processes wait.
    """

    def __init__(self, timeout_s: float, pid: int | None) -> None:
        self._pid = pid
        self._timeout_s = timeout_s
        self._started_s = time.monotonic()
        self._started_starved_s = self._starved_s()

    def left_s(self) -> float:
        """Return how much is left now, in seconds. It may be more after a wait of that length; at 0 it is over."""
        taken_s = time.monotonic() - self._started_s
        starved_s = min(self._starved_s() - self._started_starved_s, taken_s)
        left_s = min(self._timeout_s + starved_s, self._timeout_s * _MOST_TIMES) - taken_s
        return max(left_s, 0.0)

    def _starved_s(self) -> float:
        return 0.0 if self._pid is None else starved_s(self._pid)


def starved_s(pid: int) -> float:
    """Return how long a process has waited for a processor, in seconds: its thread that has waited longest.

    Returns:
        0 where the system does not say it, or the process is gone.
    """
    longest_ns = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:  # ns on a processor, ns ready to run, slices
                longest_ns = max(longest_ns, int(file.read().split()[1]))
    return longest_ns / 1e9
