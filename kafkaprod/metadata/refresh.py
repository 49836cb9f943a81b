"""Decides when to request metadata again. Pure: time and random numbers are passed in.

A refresh is due when one is wanted, or when the last full one is older than metadata_max_age_ms; but not before the
retry backoff has passed since the last answer or failure. Consecutive failures, and consecutive answers without news,
each make the wait longer. There is one request at a time.
Source: org.apache.kafka.clients.Metadata (timeToNextUpdate, timeToAllowUpdate); KIP-580, KIP-899, KIP-951, KIP-1102.
"""

from __future__ import annotations

from kafkaprod.clock import NEVER_MS
from kafkaprod.retry import ExponentialBackoff, Random


class RefreshSchedule:
    """The times of refreshes.

    Args:
        max_age_ms: Age of a full answer at which a refresh is due.
        backoff: The wait after failures and after answers without news.
        random: Source of jitter.
    """

    def __init__(self, max_age_ms: int, backoff: ExponentialBackoff, random: Random) -> None:
        self._max_age_ms = max_age_ms
        self._backoff = backoff
        self._random = random
        self._earliest_ms = 0
        self._failure_count = 0
        self._idle_answer_count = 0  # consecutive answers without news
        self._trying_since_ms: int | None = None
        self._last_full_ms: int | None = None
        self.is_in_flight = False

    def delay_ms(self, now_ms: int, *, is_wanted: bool) -> int:
        """Return how long until the next request may be sent; 0: now. `is_wanted`: a refresh is due before its age."""
        if self.is_in_flight:
            return NEVER_MS
        due_ms = now_ms if is_wanted or self._last_full_ms is None else self._last_full_ms + self._max_age_ms
        return max(due_ms - now_ms, self._earliest_ms - now_ms, 0)

    def age_ms(self, now_ms: int) -> int | None:
        """Return the time since the last full answer; None before the first."""
        return None if self._last_full_ms is None else now_ms - self._last_full_ms

    @property
    def had_no_news(self) -> bool:
        """Return whether the last answer changed nothing."""
        return self._idle_answer_count > 0

    def is_aged(self, now_ms: int) -> bool:
        """Return whether a full refresh is due by age alone."""
        return self._last_full_ms is None or now_ms >= self._last_full_ms + self._max_age_ms

    def tried_for_ms(self, now_ms: int, *, is_wanted: bool) -> int:
        """Return how long a due refresh has not succeeded, counted from the first call that finds one due."""
        if self._trying_since_ms is None:
            if not self.is_in_flight and self.delay_ms(now_ms, is_wanted=is_wanted) > 0:
                return 0
            self._trying_since_ms = now_ms
        return now_ms - self._trying_since_ms

    def skip_backoff(self) -> None:
        """Request at once: a topic is needed that was never requested."""
        self._earliest_ms = 0
        self._idle_answer_count = 0

    def start_over(self) -> None:
        """Forget the request in flight and every wait."""
        self.is_in_flight = False
        self._earliest_ms = 0
        self._failure_count = 0
        self._idle_answer_count = 0
        self._trying_since_ms = None

    def on_request(self, now_ms: int, *, is_by_age: bool) -> None:
        """Note that a request was made. A periodic refresh without news does not lengthen the next wait."""
        self.is_in_flight = True
        if is_by_age:
            self._idle_answer_count = 0
        if self._trying_since_ms is None:
            self._trying_since_ms = now_ms

    def on_failure(self, now_ms: int) -> None:
        """Note that the request failed or its answer is unusable."""
        self.is_in_flight = False
        self._earliest_ms = now_ms + self._wait_ms(self._failure_count)
        self._failure_count += 1

    def on_answer(self, now_ms: int, *, is_full: bool, is_news: bool) -> None:
        """A usable answer came: clear the failures and schedule the next refresh."""
        self.is_in_flight = False
        self._failure_count = 0
        self._trying_since_ms = None
        if is_full:
            self._last_full_ms = now_ms
        if is_news:
            self._idle_answer_count = 0
        self._earliest_ms = now_ms + self._wait_ms(self._idle_answer_count)
        if not is_news:
            self._idle_answer_count += 1

    def _wait_ms(self, attempt: int) -> int:
        return self._backoff.delay_ms(attempt, self._random)
