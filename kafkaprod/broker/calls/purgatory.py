"""Requests that wait until partitions have moved or their time is over: long-poll fetches.

The event loop owns it; only `notify` may be called from other threads. An operation is watched on every partition it
waits for, tried again at each notification of one of them, and forgotten at once when it completes. To lose no
notification it is tried once more after it was put on the watch lists. Source: Kafka, DelayedOperationPurgatory.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from kafkaprod.errors import IllegalStateError
from kafkaprod.structs import TopicPartition

TryComplete = Callable[[bool], bool]
"""Called with True when the time is over, and must then complete; returns whether it completed."""
NoteMoved = Callable[[Iterable[TopicPartition]], None]
"""Called before a try with the partitions that have moved since the one before."""


@dataclass(slots=True, eq=False)
class DelayedOperation:
    """One waiting request."""

    try_complete: TryComplete
    keys: tuple[TopicPartition, ...]
    note_moved: NoteMoved | None = None
    is_done: bool = field(default=False)


class Purgatory:
    """See the module docstring.

    Args:
        wakeup: Makes the event loop call `run` soon; thread-safe.

    Attributes:
        on_moved: Called by `run` with all partitions that have moved, watched or not; None where nothing follows them.
    """

    def __init__(self, wakeup: Callable[[], None]) -> None:
        self.on_moved: Callable[[Iterable[TopicPartition]], None] | None = None
        self._wakeup = wakeup
        self._watched: dict[TopicPartition, dict[DelayedOperation, None]] = {}  # in the order they came
        self._deadlines: list[tuple[int, int, DelayedOperation]] = []  # heap: deadline, tie-breaker, operation
        self._done_in_heap = 0
        self._tie_breaker = count()
        self._moved: deque[TopicPartition] = deque()  # the one thing other threads touch

    def __len__(self) -> int:
        """How many operations wait."""
        return len(self._deadlines) - self._done_in_heap

    def watch(
        self,
        keys: Iterable[TopicPartition],
        deadline_ms: int,
        try_complete: TryComplete,
        note_moved: NoteMoved | None = None,
    ) -> DelayedOperation:
        """Let an operation wait until `try_complete` is true, at the latest until `deadline_ms`.

        Args:
            keys: What it waits for.
            deadline_ms: When it is tried for the last time.
            try_complete: Tries it; the first time before this returns.
            note_moved: Informs an operation that looks only at what has moved; called with all keys before the first
                try.
        """
        operation = DelayedOperation(try_complete, tuple(keys), note_moved)
        for key in operation.keys:
            self._watched.setdefault(key, {})[operation] = None
        heapq.heappush(self._deadlines, (deadline_ms, next(self._tie_breaker), operation))
        if note_moved is not None:
            note_moved(operation.keys)
        self._try(operation, is_expired=False)
        return operation

    def cancel(self, operation: DelayedOperation) -> None:
        """Forget an operation: its client is gone."""
        if not operation.is_done:
            self._forget(operation)

    def notify(self, key: TopicPartition) -> None:
        """Note that a partition has moved. Thread-safe, and cheap if no request waits for it."""
        if key in self._watched or self.on_moved is not None:
            self._moved.append(key)
            self._wakeup()

    def next_deadline_ms(self) -> int | None:
        """When `run` must be called next, None if nothing waits."""
        while self._deadlines and self._deadlines[0][2].is_done:
            heapq.heappop(self._deadlines)
            self._done_in_heap -= 1
        return self._deadlines[0][0] if self._deadlines else None

    def run(self, now_ms: int) -> None:
        """Try what was notified, and complete what is out of time."""
        if self._moved:
            moved: dict[TopicPartition, None] = {}
            while self._moved:
                moved[self._moved.popleft()] = None
            if self.on_moved is not None:
                self.on_moved(moved)
            moved_of: dict[DelayedOperation, list[TopicPartition]] = {}
            for key in moved:
                for operation in self._watched.get(key, ()):
                    moved_of.setdefault(operation, []).append(key)
            for operation, keys in moved_of.items():  # each once, however many of its partitions have moved
                if not operation.is_done:
                    if operation.note_moved is not None:
                        operation.note_moved(keys)
                    self._try(operation, is_expired=False)
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            self._try(self._deadlines[0][2], is_expired=True)

    def _try(self, operation: DelayedOperation, *, is_expired: bool) -> None:
        if operation.try_complete(is_expired) or is_expired:
            self._forget(operation)

    def _forget(self, operation: DelayedOperation) -> None:
        operation.is_done = True
        self._done_in_heap += 1
        for key in operation.keys:
            watchers = self._watched.get(key)
            if watchers is not None:
                watchers.pop(operation, None)
                if not watchers:
                    del self._watched[key]
        # The heap entry is removed lazily; drop the request now, or it would stay in memory.
        operation.try_complete, operation.keys, operation.note_moved = _never, (), None
        if self._done_in_heap > 64 and self._done_in_heap * 2 > len(self._deadlines):
            self._deadlines = [entry for entry in self._deadlines if not entry[2].is_done]
            heapq.heapify(self._deadlines)
            self._done_in_heap = 0


def _never(is_expired: bool) -> bool:
    """In place of what an operation tried that is over."""
    raise IllegalStateError("an operation that is over was tried again")
