"""Follow blocks of rows that were sent, and move the manifest forward when their outcomes are known."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod.errors import broker_code
from kafkaprod.loader.opening.errors import LoadError
from kafkaprod.loader.positions.manifest import Manifest, Position
from kafkaprod.loader.reports.report import LoadReport
from kafkaprod.loader.reports.spread import Spread
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.results.block import BlockResult

LEAST_BATCH_BYTES: Final = 4096
OTHERS_S: Final = 5.0  # to wait for the outcome of blocks behind one that failed

# After these the log may have rows that the manifest does not know; the tails of the partitions show them.
_LOG_IS_AHEAD: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)
# These mean that a record is wrong, and stays wrong when it is sent again.
_RECORD_REFUSED: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD)


class LogIsAheadError(Exception):
    """The broker has sequence numbers that the attempt did not know of."""


class BatchTooLargeError(Exception):
    """The topic takes smaller batches than the producer makes; only its answer shows that."""


class RowsRefusedError(Exception):
    """The broker does not take some rows.

    Attributes:
        rows: (number of the input, row, why) of each.
    """

    def __init__(self, rows: list[tuple[int, int, str]]) -> None:
        super().__init__(f"{len(rows)} rows")
        self.rows = rows


@dataclass(slots=True)
class SentBlock:
    """A block that was sent: its result, None if nothing of it had to be sent, and what is certain once it is there."""

    result: BlockResult | None
    source: int
    numbers: NDArray[np.int64]  # of the rows that were sent
    rows: NDArray[np.int64]  # of the reader's block, by partition, those passed over counted
    sent_to: NDArray[np.intp]  # the partitions that rows were sent to
    position: Position | None  # None: more of the reader's block follows
    byte_count: int
    bad_count: int
    dead_letter_bytes: int
    spread: Spread | None = None


class InFlight:
    """Holds the blocks of an attempt, oldest first; settling them moves the manifest forward.

    Args:
        manifest: Is changed, in memory.
        report: Counts.
        has_least_batches: The producer makes batches so small that one that is too large is so for its first record.
        can_resume: Whether the load's rows have places by which they are found again; see `recovery`.
    """

    def __init__(self, manifest: Manifest, report: LoadReport, *, can_resume: bool, has_least_batches: bool) -> None:
        self._manifest = manifest
        self._report = report
        self._can_resume = can_resume
        self._has_least_batches = has_least_batches
        self._blocks: deque[SentBlock] = deque()
        # What is settled and not in the manifest yet: more of a block follows, or an end is not known.
        self._ends: dict[int, int] = {}  # by partition
        self._without_end: set[int] = set()  # partitions whose last rows were acknowledged without an offset
        self._rows = np.zeros(manifest.partition_count, dtype=np.int64)
        self._bad_count = 0
        self.is_changed = False  # whether the manifest in memory is newer than the file
        self.is_whole = True  # false while it is being changed, and after a Ctrl-C in the midst of it

    def __len__(self) -> int:
        return len(self._blocks)

    def add(self, block: SentBlock) -> None:
        """Add a block that the producer has."""
        self._blocks.append(block)

    def settle(self, timeout_s: float) -> bool:
        """Take the oldest block if its outcome is known within the time; return whether it was.

        Raises:
            LogIsAheadError, BatchTooLargeError, RowsRefusedError: See there.
            KafkaError: A record was not delivered.
        """
        head = self._blocks[0]
        if head.result is not None:
            if not (head.result.done() if timeout_s == 0.0 else head.result.wait(timeout_s)):
                return False
            self._check(head.result)
        self.is_whole = False
        self._blocks.popleft()
        self._report.sent_count += len(head.numbers)
        self._report.sent_bytes += head.byte_count
        if self._report.spread is not None and head.spread is not None:
            self._report.spread.add(head.spread)
        self._manifest.sent_count += len(head.numbers)
        self._manifest.sent_bytes += head.byte_count
        self.is_changed = True
        if head.result is not None:
            self._take_ends(head.result.ends(), head.sent_to)
        if head.position is not None:
            self._advance(head, head.position)
        self.is_whole = True
        return True

    def _take_ends(self, ends: dict[int, int], partitions: NDArray[np.intp]) -> None:
        """Keep where the log of each partition ended; a broker that knew a batch already may not say it."""
        for number in partitions.tolist():
            if number in ends:
                self._ends[number] = ends[number]
                self._without_end.discard(number)
            else:
                self._without_end.add(number)

    def _advance(self, head: SentBlock, position: Position) -> None:
        """Move the manifest behind a block, unless a partition's end is not known: a later block brings it."""
        self._rows += head.rows
        self._bad_count += head.bad_count
        if self._without_end:
            return
        manifest = self._manifest
        for number in np.flatnonzero(self._rows).tolist():
            state = manifest.partitions[number]
            state.rows += int(self._rows[number])
            if number in self._ends:
                state.sent, state.offset = state.rows, self._ends[number]
        manifest.position = position
        manifest.bad_count += self._bad_count
        manifest.dead_letter_bytes = head.dead_letter_bytes
        self._rows[:] = 0
        self._bad_count = 0
        self._ends.clear()

    def _check(self, result: BlockResult) -> None:
        error = result.first_error()
        if error is None:
            return
        sent = [(block.source, block.numbers, block.result) for block in self._blocks if block.result is not None]
        refused = refused_rows(sent, has_least_batches=self._has_least_batches)
        if refused and not self._can_resume:
            _, row, why = refused[0]
            raise LoadError(
                f"row {row + 1}: {why}. A load leaves out what a broker refuses only if it has a manifest: "
                "without --no-manifest, or with --state DIR"
            ) from error
        if refused:
            raise RowsRefusedError(refused) from error
        if self._can_resume and broker_code(error) in _LOG_IS_AHEAD:
            raise LogIsAheadError(str(error)) from error
        if self._can_resume and broker_code(error) == ErrorCode.MESSAGE_TOO_LARGE:
            raise BatchTooLargeError(str(error)) from error
        raise error


def refused_rows(
    blocks: Iterable[tuple[int, NDArray[np.int64], BlockResult]], *, has_least_batches: bool
) -> list[tuple[int, int, str]]:
    """Return (number of the input, row, why) of rejected rows, in all blocks whose outcome comes soon.

    Args:
        blocks: (number of the input, numbers of the rows, their result).
        has_least_batches: See InFlight.
    """
    deadline_s = time.monotonic() + OTHERS_S
    refused = []
    for source, numbers, result in blocks:
        if not result.wait(max(deadline_s - time.monotonic(), 0.0)):
            continue
        # A batch that failed for another one's sake has another code.
        for row, error in result.blamed(has_least_batches).items():
            if broker_code(error) in _RECORD_REFUSED:
                refused.append((source, int(numbers[row]), f"the broker refused it: {error}"))
    return refused
