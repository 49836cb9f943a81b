"""Define TableResult: the outcome of all rows of one table, in the table's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkaprod.results.block import PENDING, BlockResult
from kafkaprod.results.rows import Deadline, RowsResult
from kafkaprod.results.shown import outcome_table
from kafkaprod.results.snapshot import rows_as_they_are

RowNumbers = range | NDArray[np.int64]


class TableResult(RowsResult):
    """Holds the outcome of one `send_table` call; row i is the table's row i, over all its batches.

    Arrays have one item per row and are made on access: `partitions` int32, `offsets` int64 (-1 unknown or
    failed), `timestamps` int64 ms (-1 where the record keeps its own), `error_codes` int16 (0 delivered, Kafka's code,
    CLIENT_ERROR, PENDING). Thread-safe once `send_table` has returned.

    Attributes:
        blocks: (rows, topic, BlockResult) of each block that was queued; rows are positions in the table.
    """

    def __init__(self) -> None:
        self.blocks: list[tuple[RowNumbers, str, BlockResult]] = []
        self.row_count = 0

    def add(self, rows: RowNumbers, topic: str, block: BlockResult) -> None:
        """Add the outcome of some rows; a MemoryError has changed nothing."""
        row_count = self.row_count + len(rows)
        self.blocks.append((rows, topic, block))
        self.row_count = row_count

    def __repr__(self) -> str:
        state = "done" if self.done() else "pending"
        return f"<TableResult of {self.row_count} rows for {', '.join(self.topics) or 'no topic'}, {state}>"

    def _repr_html_(self) -> str:
        codes = self.error_codes
        return outcome_table(repr(self), self.partitions, self.offsets, (codes != 0) & (codes != PENDING))

    def __reduce__(self) -> tuple[Any, ...]:
        return rows_as_they_are(self)

    @property
    def calls_in_loop(self) -> bool:
        """Whether the rows are an AsyncProducer's: see add_done_callback()."""
        return any(block.calls_in_loop for _, _, block in self.blocks[:1])

    def done(self) -> bool:
        """Return whether every row's outcome is known."""
        return all(block.done() for _, _, block in self.blocks)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every row's outcome is known; False after `timeout` seconds."""
        deadline = Deadline(timeout)
        return all(block.wait(deadline.remaining()) for _, _, block in self.blocks)

    def spooled(self, timeout: float | None = None) -> bool:
        """Wait until every row is in the producer's spool; return whether it is: see `DeliveryFuture.spooled`."""
        deadline = Deadline(timeout)
        return all(block.spooled(deadline.remaining()) for _, _, block in self.blocks)

    async def settled(self) -> None:
        """Return once every row's outcome is known."""
        for _, _, block in self.blocks:
            await block.settled()

    def _listens(self) -> Iterator[Callable[[Callable[..., None]], None]]:
        for _, _, block in reversed(self.blocks):
            if not block.done():
                yield block.when_done

    @property
    def topics(self) -> list[str]:
        """Return the topics that got rows, in order of their first one."""
        return list(dict.fromkeys(topic for _, topic, _ in self.blocks))

    @property
    def partitions(self) -> NDArray[np.int32]:
        """Return each row's partition; -1 for a row that was never queued."""
        return self._gather(np.int32, lambda block: block.partitions)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Return the offset of each row in its partition; -1 if it failed or the broker sent none."""
        return self._gather(np.int64, lambda block: block.offsets)

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Return the broker's append time of each row in ms; -1 where the record keeps its own timestamp."""
        return self._gather(np.int64, lambda block: block.timestamps)

    @property
    def error_codes(self) -> NDArray[np.int16]:
        """Return 0 for a delivered row, else Kafka's error code, CLIENT_ERROR or PENDING."""
        return self._gather(np.int16, lambda block: block.error_codes)

    @property
    def errors(self) -> dict[int, Exception]:
        """Return row -> error for the failed rows, in row order; they count as seen then."""
        failed = {int(rows[row]): error for rows, _, block in self.blocks for row, error in block.errors.items()}
        return dict(sorted(failed.items()))

    def first_error(self) -> Exception | None:
        """Return the error of some row that failed, None if none did; all failed rows count as seen."""
        return next((error for error in [block.first_error() for _, _, block in self.blocks] if error), None)

    @property
    def failed_count(self) -> int:
        """Return how many rows are known to have failed."""
        return sum(block.failed_count for _, _, block in self.blocks)

    def _gather(self, dtype: type[Any], column: Callable[[BlockResult], NDArray[Any]]) -> NDArray[Any]:
        out = np.empty(self.row_count, dtype=dtype)
        for rows, _, block in self.blocks:
            out[slice(rows.start, rows.stop) if isinstance(rows, range) else rows] = column(block)
        return out
