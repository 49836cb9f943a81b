"""The metadata log in memory: batches of records, each written by one controller epoch and applied as a whole.

Pure state: one owner, no lock. Who keeps the log on disk writes each batch before it is sent anywhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from kafkaprod.protocol.schema import Struct

NO_EPOCH: Final = -1


class MetadataBatch(NamedTuple):
    """Records that take effect together."""

    base_offset: int
    epoch: int
    records: tuple[Struct, ...]

    @property
    def end_offset(self) -> int:
        """One past the last record."""
        return self.base_offset + len(self.records)


class MetadataSnapshot(NamedTuple):
    """What the log says below an offset, as the fewest records.

    Attributes:
        end_offset: The offset.
        epoch: The epoch of the record before it.
        records: See `image_records`.
    """

    end_offset: int
    epoch: int
    records: tuple[Struct, ...]


class MetadataLog:
    """A list of batches without gaps. What is below its start is in a snapshot only.

    Attributes:
        start_offset: Where it starts: 0, or the end of a snapshot, or of what was forgotten.
        start_epoch: The epoch of the record before, -1 at offset 0.
    """

    def __init__(
        self, batches: Sequence[MetadataBatch] = (), start_offset: int = 0, start_epoch: int = NO_EPOCH
    ) -> None:
        self._batches = list(batches)
        self._bases = [batch.base_offset for batch in self._batches]
        self.start_offset = start_offset
        self.start_epoch = start_epoch

    @property
    def end_offset(self) -> int:
        """One past the last record."""
        return self._batches[-1].end_offset if self._batches else self.start_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, also of one below the start; -1 if there is none."""
        return self._batches[-1].epoch if self._batches else self.start_epoch

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
        """Return the epoch of the record before `offset`, -1 if that is below the start of the log and not its last."""
        if offset <= self.start_offset:
            return self.start_epoch if offset == self.start_offset else NO_EPOCH
        return self._batches[bisect_right(self._bases, offset - 1) - 1].epoch

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

    def forget(self, end_offset: int | None = None) -> None:
        """Drop the batches below an offset, where one ends: a snapshot has them, or no broker will be sent them.

        Args:
            end_offset: The offset; None for the end.
        """
        end_offset = self.end_offset if end_offset is None else end_offset
        if end_offset > self.start_offset:
            epoch, count = self.epoch_before(end_offset), bisect_right(self._bases, end_offset - 1)
            del self._batches[:count], self._bases[:count]
            self.start_offset, self.start_epoch = end_offset, epoch

    def truncate(self, end_offset: int) -> None:
        """Drop the batches at and above `end_offset`."""
        keep = bisect_right(self._bases, end_offset - 1)
        del self._batches[keep:], self._bases[keep:]
