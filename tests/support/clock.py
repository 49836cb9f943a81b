"""A clock that tests turn by hand, and one that measures what a real wait took."""

from __future__ import annotations

from kafkaprod.clock import SystemClock


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


class Stopwatch:
    """How long a real wait took, in the whole milliseconds that the program counts.

    A time-out of n ms ends when the clock of whole milliseconds has moved by n: up to a millisecond sooner than n ms of
    a finer clock, so that a test which measures with one fails now and then.
    """

    def __init__(self) -> None:
        self._clock = SystemClock()
        self.restart()

    def restart(self) -> None:
        """Count from now on."""
        self._started_ms = self._clock.now_ms()

    @property
    def ms(self) -> int:
        """What has passed."""
        return self._clock.now_ms() - self._started_ms
