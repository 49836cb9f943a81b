"""Hold a block of rows between a reader and the producer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.columns.row_partitions import add_sizes
from kafkaprod.loader.errors import BadRow


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Holds rows in columns.

    Attributes:
        numbers: Row number in the input of each row, from 0, ascending; of `row_count` items.
        value: Their values; None: all null.
        key: Their keys; None: all null.
        headers: Names and values of headers that differ by row or not.
        timestamps: In ms; None: the time of sending.
        partitions: That the rows name, -1 if a row names none; None: no row does.
        end_row: Number of the first row after the block; rows that were left out count.
        end_offset: Where that row begins in the input's text; 0 if the format has no offsets.
        bad: Rows between the block before and `end_row` that cannot be sent.
    """

    numbers: NDArray[np.int64]
    value: Column | None
    end_row: int
    end_offset: int = 0
    key: Column | None = None
    headers: tuple[tuple[str, Column], ...] = ()
    timestamps: NDArray[np.int64] | None = None
    partitions: NDArray[np.int32] | None = None
    bad: list[BadRow] = field(default_factory=list)
    _sizes: list[NDArray[np.int64]] = field(default_factory=list, init=False, repr=False, compare=False)  # at most one

    @property
    def row_count(self) -> int:
        """Return how many rows are to be sent."""
        return len(self.numbers)

    def without(self, places: NDArray[np.intp]) -> RowBlock:
        """Return all rows but those at some places."""
        keep = np.ones(self.row_count, dtype=np.bool_)
        keep[places] = False
        return self.select(keep)

    def select(self, keep: NDArray[np.bool_]) -> RowBlock:
        """Return only the rows where `keep` is true; slow, for the few blocks that lose rows."""
        rows = np.flatnonzero(keep)
        return replace(
            self,
            numbers=self.numbers[rows],
            value=_select(self.value, rows),
            key=_select(self.key, rows),
            headers=tuple((name, Column.from_list([column[int(i)] for i in rows])) for name, column in self.headers),
            timestamps=None if self.timestamps is None else self.timestamps[rows],
            partitions=None if self.partitions is None else self.partitions[rows],
        )

    def has_keys(self) -> bool:
        """Return whether a row has a key that is neither null nor empty."""
        if self.key is None:
            return False
        sizes = np.zeros(self.row_count, dtype=np.int64)
        add_sizes(self.key, sizes.data)
        return bool(sizes.any())

    def header_columns(self) -> Headers | None:
        """Return the headers as the producer takes them."""
        if not self.headers:
            return None
        if all(column.row_count < 0 for _, column in self.headers):
            return Headers.from_python([(name, column[0]) for name, column in self.headers])
        if len(self.headers) == 1:
            name, column = self.headers[0]
            offsets = np.arange(self.row_count + 1, dtype=np.int64)
            return Headers.from_columns(offsets.data, Column.from_list([name.encode()] * self.row_count), column)
        rows: list[Any] = [[(name, column[i]) for name, column in self.headers] for i in range(self.row_count)]
        return Headers.from_python(rows)

    def sizes(self) -> NDArray[np.int64]:
        """Return the bytes of key, value and headers of each row; computed once."""
        if self._sizes:
            return self._sizes[0]
        sizes = np.full(self.row_count, sum(len(name.encode()) for name, _ in self.headers), dtype=np.int64)
        for column in (self.value, self.key, *(column for _, column in self.headers)):
            if column is not None:
                add_sizes(column, sizes.data)
        self._sizes.append(sizes)
        return sizes


def _select(column: Column | None, rows: NDArray[np.intp]) -> Column | None:
    return None if column is None else Column.from_list([column[int(i)] for i in rows])
