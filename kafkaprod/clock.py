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
        """Monotonic milliseconds."""
        return time.monotonic_ns() // 1_000_000

    def now_us(self) -> int:
        """Monotonic microseconds."""
        return time.monotonic_ns() // 1_000

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000
