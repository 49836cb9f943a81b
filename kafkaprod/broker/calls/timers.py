"""Things to do at a time, for the event loop. One thread."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Timers:
    """A heap of calls by deadline (monotonic ms)."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._tie_breaker = count()

    def call_at(self, deadline_ms: int, call: Callable[[], None]) -> None:
        """Have `call` called by the first `run` at or after `deadline_ms`."""
        heapq.heappush(self._heap, (deadline_ms, next(self._tie_breaker), call))

    def next_deadline_ms(self) -> int | None:
        """When `run` must be called next, None if there is nothing to do."""
        return self._heap[0][0] if self._heap else None

    def run(self, now_ms: int) -> None:
        """Do what is due; what that adds for now or earlier waits for the next `run`."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            due.append(heapq.heappop(self._heap)[2])
        for call in due:
            call()
