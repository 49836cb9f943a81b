"""The controller's event queue: events in the order they came, and timers by key.

Pure state: one owner, no lock; a process with several threads puts a lock around it.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

E = TypeVar("E")


@dataclass(slots=True)
class QueueTimes:
    """How long events waited, in milliseconds, and how many there were."""

    event_count: int = 0
    queued_ms: int = 0
    longest_ms: int = 0


class EventQueue(Generic[E]):
    """See the module docstring."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, E]] = deque()
        self._timers: list[tuple[int, int, str, E]] = []
        self._current: dict[str, tuple[int, int, E]] = {}  # number, deadline and event by key
        self._timer_count = 0
        self.times = QueueTimes()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: E, now_ms: int) -> None:
        """Add an event behind the others."""
        self._events.append((now_ms, event))

    def at(self, deadline_ms: int, key: str, event: E) -> None:
        """Deliver an event at a time; a later call with the same key replaces it."""
        if key in self._current and self._current[key][1:] == (deadline_ms, event):
            return
        self._timer_count += 1
        self._current[key] = (self._timer_count, deadline_ms, event)
        heapq.heappush(self._timers, (deadline_ms, self._timer_count, key, event))

    def cancel(self, key: str) -> None:
        """Drop the timer of a key, if there is one."""
        self._current.pop(key, None)

    def take(self, now_ms: int) -> E | None:
        """Return the next event: due timers come first. None if nothing is due."""
        self._drop_replaced()
        if self._timers and self._timers[0][0] <= now_ms:
            deadline_ms, _, key, event = heapq.heappop(self._timers)
            del self._current[key]
            self._count(now_ms - deadline_ms)
            return event
        if not self._events:
            return None
        put_ms, event = self._events.popleft()
        self._count(now_ms - put_ms)
        return event

    def next_deadline_ms(self) -> int | None:
        """Return when the next timer is due, None if there is no timer."""
        self._drop_replaced()
        return self._timers[0][0] if self._timers else None

    def _drop_replaced(self) -> None:
        while self._timers and self._is_replaced(self._timers[0][2], self._timers[0][1]):
            heapq.heappop(self._timers)

    def _is_replaced(self, key: str, number: int) -> bool:
        return key not in self._current or self._current[key][0] != number

    def _count(self, waited_ms: int) -> None:
        self.times.event_count += 1
        self.times.queued_ms += waited_ms
        self.times.longest_ms = max(self.times.longest_ms, waited_ms)
