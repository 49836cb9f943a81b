"""BlockResult: the outcome of a block of records, over all the batches that hold them.

A module of its own because of NumPy: a program that sends single records never imports it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.queues.blocks import Block
from kafkaprod.errors import broker_code, copy_to_raise
from kafkaprod.results.batch import BatchCompletion
from kafkaprod.results.rows import Deadline, RowsResult
from kafkaprod.results.shown import outcome_table
from kafkaprod.results.snapshot import rows_as_they_are
from kafkaprod.text import counted

CLIENT_ERROR: Final = -2  # in BlockResult.error_codes: an error that is not a broker's code; see BlockResult.errors
PENDING: Final = -3  # in BlockResult.error_codes: the outcome is not known yet


class BlockResult(RowsResult):
    """The outcome of the records of one `send_many`, `send_columns` or `send_table` call; row i is record i.

    Arrays have one item per row and are made on each access: `partitions` int32, `offsets` int64 (-1 unknown or
    failed), `timestamps` int64 ms (-1 where the record keeps its own), `error_codes` int16 (0 delivered, Kafka's code,
    CLIENT_ERROR, PENDING). Thread-safe.
    """

    def __init__(self, block: Block) -> None:
        # Made before the block's first row is queued: what is made later could fail for want of memory.
        self._block = block
        self._places: list[tuple[BatchCompletion, int, int, int]] | None = None
        self._refused: Exception | None = None
        self._refused_rows: list[int] = []
        self.row_count: int = block.row_count

    def __repr__(self) -> str:
        state = f"done, {self.failed_count} failed" if self.done() else "pending"
        return f"<BlockResult of {counted(self.row_count, 'row')}, {state}>"

    def _repr_html_(self) -> str:
        codes = self.error_codes
        return outcome_table(repr(self), self.partitions, self.offsets, (codes != 0) & (codes != PENDING))

    def __reduce__(self) -> tuple[Any, ...]:
        return rows_as_they_are(self)

    def refuse_rest(self, error: Exception) -> BlockResult:
        """Give the rows that are not queued this error, and return the object."""
        self._refused_rows = self._block.rows_left
        self._refused = copy_to_raise(error)  # the other one goes to the caller
        return self

    @functools.cached_property
    def partitions(self) -> NDArray[np.int32]:
        """Partition of each row; -1 where none was given or chosen: the row was not queued."""
        return np.frombuffer(memoryview(self._block.partition_of_rows()), dtype=np.int32).copy()

    @property
    def _row_runs(self) -> list[tuple[BatchCompletion, int, int, int]]:
        """The batches that hold the rows; their result objects are made on the first access."""
        if self._places is None:
            self._places = self._block.row_runs
        return self._places

    @property
    def calls_in_loop(self) -> bool:
        """Whether the rows are an AsyncProducer's: see add_done_callback()."""
        return any(completion.calls_in_loop for completion, _, _, _ in self._row_runs[:1])

    def done(self) -> bool:
        """Whether every row's outcome is known."""
        return all(completion.is_done for completion, _, _, _ in self._row_runs)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every row's outcome is known; False after `timeout` seconds."""
        deadline = Deadline(timeout)
        for completion, _, _, _ in self._row_runs:
            if not completion.is_done and not _wait(completion, deadline):
                return False
        return True

    def spooled(self, timeout: float | None = None) -> bool:
        """Wait until every row is in the producer's spool; return whether it is: see `DeliveryFuture.spooled`."""
        deadline = Deadline(timeout)
        return self._refused is None and all(_is_stored(each, deadline) for each, _, _, _ in self._row_runs)

    def _listens(self) -> Iterator[Callable[[Callable[..., None]], None]]:
        for completion, _, _, _ in self._row_runs:
            # Again from the start of its leaves: a batch may have been split since.
            while (pending := next((leaf for leaf in _leaves(completion) if not leaf.is_done), None)) is not None:
                yield pending.add_listener

    async def settled(self) -> None:
        """Return once every row's outcome is known."""
        for completion, _, _, _ in self._row_runs:
            pending = [completion]
            while pending:
                one = pending.pop()
                await one.settled()
                pending.extend(child for _, child in one.children or ())

    def runs(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (partition, base offset of the record batch, index in it, record count) of each run of rows.

        Cheaper than the arrays: one item per record batch. Only rows that were delivered; the base offset is -1 where
        the broker does not send it.
        """
        for completion, partition, first, count in self._row_runs:
            runs = _runs(completion, first, count) if completion.is_split else ((completion, first, count),)
            for batch, index, length in runs:
                if batch.is_done and batch.error is None:
                    yield partition, batch.base_offset, index, length

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Offset of each row in its partition; -1 if it failed or the broker did not send it."""
        out = np.full(self.row_count, -1, dtype=np.int64)
        for rows, batch, first in self._pieces():
            if batch.error is None and batch.base_offset >= 0:
                out[rows] = np.arange(len(rows), dtype=np.int64) + (batch.base_offset + first)
        return out

    def watch_batches(self, listener: Callable[[int], None]) -> None:
        """Call `listener(row count)` for each batch that holds rows when its outcome is known."""
        for completion, _, _, count in self._row_runs:
            completion.add_listener(partial(listener, count))

    def ends(self) -> dict[int, int]:
        """By partition, the offset behind the last row there; without those where it is not known."""
        ends: dict[int, int] = {}
        for completion, partition, first, count in self._row_runs:
            batch, last = completion, first + count - 1
            while batch.is_split:
                start, batch = next((at, part) for at, part in reversed(batch.children) if at <= last)
                last -= start
            ends[partition] = batch.base_offset + last + 1 if batch.error is None and batch.base_offset >= 0 else -1
        return {partition: end for partition, end in ends.items() if end >= 0}

    def first_error(self) -> Exception | None:
        """Return the error of some row that failed, None if none did; all failed rows of the block count as seen."""
        for batch, index, length in self._failed_runs():
            batch.mark_seen(index, length)
        return self.peek_error()

    def peek_error(self) -> Exception | None:
        """Return the error of some row that failed, None if none did; does not count as having seen it.

        A row that the broker named comes first: the error of its neighbours does not say what is wrong.
        """
        error = None
        for batch, index, length in self._failed_runs():
            named = batch.record_errors or {}
            own = next((named[row] for row in sorted(named) if index <= row < index + length), None)
            if own is not None:
                return copy_to_raise(own)
            error = error or batch.error
        error = error or self._refused
        return None if error is None else copy_to_raise(error)

    def _failed_runs(self) -> Iterator[tuple[BatchCompletion, int, int]]:
        for completion, _, first, count in self._row_runs:
            yield from (run for run in _runs(completion, first, count) if run[0].error is not None)

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """The broker's append time of each row in ms; -1 where the record keeps the timestamp it was sent with."""
        out = np.full(self.row_count, -1, dtype=np.int64)
        for rows, batch, _ in self._pieces():
            out[rows] = batch.log_append_time
        return out

    @property
    def error_codes(self) -> NDArray[np.int16]:
        """0 for a delivered row, else Kafka's error code, CLIENT_ERROR or PENDING."""
        out = np.full(self.row_count, PENDING, dtype=np.int16)
        if self._refused is not None:
            out[self._refused_rows] = CLIENT_ERROR
        for rows, batch, first in self._pieces():
            if batch.is_done:
                out[rows] = 0
            if batch.error is not None:
                out[rows] = [_code(batch.error_of(first + i)) for i in range(len(rows))]
        return out

    @property
    def errors(self) -> dict[int, Exception]:
        """Row -> error, for the failed rows only, in row order; looking counts as having seen them."""
        failed: dict[int, Exception] = {}
        for rows, batch, first in self._pieces():
            if batch.error is not None:
                batch.mark_seen(first, len(rows))
                common = copy_to_raise(batch.error)  # one for all of a batch: each row its own would be many
                named = batch.record_errors or {}
                failed.update(
                    (int(row), copy_to_raise(named[index]) if index in named else common)
                    for index, row in enumerate(rows, first)
                )
        if self._refused is not None:
            refused = copy_to_raise(self._refused)
            failed.update((row, refused) for row in self._refused_rows)
        return dict(sorted(failed.items()))

    def blamed(self, or_first: bool = False) -> dict[int, Exception]:
        """Row -> error, for the failed rows that the broker named, or that stood alone in their batch.

        Other rows of their batches have failed, too, but nothing is known to be wrong with them. `or_first`: of a batch
        in which the broker named none, its first record: a record that is larger than batch_size begins its batch.
        """
        blamed: dict[int, Exception] = {}
        for rows, batch, first in self._pieces():
            if batch.error is None:
                continue
            batch.mark_seen(first, len(rows))
            named = batch.record_errors or (range(1) if or_first or batch.record_count == 1 else ())
            blamed.update(
                (int(row), copy_to_raise(batch.error_of(first + i) or batch.error))
                for i, row in enumerate(rows)
                if first + i in named
            )
        return blamed

    @property
    def failed_count(self) -> int:
        """How many rows are known to have failed."""
        codes = self.error_codes
        return int(np.count_nonzero((codes != 0) & (codes != PENDING)))

    def _pieces(self) -> Iterator[tuple[NDArray[np.intp], BatchCompletion, int]]:
        """Yield (rows, the batch that holds them, index of the first of them there)."""
        # Rows that were refused come last in their partition, so that they are never reached.
        order = np.argsort(self.partitions, kind="stable")
        starts = np.searchsorted(self.partitions[order], np.arange(int(self.partitions.max(initial=-1)) + 2))
        position: dict[int, int] = {}
        for completion, partition, first, count in self._row_runs:
            begin = position.get(partition, int(starts[partition]))
            position[partition] = begin + count
            rows = order[begin : begin + count]
            for batch, index, length in _runs(completion, first, count):
                yield rows[:length], batch, index
                rows = rows[length:]


def _runs(batch: BatchCompletion, first: int, count: int) -> Iterator[tuple[BatchCompletion, int, int]]:
    """Follow splits down to the batches that hold `count` records from index `first` on."""
    if not batch.is_split:
        yield batch, first, count
        return
    children = batch.children
    for i, (start, child) in enumerate(children):
        end = children[i + 1][0] if i + 1 < len(children) else first + count
        low, high = max(first, start), min(first + count, end)
        if low < high:
            yield from _runs(child, low - start, high - low)


def _leaves(batch: BatchCompletion) -> Iterator[BatchCompletion]:
    if not batch.is_split:
        yield batch
        return
    for _, child in batch.children:
        yield from _leaves(child)


def _wait(batch: BatchCompletion, deadline: Deadline) -> bool:
    if not batch.wait(deadline.remaining()):
        return False
    return all(_wait(child, deadline) for _, child in batch.children or ())


def _is_stored(batch: BatchCompletion, deadline: Deadline) -> bool:
    if not batch.wait_stored(deadline.remaining()):
        return False
    return all(_is_stored(child, deadline) for _, child in batch.children) if batch.is_split else batch.is_stored


def _code(error: Exception | None) -> int:
    if error is None:
        return 0
    code = broker_code(error)
    return CLIENT_ERROR if code is None else code
