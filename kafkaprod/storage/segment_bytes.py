"""The bytes of a .log file as recovery reads them: a window at a time, with reads that may come back short.

Files are not mapped: one that is cut while it is mapped, or whose disk fails, ends the process with SIGBUS. A read of
the same file returns fewer bytes or raises OSError. Memory: one window, whatever the file's size.
"""

from __future__ import annotations

import os
from typing import Protocol

from kafkaprod.storage.disk import LogFile

WINDOW_BYTES = 1 << 20


class SegmentBytes(Protocol):
    """Bytes that can be read from any position."""

    def __len__(self) -> int:
        """Size in bytes; a file that is cut later has fewer."""
        ...

    def at(self, position: int, length: int) -> memoryview:
        """Return the bytes from `position` on, as many as are at hand: `length` at least, unless the end comes first.

        Valid until the next call.
        """
        ...


class FileBytes:
    """A file that is read a window at a time."""

    def __init__(self, file: LogFile, window_bytes: int = WINDOW_BYTES) -> None:
        self._file = file
        self._window_bytes = window_bytes
        self._size = os.fstat(file.fd).st_size
        self._start = 0
        self._window = b""

    def __len__(self) -> int:
        return self._size

    def at(self, position: int, length: int) -> memoryview:
        """See `SegmentBytes.at`.

        Raises:
            OSError: The disk failed.
        """
        skipped = position - self._start
        if skipped < 0 or skipped + length > len(self._window):
            self._window = os.pread(self._file.fd, max(length, self._window_bytes), position)
            self._start, skipped = position, 0
        return memoryview(self._window)[skipped:]
