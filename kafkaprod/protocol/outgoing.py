"""Bytes on their way to a socket: a queue of buffers that is consumed from the front, at any byte.

Buffers are referenced, never copied, and released as soon as their last byte was taken: the owner of the memory
counts on that. Positions are bytes since the connection began, so "fully sent" is one comparison.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class ByteChain(Protocol):
    """Many buffers in a row that are queued as one, such as the records of a request."""

    @property
    def nbytes(self) -> int:
        """Their length together."""
        ...

    def from_byte(self, start: int, limit: int) -> list[Buffer]:
        """The first `limit` buffers of what is left from byte `start` on; none is empty."""
        ...


class OutgoingBytes:
    """The queue of one connection.

    Attributes:
        queued_position: Position behind the last byte queued so far.
        sent_position: Position behind the last byte taken so far; equal to the above when the queue is empty.
    """

    def __init__(self) -> None:
        self.queued_position = 0
        self.sent_position = 0
        self._parts: deque[memoryview | ByteChain] = deque()
        self._taken = 0  # bytes of the first part, if that is a chain; a view is cut instead

    def __len__(self) -> int:
        return self.queued_position - self.sent_position

    def append(self, parts: Iterable[Buffer | ByteChain]) -> int:
        """Queue buffers and chains; return the position behind their last byte. Empty ones are dropped."""
        for part in parts:
            if isinstance(part, bytes | bytearray | memoryview):
                part = memoryview(part).cast("B")
            if part.nbytes:
                self._parts.append(part)
                self.queued_position += part.nbytes
        return self.queued_position

    def front(self, limit: int) -> list[Buffer]:
        """The first `limit` buffers, the first one from its first byte that was not taken. Valid until `advance`."""
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
            ValueError: More than is queued, or negative; nothing has changed.
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
        """Drop everything that was not taken, and release it. Positions stay."""
        while self._parts:
            self._drop_first()
        self.queued_position = self.sent_position

    def _drop_first(self) -> None:
        part = self._parts.popleft()
        self._taken = 0
        if isinstance(part, memoryview):
            part.release()
