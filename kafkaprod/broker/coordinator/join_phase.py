"""How long a classic group waits for its members to join. Pure: time is an argument."""

from __future__ import annotations


class JoinPhase:
    """The wait of one rebalance.

    A group with members waits for their rebalance timeout at most. One that was empty always waits out the initial
    delay, and again while new members come, up to the rebalance timeout in all (KIP-134).

    Attributes:
        deadline_ms: When to call `is_over` next.
        is_initial: The group was empty: all being there does not end the wait.
        has_new_member: One has come since the delay began.
    """

    def __init__(self, initial_delay_ms: int | None, now_ms: int, rebalance_timeout_ms: int) -> None:
        """Start to wait; the delay is given for a group that was empty."""
        self.is_initial = initial_delay_ms is not None
        self.has_new_member = False
        self._delay_ms = rebalance_timeout_ms if initial_delay_ms is None else initial_delay_ms
        self._left_ms = max(rebalance_timeout_ms - self._delay_ms, 0)
        self.deadline_ms = now_ms + self._delay_ms

    def is_over(self, now_ms: int) -> bool:
        """Whether the wait is over; if new members have joined a group that was empty, it begins again."""
        if now_ms < self.deadline_ms:
            return False
        if not (self.is_initial and self.has_new_member and self._left_ms):
            return True
        delay_ms = min(self._delay_ms, self._left_ms)
        self._left_ms -= delay_ms
        self.has_new_member = False
        self.deadline_ms = now_ms + delay_ms
        return False
