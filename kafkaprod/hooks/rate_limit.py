"""A bound of the rate at which a program sends, for threads and coroutines that share it."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Final

from kafkaprod.clock import monotonic_s
from kafkaprod.errors import InvalidRecordError
from kafkaprod.locks import locked

CREDIT_S: Final = 0.05  # of unused time that may be used later: sleeps end late by up to a millisecond


class RateLimit:
    """Gives turns at a rate. Thread-safe; one object may bound several producers together.

    A turn of many records begins at once and makes the next one wait: a list of 1,000 at 500 records a second is
    followed by 2 s of rest. Bytes are what the caller says they are.

    Args:
        records_per_s: Records a second; None: as many as there are.
        bytes_per_s: Bytes a second; None: as many as there are.

    Raises:
        InvalidRecordError: A rate is not above 0, or none is given.
    """

    def __init__(self, records_per_s: float | None = None, bytes_per_s: float | None = None) -> None:
        for name, rate in (("records_per_s", records_per_s), ("bytes_per_s", bytes_per_s)):
            if rate is not None and not 0 < rate < float("inf"):
                raise InvalidRecordError(f"{name}={rate!r} must be a number above 0")
        if records_per_s is None and bytes_per_s is None:
            raise InvalidRecordError("a RateLimit needs records_per_s, bytes_per_s, or both")
        self._records_per_s = records_per_s
        self._bytes_per_s = bytes_per_s
        self._lock = threading.RLock()
        self._next_s = monotonic_s()  # when the next turn begins; guarded by _lock

    def wait(self, record_count: int = 1, size_bytes: int = 0) -> None:
        """Wait for a turn on this thread.

        Args:
            record_count: Records that will be sent.
            size_bytes: What their keys and values have.
        """
        delay_s = self._take(record_count, size_bytes, monotonic_s())
        if delay_s > 0:
            time.sleep(delay_s)

    async def turn(self, record_count: int = 1, size_bytes: int = 0) -> None:
        """Wait for a turn without blocking the event loop. Args: as `wait`. Cancelled, the turn is used up."""
        delay_s = self._take(record_count, size_bytes, monotonic_s())
        if delay_s > 0:
            await asyncio.sleep(delay_s)

    @locked
    def _take(self, record_count: int, size_bytes: int, now_s: float) -> float:
        """Take the next turn; return in how many seconds it begins."""
        costs = (
            0.0 if self._records_per_s is None else record_count / self._records_per_s,
            0.0 if self._bytes_per_s is None else size_bytes / self._bytes_per_s,
        )
        start_s = max(self._next_s, now_s - CREDIT_S)
        self._next_s = start_s + max(costs)
        return start_s - now_s
