"""What a process has open, and whether it runs: on Linux and on macOS, which has no /proc."""

from __future__ import annotations

import os
from pathlib import Path


def open_descriptors() -> set[str]:
    """Return the numbers of this process's descriptors; one of them is that of the look itself."""
    return set(os.listdir("/dev/fd"))


def runs(pid: int) -> bool:
    """Return whether a process runs: one that ended and that nobody asked for does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat")
        return not Path("/proc/self/stat").exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
