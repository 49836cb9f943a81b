"""Read an object as a file: who reads on gets the next ranges ahead, who jumps gets what it wants."""

from __future__ import annotations

import io
import os
import queue
from collections import deque
from typing import Any, Final

from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.opening.remote.objects import Closing, RemoteObject
from kafkaprod.threads import LOOK_S, make_thread

FIRST_BYTES: Final = 64 << 10  # of a range after a jump; also what is kept of the end, where Parquet's footer is
MOST_BYTES: Final = 8 << 20  # of a range
AHEAD: Final = 2  # ranges that are read before they are due
_GROWTH: Final = 4
_LEAST_RUN: Final = 2  # ranges one behind the other, after which more is read than the reader wants


class _Part:
    """A range that is being read on another thread."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self._outcome: queue.SimpleQueue[bytes | bytearray | BaseException] = queue.SimpleQueue()

    def read(self, remote: RemoteObject, closing: Closing) -> None:
        try:
            self._outcome.put(remote.read_range(self.start, self.end, closing))
        except BaseException as error:
            self._outcome.put(error)

    def take(self) -> bytes | bytearray:
        """Wait for the bytes. Raises what reading them raised."""
        while True:
            try:
                outcome = self._outcome.get(timeout=LOOK_S)
            except queue.Empty:
                continue  # and look for signals
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome


class RemoteFile(io.RawIOBase):
    """Reads an object. It has room for `AHEAD + 1` ranges.

    Args:
        remote: The object.
    """

    def __init__(self, remote: RemoteObject) -> None:
        self._remote = remote
        self._position = 0
        self._start = 0
        self._data: bytes | bytearray = b""  # from `_start` on
        self._tail: bytes | bytearray = b""
        self._next_bytes = FIRST_BYTES
        self._run = 0
        self._ahead: deque[_Part] = deque()
        self._jobs: queue.SimpleQueue[_Part | None] | None = None
        self._closing = Closing()
        self._is_checked = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._remote.size}[whence]
        if base + offset < 0:
            raise ValueError(f"byte {base + offset} is before the beginning")
        self._position = base + offset
        return self._position

    def readinto(self, room: Any) -> int:
        """Read some bytes; see io.RawIOBase.

        Returns:
            How many; 0 where as many as the object has were read, and nowhere else.

        Raises:
            LoadError: The object is another one, or cannot be read.
        """
        into = memoryview(room).cast("B")
        data = self._next(len(into))
        into[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most that many bytes; all that are left without a size. Raises as `readinto`."""
        if size is None or size < 0:
            return self.readall()
        return bytes(self._next(size))

    def check_unchanged(self) -> None:
        """Refuse an object that may be another one than was read. Raises LoadError."""
        if not self._is_checked:
            self._remote.check_end()
            self._is_checked = True

    def close(self) -> None:
        """Read nothing more ahead."""
        if not self.closed:
            self._closing.end()
            for _ in range(AHEAD if self._jobs is not None else 0):
                self._jobs.put(None)  # type: ignore[union-attr]
            self._ahead.clear()
            self._data = self._tail = b""
        super().close()

    def _next(self, wanted: int) -> memoryview:
        """Return bytes from the position on, and go behind them; none at the end only."""
        if self.closed:
            raise ValueError("the file is closed")
        left = self._remote.size - self._position
        if left <= 0 or not wanted:
            return memoryview(b"")
        if not self._start <= self._position < self._start + len(self._data):
            if self._tail and left <= len(self._tail):
                self._start, self._data = self._remote.size - len(self._tail), self._tail
            else:
                self._fetch(min(wanted, left), left)
        at = self._position - self._start
        data = memoryview(self._data)[at : at + wanted]
        if not data:
            raise LoadError(f"{self._remote.name}: byte {self._position:,} is missing")
        self._position += len(data)
        return data

    def _fetch(self, wanted: int, left: int) -> None:
        """Have the bytes at the position, and have those behind them read."""
        position = self._position
        is_next = position == self._start + len(self._data) and bool(position)
        if self._ahead and self._ahead[0].start == position:
            part = self._ahead.popleft()
            self._data = b""  # makes room
            self._data, self._start = part.take(), position
        else:
            self._ahead.clear()
            if not is_next:
                self._next_bytes, self._run = FIRST_BYTES, 0
            if left <= FIRST_BYTES and not is_next:  # a jump to the end: other parts of it are wanted next
                position = max(self._remote.size - FIRST_BYTES, 0)
                self._tail = self._read(position, self._remote.size)
                self._data, self._start = self._tail, position
                return
            end = min(position + max(self._step(), min(wanted, MOST_BYTES)), self._remote.size)
            if wanted > MOST_BYTES:
                self._ask_ahead(end, position + wanted)
            self._data = b""
            self._data, self._start = self._read(position, end), position
        self._run += 1
        behind = self._start + len(self._data)
        self._ask_ahead(behind, self._remote.size if self._run >= _LEAST_RUN else min(position + wanted, behind + left))

    def _step(self) -> int:
        step = self._next_bytes
        self._next_bytes = min(step * _GROWTH, MOST_BYTES)
        return step

    def _read(self, start: int, end: int) -> bytes | bytearray:
        return self._remote.read_range(start, end, self._closing)

    def _ask_ahead(self, start: int, end: int) -> None:
        """Have ranges from `start` to `end` read on other threads, as many as there is room for."""
        start = self._ahead[-1].end if self._ahead else start
        while len(self._ahead) < AHEAD and start < min(end, self._remote.size) and not self._remote.is_near:
            part = _Part(start, min(start + self._step(), self._remote.size))
            if self._jobs is None:
                self._jobs = queue.SimpleQueue()
                for number in range(AHEAD):
                    make_thread(_work, f"kafkaprod-range-{number}", self._jobs, self._remote, self._closing).start()
            self._ahead.append(part)
            self._jobs.put(part)
            start = part.end


def _work(jobs: queue.SimpleQueue[_Part | None], remote: RemoteObject, closing: Closing) -> None:
    """Read ranges until there are none."""
    while (part := jobs.get()) is not None:
        if not closing.is_set:
            part.read(remote, closing)
