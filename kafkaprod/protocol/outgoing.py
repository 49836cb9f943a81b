"""The queue of bytes for a socket: buffers that are consumed from the front, at any byte.

Buffers are referenced, never copied, and released as soon as their last byte was taken; the owner of the memory relies
on that. Positions are bytes since the connection began, so "fully sent" is one comparison.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from kafkaprod.protocol.primitives import Buffer


class ByteChain(Protocol):
    """Consecutive buffers that are queued as one, such as the records of a request."""

    @property
    def nbytes(self) -> int:
        """The length of all buffers."""
        ...

    def from_byte(self, start: int, limit: int) -> list[Buffer]:
        """Return at most `limit` buffers from byte `start` on, none empty."""
        ...


class OutgoingBytes:
    """The queue of one connection.

    Attributes:
        queued_position: Position after the last queued byte.
        sent_position: Position after the last byte taken; equal to the above when the queue is empty.
    """

    def __init__(self) -> None:
        self.queued_position = 0
        self.sent_position = 0
        self._parts: deque[memoryview | ByteChain] = deque()
        self._taken = 0  # bytes of the first part, if that is a chain; a view is cut instead

    def __len__(self) -> int:
        return self.queued_position - self.sent_position

    def append(self, parts: Iterable[Buffer | ByteChain]) -> int:
        """Queue buffers and chains; return the position after their last byte. Empty ones are dropped."""
        for part in parts:
            if isinstance(part, bytes | bytearray | memoryview):
                part = memoryview(part).cast("B")
            if part.nbytes:
                self._parts.append(part)
                self.queued_position += part.nbytes
        return self.queued_position

    def front(self, limit: int) -> list[Buffer]:
        """Return at most `limit` buffers, beginning with the first byte that was not taken; valid until `advance`."""
        buffers: list[Buffer] = []
        start = self._taken
        for part in self._parts:
            if isinstance(part, memoryview):
                buffers.append(part)
            else:
                buffers += part.from_byte(start, limit - len(buffers))
            start = 0
            if len(buffers) >= limit:
                break
        return buffers

    def advance(self, nbytes: int) -> None:
        """Drop `nbytes` from the front.

        Raises:
            ValueError: `nbytes` is more than is queued, or negative; nothing has changed.
        """
        if not 0 <= nbytes <= len(self):
            raise ValueError(f"{nbytes} bytes reported as sent, but {len(self)} are queued")
        self.sent_position += nbytes
        while nbytes:
            part = self._parts[0]
            left = part.nbytes - self._taken
            if nbytes < left:
                if isinstance(part, memoryview):
                    self._parts[0] = part[nbytes:]
                    part.release()
                else:
                    self._taken += nbytes
                return
            nbytes -= left
            self._drop_first()

    def clear(self) -> None:
        """Drop and release everything that was not taken. Positions do not change."""
        while self._parts:
            self._drop_first()
        self.queued_position = self.sent_position

    def _drop_first(self) -> None:
        part = self._parts.popleft()
        self._taken = 0
        if isinstance(part, memoryview):
            part.release()
