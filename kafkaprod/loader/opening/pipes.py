"""Open inputs that can be read only once: stdin, FIFOs, `/dev/fd/N`, process substitution.

A load opens an input several times: for its first bytes, for the names and types of its columns, then for its rows. A
pipe is therefore opened once and wrapped in a `Pipe`, which keeps the first KEPT_BYTES for those who start again.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import select
import shutil
import stat
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from typing import IO, Any, Final

from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.opening.prefix import Archive, Content, Prefix

STDIN: Final = "-"
KEPT_BYTES: Final = 8 << 20
PIPE_BYTES: Final = 1 << 20
_NAMES_OF_STDIN: Final = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def input_name(name: str) -> str:
    """Return `-` for all names of stdin, other names unchanged."""
    return STDIN if name in _NAMES_OF_STDIN else name


def is_pipe_name(name: str) -> bool:
    """Return whether a name is stdin, or a path that is neither a file nor a directory. Opens nothing."""
    if name == STDIN:
        return True
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISBLK(mode))


def pipe_identity(name: str) -> tuple[int, int]:
    """Return what is the same for two names of one pipe. Raises LoadError, OSError."""
    status = os.fstat(_descriptor_of_stdin()) if name == STDIN else os.stat(name)
    return status.st_dev, status.st_ino


def open_pipe(name: str) -> Pipe | None:
    """Open an input that can be read only once; None if it is stdin and stdin is a file. Raises LoadError, OSError."""
    if name != STDIN:
        return Pipe(os.open(name, os.O_RDONLY | os.O_CLOEXEC), name)
    descriptor = _descriptor_of_stdin()
    with contextlib.suppress(OSError):  # a file can be read again unless its first part is already consumed
        if os.lseek(descriptor, 0, os.SEEK_CUR) == 0 and stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
    return Pipe(os.dup(descriptor), "stdin")


def open_stdin_file() -> io.RawIOBase:
    """Open stdin, which is a file, from its first byte on. Raises LoadError, OSError."""
    descriptor = _descriptor_of_stdin()
    os.lseek(descriptor, 0, os.SEEK_SET)
    return io.FileIO(descriptor, closefd=False)


def read_some(file: Any, most: int) -> bytes:
    """Read what has come of a file without a buffer, and wait where nothing has; none at the end, and nowhere else."""
    while (data := file.read(most)) is None:
        _wait(file)
    return bytes(data)


def _wait(file: Any) -> None:
    """Wait until there is something to read, or the end.

    O_NONBLOCK belongs to the open file: another process that has it may have set it, and needs it to stay.
    """
    poll = select.poll()
    poll.register(file.fileno(), select.POLLIN)
    poll.poll()


def _descriptor_of_stdin() -> int:
    if sys.stdin is None:
        raise LoadError("stdin is closed")
    return sys.stdin.fileno()


class Pipe:
    """An open pipe and the first bytes that were read from it; closed when it is no longer referenced.

    Args:
        descriptor: The descriptor of the pipe.
        name: The name in messages.
    """

    def __init__(self, descriptor: int, name: str) -> None:
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # not a pipe, or not allowed: the default size works, too
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._raw = io.FileIO(descriptor, closefd=False)
        weakref.finalize(self, os.close, descriptor)
        self._name = name
        self._kept = bytearray()
        self._end = 0  # of what was read
        self._spooled: IO[bytes] | None = None
        self._take: Callable[[memoryview], object] | None = None
        self._at_end: Callable[[int], object] | None = None
        self._ahead = bytearray()  # was read, and not given on yet
        self._prefix: Prefix | None = None  # of all that was read
        self._content: Content | Archive | None = None  # the same of what is compressed

    def open(self) -> io.RawIOBase:
        """Return a stream that begins with the first byte; a read does not wait for more than is there."""
        return _FromStart(self)

    def head(self, least: int, most: int) -> bytes:
        """Return the first bytes without consuming them; waits for `least` of them, or the end."""
        room = bytearray(most)
        filled = 0
        while filled < least and (count := self.read_at(filled, memoryview(room)[filled:])):
            filled += count
        return bytes(room[:filled])

    def spool(self) -> IO[bytes]:
        """Return the whole content as a temporary file, for formats that are read from their end."""
        if self._spooled is None:
            self._spooled = tempfile.TemporaryFile()  # noqa: SIM115
            weakref.finalize(self, self._spooled.close)
            shutil.copyfileobj(io.BufferedReader(self.open()), self._spooled, 1 << 20)
            self._spooled.flush()
        return self._spooled

    def watch(self, take: Callable[[memoryview], object], at_end: Callable[[int], object]) -> None:
        """Have all bytes given to `take` once, in order, also those read before; then their number to `at_end`.

        Raises:
            LoadError: Bytes that were read before are not kept.
            Whatever `at_end` raises: at once if the end was read before, else to who reads it.
        """
        self._take, self._at_end = take, at_end
        if self._spooled is not None:
            self._spooled.seek(0)
            while data := self._spooled.read(PIPE_BYTES):
                take(memoryview(data))
            at_end(self._end)
        elif not self._has_all:
            raise LoadError(f"{self._name} was already read, and a pipe cannot be read twice")
        else:
            take(memoryview(bytes(self._kept)))

    def keep_digest(self) -> None:
        """Have a digest of all bytes, those that were read before too, unless they are not kept."""
        if self._prefix is None and self._has_all:
            self._prefix = Prefix(self._name, self._kept)

    def keep_digest_of_content(self, files: Sequence[tuple[str, int, int]] | None = None) -> None:
        """Have a digest of what is compressed, in place of the bytes themselves.

        Args:
            files: Name, size and checksum of each file of an archive; None: it is no archive.
        """
        if self._content is None:
            self._content = Content(self._name) if files is None else Archive(self._name, files)

    def decompressed(self, stream: io.RawIOBase) -> io.RawIOBase:
        """Return what reads a stream of the decompressed content, so that it is compared where that is wanted."""
        return self._content.open(stream) if isinstance(self._content, Content) else stream

    def prefix(self, *, is_end: bool = False) -> tuple[int, str]:
        """Return how many bytes were read so far and their digest; (0, ""): not known.

        Args:
            is_end: It has ended within a row, and must end there when they are compared.
        """
        prefix = self._content or self._prefix
        return (0, "") if prefix is None else prefix.value(is_end=is_end)

    def expect_prefix(self, count: int, digest: str) -> None:
        """Compare the first bytes with what an earlier run read, as soon as they are read.

        Args:
            count: How many.
            digest: What `prefix` returned then.

        Raises:
            LoadError: They are others; also raised to who reads them.
        """
        if not digest:
            return
        if self._content is not None:
            self._content.expect(count, digest)
        elif self._prefix is not None and count <= len(self._kept):
            self._prefix.expect_read(memoryview(self._kept)[:count], digest)
        elif self._prefix is not None and self._has_all:
            self._prefix.expect(count, digest)

    def check_prefix(self) -> None:
        """Read the bytes that an earlier run read, to compare them before another row is sent. Raises LoadError."""
        if self._content is not None:
            self._content.check()
        while self._prefix is not None and (missing := self._prefix.missing):
            room = bytearray(min(missing, PIPE_BYTES))
            count = self._read(memoryview(room))
            if not count:
                self._prefix.end()
            self._ahead += room[:count]

    @property
    def _has_all(self) -> bool:
        return self._end == len(self._kept) and not self._ahead

    def read_at(self, position: int, room: memoryview) -> int:
        """Read bytes from a position on into `room`.

        Returns:
            How many; 0 at the end.

        Raises:
            LoadError: They were read before and are not kept.
        """
        if position < len(self._kept):
            part = self._kept[position : position + len(room)]
            room[: len(part)] = part
            return len(part)
        if position != self._end:
            raise LoadError(f"byte {position} of {self._name} was already read, and a pipe cannot be read twice")
        if self._ahead:
            count = min(len(room), len(self._ahead))
            room[:count] = self._ahead[:count]
            del self._ahead[:count]
        else:
            count = self._read(room)
        if self._end == len(self._kept) < KEPT_BYTES:
            self._kept += room[:count]
        self._end += count
        return count

    def _read(self, room: memoryview) -> int:
        """Read from the descriptor; where it is non-blocking, wait until there is something, or the end."""
        while (count := self._raw.readinto(room)) is None:
            _wait(self._raw)
        if self._prefix is not None:
            self._prefix.take(room[:count])
        if self._take is not None and count:
            self._take(room[:count])
        if self._at_end is not None and not count and len(room):
            self._at_end(self._end + len(self._ahead))
        return count


class _FromStart(io.RawIOBase):
    """A pipe's bytes from the first on."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, room: memoryview) -> int:  # type: ignore[override]
        """Read what is there; see io.RawIOBase."""
        count = self._pipe.read_at(self._position, memoryview(room).cast("B"))
        self._position += count
        return count
