"""Backoff arithmetic: how long to wait before attempt n. Pure; random numbers are passed in.

Used for reconnects, connection setup timeouts, batch retries and metadata refreshes.
Source: Kafka's ExponentialBackoff (KIP-580, KIP-601, KIP-144): each delay doubles, is spread by +-20 % and never
exceeds the maximum; where the maximum leaves no room to grow, the delay is that constant, without jitter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Random = Callable[[], float]
"""Returns a float in [0, 1), as `random.random` does."""

DEFAULT_JITTER = 0.2
DEFAULT_MULTIPLIER = 2


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """The delays initial, 2*initial, 4*initial ... max, in ms, each spread by `jitter`.

    Args:
        initial_ms: First delay, >= 0. Above `max_ms` it counts as `max_ms`.
        max_ms: Upper bound of every delay, jitter included.
        multiplier: Growth of each step, > 1.
        jitter: Half-width of the spread as a share of the delay, in [0, 1).
    """

    initial_ms: int
    max_ms: int
    multiplier: int = DEFAULT_MULTIPLIER
    jitter: float = DEFAULT_JITTER

    def __post_init__(self) -> None:
        if self.initial_ms < 0 or self.max_ms < 0:
            raise ValueError(f"backoff of initial_ms={self.initial_ms}, max_ms={self.max_ms}: both must be >= 0")
        if self.multiplier <= 1 or not 0 <= self.jitter < 1:
            raise ValueError(f"backoff of multiplier={self.multiplier}, jitter={self.jitter}: need > 1 and [0, 1)")

    def delay_ms(self, attempt: int, random: Random) -> int:
        """The wait in ms before attempt number `attempt` + 1, after `attempt` >= 0 earlier waits.

        Args:
            attempt: 0 for the first delay.
            random: Called once; 0.5 gives the unspread delay. Not called when the delay is constant.
        """
        if self.initial_ms >= self.max_ms or self.initial_ms == 0:
            return min(self.initial_ms, self.max_ms)
        delay = self._grown_ms(attempt)
        spread = 1 - self.jitter + 2 * self.jitter * random()
        return min(round(delay * spread), self.max_ms)

    def _grown_ms(self, attempt: int) -> int:
        delay = self.initial_ms
        for _ in range(attempt):
            delay *= self.multiplier
            if delay >= self.max_ms:  # stops early: `attempt` may be large, the power must not be computed
                return self.max_ms
        return delay
