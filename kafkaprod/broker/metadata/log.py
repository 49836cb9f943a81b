"""The metadata log in memory: batches of records, each written by one controller epoch and applied as a whole.

Pure state: one owner, no lock. Who keeps the log on disk writes each batch before it is sent anywhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from kafkaprod.protocol.schema import Struct


class MetadataBatch(NamedTuple):
    """Records that take effect together."""

    base_offset: int
    epoch: int
    records: tuple[Struct, ...]

    @property
    def end_offset(self) -> int:
        """One past the last record."""
        return self.base_offset + len(self.records)


class MetadataLog:
    """A list of batches without gaps, from offset 0."""

    def __init__(self, batches: Sequence[MetadataBatch] = ()) -> None:
        self._batches = list(batches)
        self._bases = [batch.base_offset for batch in self._batches]

    @property
    def end_offset(self) -> int:
        """One past the last record."""
        return self._batches[-1].end_offset if self._batches else 0

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch, -1 if there is no batch."""
        return self._batches[-1].epoch if self._batches else -1

    def append(self, batch: MetadataBatch) -> None:
        """Add a batch.

        Raises:
            ValueError: It does not start at the end, or its epoch is older than the last one's.
        """
        if batch.base_offset != self.end_offset or batch.epoch < self.last_epoch or not batch.records:
            raise ValueError(
                f"batch at {batch.base_offset} of epoch {batch.epoch} does not follow"
                f" {self.end_offset} of epoch {self.last_epoch}"
            )
        self._batches.append(batch)
        self._bases.append(batch.base_offset)

    def epoch_before(self, offset: int) -> int:
        """Return the epoch of the record before `offset`, -1 for offset 0."""
        return self._batches[bisect_right(self._bases, offset - 1) - 1].epoch if offset > 0 else -1

    def read(self, offset: int, max_records: int | None = None) -> list[MetadataBatch]:
        """Return whole batches from `offset`, which begins one: at least one if there is any, else empty.

        Args:
            offset: Where to begin.
            max_records: The most records of all batches but the first; None for all there are.
        """
        found: list[MetadataBatch] = []
        count = 0
        for batch in self._batches[bisect_right(self._bases, offset - 1) :]:
            count += len(batch.records)
            if found and max_records is not None and count > max_records:
                break
            found.append(batch)
        return found

    def batches(self) -> tuple[MetadataBatch, ...]:
        """Return all batches, oldest first."""
        return tuple(self._batches)

    def forget(self) -> None:
        """Drop all batches but the last: no broker will be sent them."""
        del self._batches[:-1], self._bases[:-1]

    def truncate(self, end_offset: int) -> None:
        """Drop the batches at and above `end_offset`."""
        keep = bisect_right(self._bases, end_offset - 1)
        del self._batches[keep:], self._bases[keep:]
