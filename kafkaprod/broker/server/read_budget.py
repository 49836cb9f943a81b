"""How much of unfinished requests the broker holds in memory: Kafka's `queued.max.request.bytes`. Pure; one thread.

A request is held from its first byte until it is handled. A limit for each connection is not enough: a thousand
strangers could each send most of a large frame. The rules, for a limit L and frames of F bytes at most:

    held by all < S = (L - F) / 2     everybody may read
    otherwise                         a connection may hold an equal share of S; beyond it only the head reads on
    held by all >= L                  none beyond the equal share reads

The head is the connection whose unfinished frame began first. It always gets its frame to an end, so the others come
to their turn, and small requests are read meanwhile. What is held stays below S + S + F = L.
"""

from __future__ import annotations

from collections.abc import Hashable

_LEAST_BYTES = 16 * 1024
"""What one read may always take: a TLS record, of which nothing may be left in the library."""


class ReadBudget:
    """See the module docstring.

    Args:
        limit_bytes: L above.
        max_frame_bytes: F above; a limit below twice of it is raised to that.
    """

    def __init__(self, limit_bytes: int, max_frame_bytes: int) -> None:
        self.limit_bytes = max(limit_bytes, 2 * max_frame_bytes)
        self.held_bytes = 0
        self._free_bytes = (self.limit_bytes - max_frame_bytes) // 2
        self._held: dict[Hashable, int] = {}
        self._unfinished: dict[Hashable, None] = {}  # in the order in which their frames began

    @property
    def is_scarce(self) -> bool:
        """Some connections may have to wait."""
        return self.held_bytes >= self._free_bytes

    def update(self, connection: Hashable, held_bytes: int, has_unfinished: bool) -> None:
        """Note what a connection holds now, and whether its last frame is unfinished."""
        before_bytes = self._held.get(connection, 0)
        if held_bytes != before_bytes:
            self.held_bytes += held_bytes - before_bytes
            if held_bytes:
                self._held[connection] = held_bytes
            else:
                del self._held[connection]
        if not has_unfinished:
            self._unfinished.pop(connection, None)
        elif connection not in self._unfinished:
            self._unfinished[connection] = None

    def room(self, connection: Hashable, wanted_bytes: int) -> int:
        """Return how many bytes the connection may read now, at most `wanted_bytes`; 0: it has to wait."""
        if not self.is_scarce:
            return wanted_bytes
        held_bytes = self._held.get(connection, 0)
        share_bytes = max(self._free_bytes // max(len(self._held), 1), _LEAST_BYTES)
        if held_bytes < share_bytes:
            return min(wanted_bytes, max(share_bytes - held_bytes, _LEAST_BYTES))
        is_head = next(iter(self._unfinished), None) == connection
        return wanted_bytes if is_head and self.held_bytes < self.limit_bytes else 0
