"""The outcomes of rows as they were at one time: what a result becomes in another process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkaprod.errors import copy_to_raise
from kafkaprod.results.rows import RowsResult
from kafkaprod.results.shown import outcome_table
from kafkaprod.text import counted

PENDING = -3  # as in BlockResult.error_codes


class RowsSnapshot(RowsResult):
    """The outcome of the rows of one call, as it was when a BlockResult or TableResult was pickled.

    It has the arrays of these. A row that had no outcome then is PENDING for ever: wait for the result before it is
    sent to another process.

    Attributes:
        partitions, offsets, timestamps, error_codes: One item per row.
    """

    def __init__(
        self,
        partitions: NDArray[np.int32],
        offsets: NDArray[np.int64],
        timestamps: NDArray[np.int64],
        error_codes: NDArray[np.int16],
        errors: Mapping[int, Exception],
    ) -> None:
        self.partitions = partitions
        self.offsets = offsets
        self.timestamps = timestamps
        self.error_codes = error_codes
        self._errors = dict(errors)
        self.row_count = len(error_codes)

    def __reduce__(self) -> tuple[Any, ...]:
        return rows_as_they_are(self)

    def __repr__(self) -> str:
        return f"<RowsSnapshot of {counted(self.row_count, 'row')}, {self.failed_count} failed>"

    def _repr_html_(self) -> str:
        return outcome_table(repr(self), self.partitions, self.offsets, self._has_failed)

    @property
    def _has_failed(self) -> NDArray[np.bool_]:
        failed: NDArray[np.bool_] = (self.error_codes != 0) & (self.error_codes != PENDING)
        return failed

    @property
    def failed_count(self) -> int:
        """How many rows had failed."""
        return int(np.count_nonzero(self._has_failed))

    @property
    def errors(self) -> Mapping[int, Exception]:
        """Row -> error, for the failed rows only, in row order."""
        return {row: copy_to_raise(error) for row, error in self._errors.items()}

    @property
    def calls_in_loop(self) -> bool:
        """Return False: nothing happens any more."""
        return False

    def done(self) -> bool:
        """Whether every row had its outcome."""
        return not (self.error_codes == PENDING).any()

    def wait(self, timeout: float | None = None) -> bool:
        """Return at once whether every row had its outcome."""
        return self.done()

    async def settled(self) -> None:
        """Return at once."""

    def _listens(self) -> Iterator[Callable[[Callable[..., None]], None]]:
        return iter(())

    def first_error(self) -> Exception | None:
        """Return the error of some row that failed, None if none did."""
        return next(iter(self.errors.values()), None)


def rows_as_they_are(rows: Any) -> tuple[Any, ...]:
    """Return what makes a RowsSnapshot of a result, for pickle; the failed rows count as seen."""
    errors = {}
    for row, error in rows.errors.items():
        errors[row] = error
        error.__dict__.pop("result", None)  # which is these rows
    return RowsSnapshot, (rows.partitions, rows.offsets, rows.timestamps, rows.error_codes, errors)
