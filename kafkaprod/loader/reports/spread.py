"""Count how records are spread: over partitions, and by size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.row_partitions import count_sizes

SIZE_CLASSES: Final = 32  # class n has records of less than 2**n bytes that are in no class before


class Spread:
    """Counts records by partition, and by the power of two that is above their size.

    Not for several threads at once.
    """

    def __init__(self) -> None:
        self._partitions: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._sizes: NDArray[np.int64] = np.zeros(SIZE_CLASSES, dtype=np.int64)

    @classmethod
    def of(cls, sizes: NDArray[np.int64], counts: NDArray[np.int64]) -> Spread:
        """Return the spread of some records.

        Args:
            sizes: The bytes of key, value and headers of each.
            counts: How many records each partition has.
        """
        spread = cls()
        spread._partitions = counts
        count_sizes(sizes.data, spread._sizes.data)
        return spread

    @classmethod
    def from_dict(cls, data: Mapping[str, Mapping[str, int]]) -> Spread:
        """Return the spread that to_dict() wrote."""
        spread = cls()
        counts = {int(number): count for number, count in data["partitions"].items()}
        spread._partitions = np.array([counts[number] for number in range(len(counts))], dtype=np.int64)
        for size, count in data["sizes"].items():
            spread._sizes[int(size).bit_length() - 1] = count
        return spread

    def add(self, other: Spread) -> None:
        """Count the records of another spread, too."""
        if len(other._partitions) > len(self._partitions):
            self._partitions = np.pad(self._partitions, (0, len(other._partitions) - len(self._partitions)))
        self._partitions[: len(other._partitions)] += other._partitions
        self._sizes = self._sizes + other._sizes

    def to_dict(self) -> dict[str, Any]:
        """Return records by partition, and by the number of bytes that they have less than."""
        sizes = {str(1 << place): int(count) for place, count in enumerate(self._sizes) if count}
        return {"partitions": {str(n): int(count) for n, count in enumerate(self._partitions)}, "sizes": sizes}
