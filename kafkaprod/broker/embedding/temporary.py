"""Temporary directories of brokers and clusters: in memory where there is room, gone when their owner is."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile

_MEMORY = "/dev/shm"
_MEMORY_BYTES = 2 * 1024 * 1024 * 1024


def name_temporary(prefix: str, most_bytes: int | None = None) -> str:
    """Name a directory in memory (/dev/shm) where that has 2 GiB free and TMPDIR is not set, else where others are.

    It is not made yet: an owner that is killed before it starts anything leaves nothing.

    Args:
        prefix: Its name begins so.
        most_bytes: A longer path is one in /tmp instead. None: it may be as long as TMPDIR makes it.
    """
    name = prefix + secrets.token_hex(6)
    path = os.path.join(_root() or tempfile.gettempdir(), name)
    is_long = most_bytes is not None and len(os.fsencode(path)) > most_bytes
    return os.path.join("/tmp", name) if is_long else path


def make_temporary(directory: str) -> None:
    """Make a named directory, for this user alone, if it is not there.

    Raises:
        OSError: It cannot be made, or another user made one of this name.
    """
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        if os.lstat(directory).st_uid != os.getuid():
            raise


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
