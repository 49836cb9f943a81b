"""Time as an object, so that tests can turn it by hand.

`now_ms` is monotonic and drives every timeout; `wall_ms` is the epoch time that stamps records.

Tests of programs replace functions of `time`, in every module that has them, by clocks that stand still (freezegun). A
producer has threads, and brokers that they do not stop, so it reads the machine's clocks by a function that they leave.
"""

from __future__ import annotations

import math
import sys
import time
from datetime import timedelta
from typing import Any, Final, Protocol

from kafkaprod.errors import ArgumentTypeError, InvalidRecordError

NEVER_MS: Final = 1 << 62  # a delay or a time that does not come; sums of two do not leave 64 bits

LONGEST_S: Final = 1e9  # a wait without an end
if sys.platform == "darwin":
    _MONOTONIC = time.CLOCK_UPTIME_RAW
else:
    _MONOTONIC = time.CLOCK_MONOTONIC


def monotonic_ns() -> int:
    """Return what time.monotonic_ns() does where nothing has replaced it."""
    return time.clock_gettime_ns(_MONOTONIC)


def monotonic_s() -> float:
    """Return what time.monotonic() does where nothing has replaced it."""
    return time.clock_gettime(_MONOTONIC)


def wall_s() -> float:
    """Return what time.time() does where nothing has replaced it."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def seconds_of(timeout: Any) -> float | None:
    """Return the timeout of a call in seconds, at least 0 and at most LONGEST_S; None: as long as it takes.

    Args:
        timeout: A number of any kind, such as a Decimal or a NumPy scalar, a timedelta, or None.

    Raises:
        ArgumentTypeError: It is something else.
        InvalidRecordError: It is not a number (NaN).
    """
    if timeout is None:
        return None
    try:
        if isinstance(timeout, bool | str | bytes):
            raise TypeError
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    except OverflowError:
        seconds = LONGEST_S if timeout > 0 else 0.0
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            f"timeout={timeout!r} must be a number of seconds, a timedelta, or None, not {type(timeout).__name__}"
        ) from None
    if math.isnan(seconds):
        raise InvalidRecordError(f"timeout={timeout!r} must be a number of seconds, or None")
    return min(max(seconds, 0.0), LONGEST_S)


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
        return monotonic_ns() // 1_000_000

    def now_us(self) -> int:
        """Monotonic microseconds."""
        return monotonic_ns() // 1_000

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000_000
