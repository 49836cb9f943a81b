"""How much of unfinished requests the broker holds in memory: Kafka's `queued.max.request.bytes`. Pure; one thread.

A request is held from its first byte until it is handled. A limit for each connection is not enough: a thousand
strangers could each send most of a large frame. The rules, for a limit L and frames of F bytes at most:

    held by all < S = (L - F) / 2     every connection may read
    otherwise                         each connection may hold 1/16 of what the others, without the head, leave free of
                                      2 * S, and always 16 KiB; above that only the head continues to read
    held by all >= L                  the head waits, too, if finished requests are held: they will be handled

The head is the connection whose unfinished frame began first. It always gets its frame to an end, so the others get
their turn, and small requests are read meanwhile. A fixed share per connection is no bound: connections can arrive
one after another without end. What is held stays below 2 * S + F = L, but for one read and 16 KiB of each connection.
"""

from __future__ import annotations

from collections.abc import Hashable

_LEAST_BYTES = 16 * 1024
"""What one read may always take: a TLS record, of which nothing may be left in the library."""
_SHARES = 16


class ReadBudget:
    """See the module docstring.

    Args:
        limit_bytes: L above.
        max_frame_bytes: F above; a limit below twice of it is raised to that.
    """

    def __init__(self, limit_bytes: int, max_frame_bytes: int) -> None:
        self.limit_bytes = max(limit_bytes, 2 * max_frame_bytes)
        self.held_bytes = 0
        self._unfinished_bytes = 0
        self._free_bytes = (self.limit_bytes - max_frame_bytes) // 2
        self._held: dict[Hashable, int] = {}
        self._unfinished: dict[Hashable, int] = {}  # in the order in which their frames began

    @property
    def is_scarce(self) -> bool:
        """Some connections may have to wait."""
        return self.held_bytes >= self._free_bytes

    def update(self, connection: Hashable, held_bytes: int, unfinished_bytes: int) -> None:
        """Note what a connection holds now, and how much of it belongs to a frame that is not finished."""
        before_bytes = self._held.get(connection, 0)
        if held_bytes != before_bytes:
            self.held_bytes += held_bytes - before_bytes
            if held_bytes:
                self._held[connection] = held_bytes
            else:
                del self._held[connection]
        before_bytes = self._unfinished.get(connection, 0)
        if unfinished_bytes != before_bytes:
            self._unfinished_bytes += unfinished_bytes - before_bytes
            if unfinished_bytes:
                self._unfinished[connection] = unfinished_bytes  # where it was in the order
            else:
                del self._unfinished[connection]

    def room(self, connection: Hashable, wanted_bytes: int) -> int:
        """Return how many bytes the connection may read now, at most `wanted_bytes`; 0: it has to wait."""
        if not self.is_scarce:
            return wanted_bytes
        held_bytes = self._held.get(connection, 0)
        head = next(iter(self._unfinished), None)
        if connection == head:
            has_finished = self.held_bytes > self._unfinished_bytes
            return 0 if has_finished and self.held_bytes >= self.limit_bytes else wanted_bytes
        left_bytes = 2 * self._free_bytes - self.held_bytes + self._held.get(head, 0)
        share_bytes = max(left_bytes // _SHARES, _LEAST_BYTES)
        return min(wanted_bytes, max(share_bytes - held_bytes, _LEAST_BYTES)) if held_bytes < share_bytes else 0
