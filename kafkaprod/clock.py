"""Time as an object, so that tests can turn it by hand.

`now_ms` is monotonic and drives every timeout; `wall_ms` is the epoch time that stamps records.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

NEVER_MS: Final = 1 << 62  # a delay or a time that does not come; sums of two do not leave 64 bits


class Clock(Protocol):
    """What the shells (sender, net, producer) need of time."""

    def now_ms(self) -> int:
        """Monotonic milliseconds; never goes back."""
        ...

    def now_us(self) -> int:
        """The same in microseconds, for waits of which a millisecond is a large part."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...


class SystemClock:
    """The machine's clocks. Thread-safe."""

    def now_ms(self) -> int:
        """Monotonic milliseconds (CLOCK_MONOTONIC)."""
        return time.monotonic_ns() // 1_000_000

    def now_us(self) -> int:
        """Monotonic microseconds (CLOCK_MONOTONIC)."""
        return time.monotonic_ns() // 1_000

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until `advance` is called. For tests; not thread-safe."""

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
