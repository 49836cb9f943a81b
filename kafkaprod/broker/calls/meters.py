"""Meters of what clients use, and the time for which they must wait when it is more than a quota lets them.

    WindowedRate  a sum over about eleven seconds, for bytes and for percents of a thread's time
    TokenBucket   tokens that come back at the rate of the quota, for changes of topics
    Meters        the meter of each entity that has a quota

Times are arguments. The arithmetic is Kafka's, to the millisecond: `Rate`, `SampledStat`, `TokenBucket`, and
`ClientQuotaManager` of its server; quota.window.num 11, quota.window.size.seconds 1. One thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

SAMPLES: Final = 11
SAMPLE_MS: Final = 1_000
WINDOW_S: Final = (SAMPLES - 1) * SAMPLE_MS // 1_000
"""What a client may use at once: the quota of so many seconds."""
MAX_METERS: Final = 10_000
_UNUSED_MS: Final = 3_600_000
_EXPIRED_MS: Final = SAMPLES * SAMPLE_MS

M = TypeVar("M")


class _Sample:
    """What was used in one second, from the first use on."""

    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0.0


class WindowedRate:
    """See the module docstring."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES + 1)

    def add(self, amount: float, now_ms: int) -> None:
        """Note what was used; below 0 takes back what was noted."""
        if not self._samples or now_ms - self._samples[-1].start_ms >= SAMPLE_MS:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[-1]
        sample.total += amount
        sample.last_ms = now_ms

    def wait_ms(self, quota: float, now_ms: int) -> int:
        """Return how long the client must wait, 0 if it used no more than the quota of a second, each second."""
        while self._samples and now_ms - self._samples[0].last_ms >= _EXPIRED_MS:
            self._samples.popleft()
        window_ms = now_ms - self._samples[0].start_ms if self._samples else 0
        full = window_ms // SAMPLE_MS
        if full < SAMPLES - 1:
            window_ms += (SAMPLES - 1 - full) * SAMPLE_MS
        rate = sum(sample.total for sample in self._samples) / (window_ms / 1_000)
        return round((rate - quota) / quota * window_ms) if rate > quota else 0


class TokenBucket:
    """See the module docstring. It is full at first, with the quota of eleven seconds."""

    def __init__(self) -> None:
        self._tokens: float | None = None
        self._filled_ms = 0

    def add(self, amount: float) -> None:
        """Take tokens, as many as there are and more."""
        self._tokens = (self._tokens or 0.0) - amount

    def wait_ms(self, quota: float, now_ms: int) -> int:
        """Return how long the client must wait until no token is missing; to be called before `add`."""
        most = SAMPLES * quota
        if self._tokens is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + (now_ms - self._filled_ms) * quota / 1_000)
        self._filled_ms = now_ms
        return round(-self._tokens / quota * 1_000) if self._tokens < 0 else 0


class Meters(Generic[M]):
    """The meters of one kind of quota, by entity; those that are not used for an hour go."""

    def __init__(self, make: Callable[[], M]) -> None:
        """Make none yet.

        Args:
            make: Makes one.
        """
        self._make = make
        self._meters: dict[Hashable, tuple[M, int]] = {}

    def __len__(self) -> int:
        return len(self._meters)

    def of(self, entity: Hashable, user: str, now_ms: int) -> M:
        """Return the meter of an entity; beyond `MAX_METERS` the user's entities share one.

        Args:
            entity: Whom the meter is for.
            user: Who the client is.
            now_ms: The time.
        """
        if entity not in self._meters and len(self._meters) >= MAX_METERS:
            self._meters = {
                known: (meter, used_ms)
                for known, (meter, used_ms) in self._meters.items()
                if now_ms - used_ms < _UNUSED_MS
            }
            if len(self._meters) >= MAX_METERS:
                entity = ("all of", user)
        meter = self._meters[entity][0] if entity in self._meters else self._make()
        self._meters[entity] = (meter, now_ms)
        return meter
