"""Bytes on their way to a socket: a queue of buffers that is consumed from the front, at any byte.

Buffers are referenced, never copied, and released as soon as their last byte was taken: the owner of the memory
counts on that. Positions are bytes since the connection began, so "fully sent" is one comparison.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

Buffer = bytes | bytearray | memoryview


class OutgoingBytes:
    """The queue of one connection.

    Attributes:
        queued_position: Position behind the last byte queued so far.
        sent_position: Position behind the last byte taken so far; equal to the above when the queue is empty.
    """

    def __init__(self) -> None:
        self.queued_position = 0
        self.sent_position = 0
        self._parts: deque[Buffer] = deque()

    def __len__(self) -> int:
        return self.queued_position - self.sent_position

    def append(self, buffers: Iterable[Buffer]) -> int:
        """Queue buffers; return the position behind their last byte. Empty ones are dropped.

        What is neither a memoryview nor a bytearray must be immutable and have its length in bytes.
        """
        for buffer in buffers:
            if isinstance(buffer, memoryview | bytearray):
                buffer = memoryview(buffer).cast("B")  # ours to release; pins a bytearray's size
            size = len(buffer)
            if size:
                self._parts.append(buffer)
                self.queued_position += size
        return self.queued_position

    def front(self, limit: int) -> list[Buffer]:
        """The first `limit` buffers, the first one from its first byte that was not taken. Valid until `advance`."""
        return list(islice(self._parts, limit))

    def advance(self, nbytes: int) -> None:
        """Drop `nbytes` from the front.

        Raises:
            ValueError: More than is queued, or negative; nothing has changed.
        """
        if not 0 <= nbytes <= len(self):
            raise ValueError(f"{nbytes} bytes reported as sent, but {len(self)} are queued")
        self.sent_position += nbytes
        parts = self._parts
        while nbytes:
            size = len(parts[0])
            if nbytes < size:
                parts[0] = _rest(parts[0], nbytes)
                return
            nbytes -= size
            _release(parts.popleft())

    def clear(self) -> None:
        """Drop everything that was not taken, and release it. Positions stay."""
        while self._parts:
            _release(self._parts.popleft())
        self.queued_position = self.sent_position


def _rest(part: Buffer, start: int) -> memoryview:
    with memoryview(part) as view:
        rest = view[start:]
    _release(part)
    return rest


def _release(part: Buffer) -> None:
    if isinstance(part, memoryview):  # one of ours
        part.release()
