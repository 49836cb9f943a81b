"""Hold a block of rows between a reader and the producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.columns.row_partitions import add_sizes
from kafkaprod._core.columns.text_columns import interleave
from kafkaprod.loader.opening.errors import BadRow
from kafkaprod.tables.row_plan import Mapped, Reasons


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
        line_of: Returns the line of a row by its number, until the next block is read; None: lines are rows, or the
            input has no lines.
        is_tail: The input ended behind these rows without the end of a row: one that was cut looks the same.
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
    line_of: Callable[[int], int | None] | None = field(default=None, repr=False, compare=False)
    is_tail: bool = False
    _sizes: list[NDArray[np.int64]] = field(default_factory=list, init=False, repr=False, compare=False)  # at most one

    @property
    def row_count(self) -> int:
        """Return how many rows there are to send."""
        return len(self.numbers)

    def without(self, places: NDArray[np.intp]) -> RowBlock:
        """Return all rows but those at some places."""
        keep = np.ones(self.row_count, dtype=np.bool_)
        keep[places] = False
        return self.select(keep)

    def select(self, keep: NDArray[np.bool_]) -> RowBlock:
        """Return only the rows where `keep` is true."""
        rows = np.flatnonzero(keep).astype(np.int64, copy=False)
        return replace(
            self,
            numbers=self.numbers[rows],
            value=None if self.value is None else self.value.take(rows.data),
            key=None if self.key is None else self.key.take(rows.data),
            headers=tuple((name, column.take(rows.data)) for name, column in self.headers),
            timestamps=None if self.timestamps is None else self.timestamps[rows],
            partitions=None if self.partitions is None else self.partitions[rows],
        )

    def located(self, bad: Iterable[BadRow]) -> list[BadRow]:
        """Return bad rows of this block with the lines on which they begin."""
        line_of = self.line_of
        return list(bad) if line_of is None else [replace(each, line=line_of(each.row)) for each in bad]

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
        count = len(self.headers)
        names = interleave([Column.constant(name.encode()) for name, _ in self.headers], self.row_count)
        values = interleave([column for _, column in self.headers], self.row_count)
        return Headers.from_columns(np.arange(0, count * self.row_count + 1, count).data, names, values)

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


def make_block(
    source: str,
    mapped: Mapped,
    reasons: Reasons,
    row: int,
    end_offset: int,
    row_count: int,
    *,
    shown: Column | None,
    keep: NDArray[np.bool_] | None = None,
) -> RowBlock:
    """Return the rows that have a record as a block.

    Args:
        source: Name of the input.
        mapped: What the rows become.
        reasons: Why some of them have no record, by place.
        row: Number of the first row.
        end_offset: Where the first row after the block begins; see RowBlock.
        row_count: How many they are, with those in `reasons`.
        shown: Bytes of the rows for messages about bad ones.
        keep: False for rows that are no records; None: all are.
    """
    bad = [BadRow(source, row + i, why, (shown[i] if shown else None) or b"") for i, why in sorted(reasons.items())]
    block = RowBlock(
        np.arange(row, row + row_count, dtype=np.int64),
        mapped.value,
        row + row_count,
        end_offset,
        mapped.key,
        mapped.headers,
        mapped.timestamps,
        mapped.partitions,
        bad,
    )
    if not reasons and (keep is None or keep.all()):
        return block
    keep = np.ones(row_count, dtype=np.bool_) if keep is None else keep
    keep[list(reasons)] = False
    return block.select(keep)
