"""Stdin as an input that is opened more than once: for the names and types of columns, then for the rows.

A file is sought in. Of a pipe the first KEPT_BYTES are kept for those who begin anew; the rest can be read once.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import sys
from functools import lru_cache
from typing import Final

from kafkaprod.loader.errors import LoadError

KEPT_BYTES: Final = 8 << 20
PIPE_BYTES: Final = 1 << 20


def open_stdin() -> io.RawIOBase:
    """Stdin from its first byte on; what is there is read without waiting for more. Raises LoadError, OSError."""
    descriptor = _descriptor()
    if not is_stdin_a_file():
        return _FromStart(_pipe(descriptor))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return io.FileIO(descriptor, closefd=False)


@lru_cache(maxsize=1)
def is_stdin_a_file() -> bool:
    """Whether all of it can be read again. Raises LoadError."""
    descriptor = _descriptor()
    try:
        return os.lseek(descriptor, 0, os.SEEK_CUR) == 0  # else somebody has read a part that is not ours
    except OSError:
        return False


def _descriptor() -> int:
    if sys.stdin is None:
        raise LoadError("stdin is closed")
    return sys.stdin.fileno()


@lru_cache(maxsize=1)
def _pipe(descriptor: int) -> _Pipe:
    with contextlib.suppress(OSError):  # no pipe, or not allowed: it works with less, too
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return _Pipe(io.FileIO(descriptor, closefd=False))


class _Pipe:
    """What was read of stdin by all who opened it."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self._kept = bytearray()
        self._end = 0  # of what was read

    def read_at(self, position: int, room: memoryview) -> int:
        """Bytes from a position on; how many, 0 at the end. Raises LoadError if they were read and not kept."""
        if position < len(self._kept):
            part = self._kept[position : position + len(room)]
            room[: len(part)] = part
            return len(part)
        if position != self._end:
            raise LoadError(f"byte {position} of stdin was read already, and a pipe gives nothing twice")
        count = self._raw.readinto(room) or 0
        if self._end == len(self._kept) < KEPT_BYTES:
            self._kept += room[:count]
        self._end += count
        return count


class _FromStart(io.RawIOBase):
    """The bytes of a pipe from the first on."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe
        self._position = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, room: memoryview) -> int:  # type: ignore[override]
        """See io.RawIOBase."""
        count = self._pipe.read_at(self._position, memoryview(room).cast("B"))
        self._position += count
        return count
