"""Compare the first bytes of a pipe with those that an earlier run of the load read.

Of an input without compression these are the bytes as they come. Of a compressed one they are the content: what makes
the same file twice may write another time into it, or other blocks.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from typing import Any, Final, Protocol

from kafkaprod.loader.opening.errors import LoadError

DIGEST_DIGITS: Final = 32
END_MARK: Final = "."  # behind a digest: the input ended there, within a row, and that row was taken for whole
AHEAD_BYTES: Final = 1 << 20


class Hash(Protocol):
    """A hash of `hashlib`."""

    def update(self, data: memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


class Prefix:
    """The bytes that were read so far, in order, and what the first of them must be.

    Args:
        name: The name of the input, for messages.
        data: What was read already.
        what: What is counted, for messages.
    """

    def __init__(self, name: str, data: bytes | bytearray = b"", *, what: str = "bytes") -> None:
        self._name = name
        self._what = what
        self._hash: Hash = hashlib.sha256(data)
        self._count = len(data)
        self._known = (0, "")  # a number of bytes, and the digest that they must have
        self._end: int | None = None  # where it must end

    def value(self, *, is_end: bool = False) -> tuple[int, str]:
        """Return how many bytes were read, and their digest; `is_end`: no more may come when they are compared."""
        return self._count, self._hash.hexdigest()[:DIGEST_DIGITS] + (END_MARK if is_end else "")

    @property
    def missing(self) -> int:
        """How many more bytes must be read until the first ones can be compared; 0: they are compared."""
        return self._known[0] - self._count if self._known[1] else 0

    def expect(self, count: int, digest: str) -> None:
        """Compare the first bytes, which are not all read yet, as soon as they are. Raises LoadError."""
        self._known = count, digest.removesuffix(END_MARK)
        self._expect_end(count, digest)
        self.take(memoryview(b""))

    def expect_read(self, data: memoryview, digest: str) -> None:
        """Compare the first bytes, which were read already, and perhaps more. Raises LoadError."""
        self._compare(hashlib.sha256(data), len(data), digest.removesuffix(END_MARK))
        self._expect_end(len(data), digest)
        self.take(memoryview(b""))

    def _expect_end(self, count: int, digest: str) -> None:
        if digest.endswith(END_MARK):
            self._end = count

    def take(self, data: memoryview) -> None:
        """Take the next bytes. Raises LoadError where they complete the first ones, which are others."""
        count, digest = self._known
        left = self.missing
        if digest and len(data) >= left:
            self._hash.update(data[:left])
            self._compare(self._hash, count, digest)
            self._known = 0, ""
            self._count += left
            data = data[left:]
        self._hash.update(data)
        self._count += len(data)
        if self._end is not None and self._count > self._end:
            raise LoadError(
                f"{self._name} continues behind the {self._end:,} {self._what} with which it ended within a row when "
                "an earlier run of the load read it: what came of that row was sent. Give the same bytes again, or "
                "start over with --restart"
            )

    def take_at(self, position: int, data: memoryview) -> None:
        """Take bytes that were perhaps read before. Raises as `take`."""
        if position + len(data) > self._count:
            self.take(data[self._count - position :])

    def _compare(self, content: Hash, count: int, digest: str) -> None:
        """Raise LoadError unless a number of bytes have a digest."""
        if content.hexdigest()[:DIGEST_DIGITS] != digest:
            raise LoadError(
                f"the first {count:,} {self._what} of {self._name} are not those that an earlier run of the load read: "
                "give the same bytes again, or start over with --restart"
            )

    def end(self) -> None:
        """Raise LoadError, since there are no more bytes: those that are missing have not come."""
        raise LoadError(
            f"{self._name} ends after {self._count:,} {self._what}, and an earlier run of the load read "
            f"{self._known[0]:,}: give the same bytes again, or start over with --restart"
        )


class Content:
    """The content of a compressed pipe, which is opened several times, each time from its first byte on.

    Args:
        name: The name of the pipe.
    """

    def __init__(self, name: str) -> None:
        self._prefix = Prefix(name, what="decompressed bytes")
        self._last: _Compared | None = None

    def open(self, stream: io.RawIOBase) -> io.RawIOBase:
        """Return a stream that reads another one, which gives the content."""
        self._last = _Compared(stream, self._prefix)
        return self._last

    def value(self, *, is_end: bool = False) -> tuple[int, str]:
        return self._prefix.value(is_end=is_end)

    def expect(self, count: int, digest: str) -> None:
        """See Prefix; nothing was read yet but for what recognizes the input."""
        self._prefix.expect(count, digest)

    def check(self) -> None:
        """Read what must be compared before another row is sent, in the last stream. Raises LoadError."""
        while missing := self._prefix.missing:
            if self._last is None or not self._last.read_ahead(min(missing, AHEAD_BYTES)):
                self._prefix.end()


class Archive:
    """The directory of a zip archive from a pipe, which has the checksum of every file in it.

    Args:
        name: The name of the pipe.
        files: Name, size and checksum of each.
    """

    def __init__(self, name: str, files: Sequence[tuple[str, int, int]]) -> None:
        self._name = name
        self._size = sum(size for _, size, _ in files)
        self._digest = hashlib.sha256(repr(list(files)).encode()).hexdigest()[:DIGEST_DIGITS]

    def value(self, *, is_end: bool = False) -> tuple[int, str]:
        """See Prefix: the whole archive was read, and cannot end within a row."""
        return self._size, self._digest

    def expect(self, count: int, digest: str) -> None:
        """Compare it at once. Raises LoadError."""
        if digest != self._digest:
            raise LoadError(
                f"the files in the archive {self._name} are not those that an earlier run of the load read: give the "
                "same archive again, or start over with --restart"
            )

    def check(self) -> None:
        """Do nothing: it is compared."""


class _Compared(io.RawIOBase):
    """Passes content on, and takes it into a prefix."""

    def __init__(self, stream: io.RawIOBase, prefix: Prefix) -> None:
        self._stream = stream
        self._prefix = prefix
        self._position = 0  # of the stream
        self._ahead = bytearray()  # was read, and not given on yet
        self._is_at_end = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, room: Any) -> int:
        """Read some bytes; see io.RawIOBase. Raises LoadError where they are not those of an earlier run."""
        into = memoryview(room).cast("B")
        if not self._ahead:
            return self._read(into)
        count = min(len(into), len(self._ahead))
        into[:count] = self._ahead[:count]
        del self._ahead[:count]
        return count

    def read_ahead(self, most: int) -> bool:
        """Read bytes that are given on later; return False at the end. Raises as `readinto`."""
        room = bytearray(most)
        count = 0 if self._is_at_end else self._read(memoryview(room))
        self._ahead += room[:count]
        return bool(count)

    def _read(self, into: memoryview) -> int:
        count = int(self._stream.readinto(into) or 0)  # a decompressed stream gives nothing at its end only
        self._is_at_end = not count and bool(into)
        self._prefix.take_at(self._position, into[:count])
        self._position += count
        return count
