"""Temporary directories of brokers and clusters: in memory where there is room, gone when their owner is."""

from __future__ import annotations

import os
import shutil
import tempfile

_MEMORY = "/dev/shm"
_MEMORY_BYTES = 2 * 1024 * 1024 * 1024


def make_temporary(prefix: str) -> str:
    """Make a directory in memory (/dev/shm) where that has 2 GiB free and TMPDIR is not set, else where others are."""
    return tempfile.mkdtemp(prefix=prefix, dir=_root())


def remove_of_owner(directory: str, owner_pid: int) -> None:
    """Remove a temporary directory; a forked child, which runs the same finalizers, must not."""
    if os.getpid() == owner_pid:
        shutil.rmtree(directory, ignore_errors=True)


def _root() -> str | None:
    try:
        status = os.statvfs(_MEMORY)
    except OSError:
        return None
    is_large = status.f_bavail * status.f_frsize >= _MEMORY_BYTES
    return _MEMORY if is_large and os.access(_MEMORY, os.W_OK) and "TMPDIR" not in os.environ else None
