"""Temporary directories of brokers and clusters: in memory where there is room, gone when their owner is.

An owner that is killed together with its brokers leaves its directory. The next one that makes a directory removes it:
each has a file that its owner has locked, and the lock ends with the owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile

_MEMORY = "/dev/shm"
_MEMORY_BYTES = 2 * 1024 * 1024 * 1024
_PREFIX = "kafkaprod-"
_OWNER = ".owner"
_held: dict[str, int] = {}
"""The locked file of each directory of this process."""
_last_sweep: list[int] = []
"""The process that has looked for directories that are left; one look each is enough."""


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
    """Make a named directory, for this user alone, if it is not there, and hold it.

    Raises:
        OSError: It cannot be made, or another user made one of this name.
    """
    if _last_sweep != [os.getpid()]:
        _last_sweep[:] = [os.getpid()]
        sweep({os.path.dirname(directory), tempfile.gettempdir(), _MEMORY})
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        if os.lstat(directory).st_uid != os.getuid():
            raise
    hold_temporary(directory)


def hold_temporary(directory: str) -> None:
    """Keep `sweep` from removing a directory for as long as this process and those that it forks run."""
    if directory in _held:
        return
    path = os.path.join(directory, _OWNER)
    file = os.open(f"{path}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.rename(f"{path}.new", path)  # it is locked from the moment that `sweep` can see it
    except BaseException:
        os.close(file)
        raise
    _held[directory] = file


def sweep(places: set[str]) -> None:
    """Remove what killed owners have left: this user's directories whose file no process has locked.

    A directory without the file is not touched: an earlier version, which made none, may use it.
    """
    for place in places:
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if entry.name.startswith(_PREFIX):
                    with contextlib.suppress(OSError):
                        _remove_if_left(entry)


def _remove_if_left(entry: os.DirEntry[str]) -> None:
    if not entry.is_dir(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_uid != os.getuid():
        return
    file = os.open(os.path.join(entry.path, _OWNER), os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry.path, ignore_errors=True)
    finally:
        os.close(file)


def remove_of_owner(directory: str, owner_pid: int) -> None:
    """Remove a temporary directory; a forked child, which runs the same finalizers, must not."""
    if os.getpid() == owner_pid:
        shutil.rmtree(directory, ignore_errors=True)
        file = _held.pop(directory, None)
        if file is not None:
            os.close(file)


def _root() -> str | None:
    try:
        status = os.statvfs(_MEMORY)
    except OSError:
        return None
    is_large = status.f_bavail * status.f_frsize >= _MEMORY_BYTES
    return _MEMORY if is_large and os.access(_MEMORY, os.W_OK) and "TMPDIR" not in os.environ else None
