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
        self._views: deque[memoryview] = deque()

    def __len__(self) -> int:
        return self.queued_position - self.sent_position

    def append(self, buffers: Iterable[Buffer]) -> int:
        """Queue buffers; return the position behind their last byte. Empty ones are dropped."""
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            if view.nbytes:
                self._views.append(view)
                self.queued_position += view.nbytes
        return self.queued_position

    def front(self, limit: int) -> list[memoryview]:
        """The first `limit` buffers, the first one from its first byte that was not taken. Valid until `advance`."""
        return list(islice(self._views, limit))

    def advance(self, nbytes: int) -> None:
        """Drop `nbytes` from the front.

        Raises:
            ValueError: More than is queued, or negative; nothing has changed.
        """
        if not 0 <= nbytes <= len(self):
            raise ValueError(f"{nbytes} bytes reported as sent, but {len(self)} are queued")
        self.sent_position += nbytes
        while nbytes:
            view = self._views[0]
            if nbytes < view.nbytes:
                self._views[0] = view[nbytes:]
                view.release()
                return
            nbytes -= view.nbytes
            self._views.popleft().release()

    def clear(self) -> None:
        """Drop everything that was not taken, and release it. Positions stay."""
        while self._views:
            self._views.popleft().release()
        self.queued_position = self.sent_position
