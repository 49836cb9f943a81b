"""The high watermark, up to which consumers may read. Not thread-safe: the partition's lock guards it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class WatermarkRule(Enum):
    """What moves the high watermark."""

    SOLE_REPLICA = "own log end"
    """The log itself, as soon as the flush policy allows an acknowledgement."""
    REPLICATED = "replication"
    """Replication, by `PartitionLog.update_high_watermark`."""


class Watermark:
    """The high watermark of one partition and the listeners to its changes.

    Attributes:
        rule: What moves it.
        listeners: Called with the new value, under the partition's lock: must not block or call back.
    """

    def __init__(self, offset: int) -> None:
        self.rule = WatermarkRule.SOLE_REPLICA
        self.listeners: list[Callable[[int], None]] = []
        self._offset = offset

    @property
    def offset(self) -> int:
        """Records below this offset may be shown to consumers."""
        return self._offset

    def move(self, offset: int) -> None:
        """Set the watermark, and call the listeners if it changed."""
        if offset != self._offset:
            self._offset = offset
            for listener in self.listeners:
                listener(offset)
