"""Which leader epoch began at which offset: answers OffsetForLeaderEpoch and diverging fetches.

Kept as (epoch, start offset) pairs, both strictly increasing. Pure state: the partition's lock guards it, and the
partition writes it to `leader-epoch-checkpoint`. Source: Kafka storage, LeaderEpochFileCache; KIP-101, KIP-279.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochStart(NamedTuple):
    """An epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The leader epochs of one partition, oldest first."""

    def __init__(self, entries: list[EpochStart] | None = None) -> None:
        self.entries: list[EpochStart] = entries or []

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, UNDEFINED_EPOCH if none is known."""
        return self.entries[-1].epoch if self.entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that records from `start_offset` on belong to `epoch`; return whether that was news.

        What contradicts it is forgotten: a broker that led without a record, and then follows, gets records of the
        epoch before. That epoch still starts where it did.
        """
        if epoch < 0 or (self.entries and epoch == self.latest_epoch):
            return False
        while self.entries and (self.entries[-1].epoch > epoch or self.entries[-1].start_offset >= start_offset):
            self.entries.pop()
        if self.latest_epoch != epoch:
            self.entries.append(EpochStart(epoch, start_offset))
        return True

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget the epochs that start at or above `end_offset`; return whether there were any."""
        before = len(self.entries)
        while self.entries and self.entries[-1].start_offset >= end_offset:
            self.entries.pop()
        return len(self.entries) != before

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget what lies below `start_offset`, where the epoch in force starts now; return whether it changed."""
        covering = self._covering(start_offset)
        if covering < 0 or (covering == 0 and self.entries[0].start_offset == start_offset):
            return False
        self.entries[: covering + 1] = [EpochStart(self.entries[covering].epoch, start_offset)]
        return True

    def epoch_for(self, offset: int) -> int:
        """The epoch in force at `offset`, UNDEFINED_EPOCH if unknown."""
        if self.entries and offset >= self.entries[-1].start_offset:
            return self.entries[-1].epoch
        covering = self._covering(offset)
        return self.entries[covering].epoch if covering >= 0 else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Where `epoch` ended: (the largest known epoch not above it, its end offset).

        An epoch above the newest is undefined, (-1, -1); below the oldest it ended where the oldest starts.
        """
        if epoch == UNDEFINED_EPOCH or not self.entries or epoch > self.latest_epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        above = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if above == 0:
            return epoch, self.entries[0].start_offset
        return self.entries[above - 1].epoch, self.entries[above].start_offset

    def _covering(self, offset: int) -> int:
        return bisect_right(self.entries, offset, key=lambda entry: entry.start_offset) - 1
