"""The deadlines of many groups: which of them have something to do at a time. One thread, no clock."""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class GroupTimers:
    """A heap of deadlines with one entry for each group that counts; others there are out of date."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._scheduled: dict[str, int] = {}

    def schedule(self, group_id: str, deadline_ms: int | None) -> None:
        """Have `due` give the group at its deadline, unless an earlier entry does so before."""
        if deadline_ms is None:
            return
        scheduled_ms = self._scheduled.get(group_id)
        if scheduled_ms is None or deadline_ms < scheduled_ms:
            self._scheduled[group_id] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, group_id))

    def forget(self, group_id: str) -> None:
        """Drop the group's deadline."""
        self._scheduled.pop(group_id, None)

    def next_deadline_ms(self) -> int | None:
        """When to call `due` next; may be too early, never too late."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[str]:
        """Take out the groups whose time has come; schedule each one again after its work."""
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, group_id = heapq.heappop(self._heap)
            if self._scheduled.get(group_id) == deadline_ms:
                del self._scheduled[group_id]
                yield group_id
