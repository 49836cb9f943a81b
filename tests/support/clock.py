"""A clock that tests turn by hand."""

from __future__ import annotations


class ManualClock:
    """A clock whose time changes only by `advance`. Not thread-safe."""

    def __init__(self, now_ms: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._wall_ms = wall_ms

    def now_ms(self) -> int:
        """The monotonic time set by hand."""
        return self._now_ms

    def now_us(self) -> int:
        """The monotonic time set by hand, in microseconds."""
        return self._now_ms * 1000

    def wall_ms(self) -> int:
        """The epoch time set by hand."""
        return self._wall_ms

    def advance(self, ms: int) -> int:
        """Move both clocks forward by `ms`; return the new monotonic time."""
        if ms < 0:
            raise ValueError(f"a clock cannot go back: {ms} ms")
        self._now_ms += ms
        self._wall_ms += ms
        return self._now_ms
