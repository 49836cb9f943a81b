"""Find the rows of a block that cannot be sent, by what is known before they are sent.

The answer for a row is always the same: a resumed load counts rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod.loader.errors import BadRow
from kafkaprod.loader.rows import RowBlock

RECORD_OVERHEAD: Final = 128  # of a record and its batch, at most
HEADER_OVERHEAD: Final = 10


@dataclass(frozen=True, slots=True)
class Screen:
    """Knows which records a topic takes.

    Attributes:
        topic: Its name.
        partition_count: Of it.
        record_limit: Most bytes of a record, and in words where that comes from.
        needs_keys: Rows without a key are bad: the topic is compacted.
        ignores_wishes: The partition that a row names is not used.
    """

    topic: str
    partition_count: int
    record_limit: int
    record_limit_from: str
    needs_keys: bool
    ignores_wishes: bool

    def sort_out(self, block: RowBlock, source: str, refused: Mapping[int, str]) -> tuple[RowBlock, list[BadRow]]:
        """Return the rows that can be sent, and all those that cannot, in order.

        Args:
            block: The rows.
            source: Name of their input.
            refused: Rows that a broker did not take, by number, and why.
        """
        bad = list(block.bad)
        for places, reasons in (
            self._refused(block, refused),
            self._wrong_partitions(block),
            self._too_large(block),
            self._without_keys(block),
        ):
            bad += [_bad_row(source, block, int(place), why) for place, why in zip(places, reasons, strict=True)]
        numbers = {row.row for row in bad}
        if len(bad) > len(block.bad):
            block = block.select(~np.isin(block.numbers, list(numbers)))
        first_reasons = {row.row: row for row in reversed(bad)}
        return block, [first_reasons[number] for number in sorted(first_reasons)]

    def _refused(self, block: RowBlock, refused: Mapping[int, str]) -> tuple[NDArray[np.intp], list[str]]:
        places = np.flatnonzero(np.isin(block.numbers, list(refused))) if refused else _NONE
        return places, [refused[int(block.numbers[place])] for place in places]

    def _wrong_partitions(self, block: RowBlock) -> tuple[NDArray[np.intp], list[str]]:
        if block.partitions is None or self.ignores_wishes:
            return _NONE, []
        places = np.flatnonzero((block.partitions < -1) | (block.partitions >= self.partition_count))
        return places, [f"partition {block.partitions[place]} of {self.partition_count}" for place in places]

    def _too_large(self, block: RowBlock) -> tuple[NDArray[np.intp], list[str]]:
        limit = self.record_limit - RECORD_OVERHEAD - HEADER_OVERHEAD * len(block.headers)
        sizes = block.sizes()
        if sizes.max(initial=0) <= limit:
            return _NONE, []
        places = np.flatnonzero(sizes > limit)
        why = f"of record_limit={self.record_limit} ({self.record_limit_from})"
        return places, [f"a record of {sizes[place]} bytes is over the limit {why}" for place in places]

    def _without_keys(self, block: RowBlock) -> tuple[NDArray[np.intp], list[str]]:
        if not self.needs_keys:
            return _NONE, []
        places = np.array([i for i in range(block.row_count) if block.key is None or block.key[i] is None], np.intp)
        return places, [f"topic {self.topic!r} is compacted, and the row has no key"] * len(places)


_NONE: Final = np.zeros(0, dtype=np.intp)


def _bad_row(source: str, block: RowBlock, place: int, reason: str) -> BadRow:
    value = None if block.value is None else block.value[place]
    return BadRow(source, int(block.numbers[place]), reason, value or b"")
