"""When appended data goes to the disk, and how many appends share one sync.

| policy      | an append is acknowledged        | what a power cut can take                 |
|-------------|----------------------------------|-------------------------------------------|
| each        | after an fdatasync that covers it | nothing acknowledged                      |
| interval:ms | at once, synced every `ms`       | what was acknowledged in the last `ms`    |
| never       | at once; the system writes back  | what the system had not written           |
A killed process loses nothing under any of them; every policy syncs a segment when the next one begins.
A sync that failed is never repeated: the system may have dropped the pages and a second call would report success. The
partition is fenced instead and nothing that was waiting is acknowledged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from kafkaprod.broker.storage.errors import PartitionFencedError
from kafkaprod.errors import ConfigError


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """One of the three rules; make it with `each()`, `interval(ms)`, `never()` or `parse_policy`."""

    name: str
    interval_ms: int | None = None

    @property
    def syncs_before_ack(self) -> bool:
        """An append waits for its sync."""
        return self.name == "each"


def each() -> FlushPolicy:
    """Sync before every acknowledgement; waiting appends share a sync."""
    return FlushPolicy("each")


def interval(interval_ms: int) -> FlushPolicy:
    """Sync every `interval_ms`.

    Raises:
        ConfigError: Not positive.
    """
    if interval_ms < 1:
        raise ConfigError(f"flush interval of {interval_ms} ms must be at least 1")
    return FlushPolicy("interval", interval_ms)


def never() -> FlushPolicy:
    """Leave it to the operating system."""
    return FlushPolicy("never")


def parse_policy(text: str) -> FlushPolicy:
    """Parse "each", "never" or "interval:<ms>".

    Raises:
        ConfigError: Anything else.
    """
    name, _, milliseconds = text.partition(":")
    if text == "each":
        return each()
    if text == "never":
        return never()
    if name == "interval" and milliseconds.isdecimal():
        return interval(int(milliseconds))
    raise ConfigError(f"flush policy {text!r} is not each, never or interval:<ms>")


class GroupCommit:
    """Shares syncs between the threads that wait for one. Thread-safe.

    The first waiter syncs for all that have appended by then; who comes meanwhile waits for the next round.
    """

    def __init__(self, synced_offset: int) -> None:
        self._condition = threading.Condition()
        self._synced_offset = synced_offset  # guarded by _condition, as the rest
        self._is_syncing = False
        self._failure: OSError | None = None
        self._truncations = 0

    @property
    def synced_offset(self) -> int:
        """All data below this offset is on the disk."""
        return self._synced_offset

    def advance(self, offset: int) -> None:
        """Note that data below `offset` was synced by other means (a roll, a recovery)."""
        with self._condition:
            self._synced_offset = max(self._synced_offset, offset)
            self._condition.notify_all()

    def retreat(self, offset: int) -> None:
        """Note that the log was truncated to `offset`."""
        with self._condition:
            self._synced_offset = min(self._synced_offset, offset)
            self._truncations += 1  # a sync under way covers offsets that no longer exist

    def wait_for(self, offset: int, sync: Callable[[], int]) -> None:
        """Return when the data below `offset` is on the disk, or what a truncation has left of it.

        Args:
            offset: Must have been appended; it may be cut off again at any time.
            sync: Brings all that is appended when it starts to the disk and returns its end offset; called without
            locks.

        Raises:
            PartitionFencedError: A sync failed, now or earlier.
        """
        while True:
            with self._condition:
                while self._is_syncing and self._synced_offset < offset and self._failure is None:
                    self._condition.wait()
                if self._synced_offset >= offset:
                    return
                if self._failure is not None:
                    raise PartitionFencedError(f"an earlier sync failed: {self._failure}") from self._failure
                self._is_syncing = True
                truncations = self._truncations
            if self._sync(sync, truncations):
                return  # all there is: if that is less than `offset`, the rest was cut off, and will never come

    def _sync(self, sync: Callable[[], int], truncations: int) -> bool:
        """Sync; return whether all of the log was synced: no error, and no truncation meanwhile."""
        synced, failure = -1, None
        try:
            synced = sync()
        except OSError as error:
            failure = error
        finally:
            with self._condition:
                self._is_syncing = False
                is_current = truncations == self._truncations
                if is_current:
                    self._synced_offset = max(self._synced_offset, synced)
                self._failure = failure or self._failure
                self._condition.notify_all()
        return is_current and self._failure is None
