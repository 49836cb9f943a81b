"""How long to wait before a request is repeated. Pure.

A retriable answer: exponential, as for all requests. CONCURRENT_TRANSACTIONS: the previous transaction is usually
complete within milliseconds, so begin with 20 ms and wait longer only when it is not. (Kafka's own client waits
retry.backoff.ms, 100 ms, for every request but the first AddPartitionsToTxn.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kafkaprod.retry import ExponentialBackoff

FIRST_MS: Final = 20
GROWTH: Final = 1.5
SOON_MS: Final = 200  # longest wait in the first second
LATER_MS: Final = 500
LATE_MS: Final = 1000  # after five seconds


class Pauses:
    """The waits of one request that is repeated until it is answered."""

    def __init__(self, backoff: ExponentialBackoff, random: Callable[[], float]) -> None:
        self._backoff = backoff
        self._random = random
        self._attempts = 0
        self._concurrent_since_ms: int | None = None
        self._concurrent_ms: float = FIRST_MS

    def reset(self) -> None:
        """The request was answered for good."""
        self._attempts = 0
        self._concurrent_since_ms = None
        self._concurrent_ms = FIRST_MS

    def retry_ms(self) -> int:
        """The wait after a retriable answer, or none."""
        self._attempts += 1
        return self._backoff.delay_ms(self._attempts - 1, self._random)

    def concurrent_ms(self, now_ms: int) -> int:
        """The wait after CONCURRENT_TRANSACTIONS."""
        if self._concurrent_since_ms is None:
            self._concurrent_since_ms = now_ms
        waited_ms = now_ms - self._concurrent_since_ms
        if waited_ms >= 5000:
            return LATE_MS
        if waited_ms >= 1000:
            return LATER_MS
        delay_ms = self._concurrent_ms
        self._concurrent_ms = min(delay_ms * GROWTH, SOON_MS)
        return round(delay_ms)
