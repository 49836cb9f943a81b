"""How many bytes of one direction may pass now, where a test limits them; pure, no clock of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from kafkaprod.broker.peers.rules import Direction, LinkRules

NO_LIMIT: Final = sys.maxsize
_BURST_MS: Final = 50  # what was not used before is lost: a pause is not made up for
_PIECE_MS: Final = 10  # bytes pass in pieces of so many milliseconds


class Pace:
    """Counts what has passed in one direction of a link. Not thread-safe.

    Args:
        rules: Says how many bytes a second pass.
        direction: Which.
    """

    def __init__(self, rules: LinkRules, direction: Direction) -> None:
        self._rules = rules
        self._direction = direction
        self._bytes = 0.0  # may pass
        self._counted_ms = 0

    def allowance(self, now_ms: int) -> int:
        """Return how many bytes may pass now."""
        rate = self._rules.bytes_per_s.get(self._direction)
        if rate is None:
            return NO_LIMIT
        self._bytes += rate * (now_ms - self._counted_ms) / 1000
        self._bytes = min(self._bytes, max(rate * _BURST_MS / 1000, 1.0))
        self._counted_ms = now_ms
        return max(int(self._bytes), 0)

    def spend(self, size: int) -> None:
        """Note that bytes have passed."""
        if self._direction in self._rules.bytes_per_s:
            self._bytes -= size

    def first(self, views: Sequence[bytes | bytearray | memoryview], now_ms: int) -> list[memoryview]:
        """Return as much of the first bytes as may pass now."""
        left = self.allowance(now_ms)
        chosen: list[memoryview] = []
        for view in views:
            if left <= 0:
                break
            chosen.append(memoryview(view)[:left])
            left -= len(chosen[-1])
        return chosen

    def next_ms(self, now_ms: int) -> int:
        """Return when the next piece may pass: `now_ms`, or later."""
        if self.allowance(now_ms) > 0:
            return now_ms
        rate = self._rules.bytes_per_s[self._direction]
        piece = max(rate * _PIECE_MS / 1000, 1.0)
        return now_ms + max(int((piece - self._bytes) * 1000 / rate), 1)
