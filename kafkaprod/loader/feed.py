"""Read blocks of rows from a position on, and decide what becomes of each row: left out, or sent to which partition.

Both follow from the input and the options alone, so that a second reading gives the same answer: a resumed
load counts rows. A row goes to the partition it names; else to murmur2 of its key, as Kafka's default partitioner does;
else runs of `run_rows` rows fill one partition after the other. Unlike the producer's own choice this does not avoid
slow brokers.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.row_partitions import partitions_of_keys, partitions_of_runs
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.formats.rows import RowBlock
from kafkaprod.loader.opening.errors import BadRow, LoadError
from kafkaprod.loader.opening.opening import keep_digest, open_source
from kafkaprod.loader.opening.pipes import Pipe, is_pipe_name
from kafkaprod.loader.opening.prefix import AHEAD_BYTES, DIGEST_DIGITS
from kafkaprod.loader.opening.source import Source
from kafkaprod.loader.positions.manifest import Position

RUN_BYTES: Final = 256 << 10
DEFAULT_RUN_ROWS: Final = 4096
PARTS_A_SECOND: Final = 20
RECORD_OVERHEAD: Final = 128  # of a record and its batch, at most
HEADER_OVERHEAD: Final = 10
_NONE: Final = np.zeros(0, dtype=np.intp)


class Turn(NamedTuple):
    """Holds a block of the input.

    Attributes:
        block: The rows that can be sent.
        partitions: The partition of each.
        bad: The rows that cannot, in order.
        position: The position of the first row after the block.
        start: The position of its first row.
    """

    block: RowBlock
    partitions: NDArray[np.int32]
    bad: list[BadRow]
    position: Position
    start: Position


@dataclass(frozen=True, slots=True)
class Target:
    """Describes what the topic takes, and how rows are spread over it.

    Attributes:
        topic: Its name.
        partition_count: Rows are spread over these.
        run_rows: Consecutive rows without a key that go to one partition.
        fixed: One partition for all rows; None: choose.
        record_limit: Most bytes of a record.
        record_limit_from: Where that limit comes from, in words.
        needs_keys: Rows without a key are bad: the topic is compacted.
    """

    topic: str
    partition_count: int
    run_rows: int
    fixed: int | None
    record_limit: int
    record_limit_from: str
    needs_keys: bool


class Feed:
    """Reads the inputs of a load.

    Args:
        sources: The inputs.
        reading: How to read them.
        target: Where rows go.
        rate: Records a second at most; None: as fast as it goes.
        can_resume: Pipes are compared with what they were when the load is continued.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        reading: ReadOptions,
        target: Target,
        rate: float | None,
        *,
        can_resume: bool = False,
    ) -> None:
        self._sources = sources
        if can_resume:
            for source in sources:
                keep_digest(source)
        self._reading = reading
        self._target = target
        self._rate = rate
        self._next_part_s = 0.0

    def turns(self, position: Position, refused: Sequence[tuple[int, int, str]]) -> Iterator[Turn]:
        """Yield block after block from a position on.

        Args:
            position: Where to begin.
            refused: (number of the input, row, why) of rows that a broker did not take.

        Raises:
            LoadError, OSError: As read_rows().
        """
        rows_before, row, offset = position.rows_before, position.row, position.offset
        prefix, pipes = (position.read_bytes, position.digest), self._pipes_before(position)
        for index in range(position.source, len(self._sources)):
            end_row = row
            pipe = self._sources[index].pipe
            if pipe is not None:
                pipe.expect_prefix(*prefix)
            of_source = {number: why for source, number, why in refused if source == index}
            for block in read_rows(self._sources[index], self._reading, row, offset):
                before = prefix
                if pipe is not None:
                    pipe.check_prefix()
                    prefix = pipe.prefix()
                start = Position(index, end_row, offset, rows_before, *(before if before[1] else prefix), pipes)
                if pipe is not None and block.is_tail:
                    prefix = pipe.prefix(is_end=True)
                end_row, offset = block.end_row, block.end_offset
                good, bad = sort_out(block, self._sources[index].name, self._target, of_source)
                partitions = choose_partitions(good, rows_before, self._target)
                yield Turn(good, partitions, bad, Position(index, end_row, offset, rows_before, *prefix, pipes), start)
            if pipe is not None:
                pipe.check_prefix()  # where no row is left
                pipes = _with_pipe(pipes, pipe)
            rows_before += end_row
            row = offset = 0
            prefix = 0, ""

    def _pipes_before(self, position: Position) -> str:
        """Read the pipes before a position to their ends, and compare them; return their digest. Raises LoadError."""
        pipes = ""
        for source in self._sources[: position.source]:
            if source.pipe is None or not position.pipes:
                continue
            if source.compression != "zip":  # an archive's directory was read
                with open_source(source) as stream:
                    while stream.read(AHEAD_BYTES):
                        pass
            pipes = _with_pipe(pipes, source.pipe)
        if pipes != position.pipes:
            raise LoadError(
                f"the pipes before input {position.source + 1} are not those that an earlier run of the load "
                "read: give the same bytes again, or start over with --restart"
            )
        return pipes

    def at_rate(self, block: RowBlock, partitions: NDArray[np.int32]) -> Iterator[tuple[RowBlock, NDArray[np.int32]]]:
        """Yield the block, or parts of it at the set rate; `end_row` of all parts but the last is -1."""
        if self._rate is None:
            yield block, partitions
            return
        step = max(int(self._rate / PARTS_A_SECOND), 1)
        places = np.arange(block.row_count)
        for first in range(0, max(block.row_count, 1), step):
            keep = (places >= first) & (places < first + step)
            is_last = first + step >= block.row_count
            part = replace(block.select(keep), end_row=block.end_row if is_last else -1)
            now_s = time.monotonic()
            time.sleep(max(self._next_part_s - now_s, 0.0))
            self._next_part_s = max(self._next_part_s, now_s) + part.row_count / self._rate
            yield part, partitions[keep]


def _with_pipe(pipes: str, pipe: Pipe) -> str:
    """Return the digest of pipes and of one more, which was read to its end; empty: it has no digest."""
    count, digest = pipe.prefix()
    return hashlib.sha256(f"{pipes} {count} {digest}".encode()).hexdigest()[:DIGEST_DIGITS] if digest else ""


# -- partitions --------------------------------------------------------------------------------------------------------


def choose_partitions(block: RowBlock, rows_before: int, target: Target) -> NDArray[np.int32]:
    """Return the partition of each row; -1 where the row names one that does not exist.

    Args:
        block: The rows.
        rows_before: Rows of the inputs before this one.
        target: Where rows go.
    """
    if target.fixed is not None:
        return np.full(block.row_count, target.fixed, dtype=np.int32)
    partitions = np.empty(block.row_count, dtype=np.int32)
    partitions_of_runs(block.numbers.data, rows_before, target.run_rows, target.partition_count, partitions.data)
    if block.key is not None:
        partitions_of_keys(block.key, target.partition_count, partitions.data)
    if block.partitions is not None:
        partitions = np.where(block.partitions == -1, partitions, block.partitions)
        partitions[(partitions < 0) | (partitions >= target.partition_count)] = -1
    return partitions


def run_length(sources: Sequence[Source], reading: ReadOptions) -> int:
    """Return the length of runs by the size of the first rows; those of stdin and pipes may take long to come."""
    if is_pipe_name(sources[0].path):
        return DEFAULT_RUN_ROWS
    first = next((block for block in read_rows(sources[0], reading) if block.row_count), None)
    return DEFAULT_RUN_ROWS if first is None else run_length_of(first)


def run_length_of(block: RowBlock) -> int:
    """Return how many rows have about RUN_BYTES, by the average of a block."""
    average = float(block.sizes().mean())
    return int(min(max(RUN_BYTES / max(average, 1), 1), 65_536))


# -- bad rows ----------------------------------------------------------------------------------------------------------


def sort_out(block: RowBlock, source: str, target: Target, refused: Mapping[int, str]) -> tuple[RowBlock, list[BadRow]]:
    """Return the rows that can be sent, and all those that cannot, in order.

    Args:
        block: The rows.
        source: Name of their input.
        target: Where they go.
        refused: Rows that a broker did not take, by number, and why.
    """
    bad = list(block.bad)
    for places, reasons in (
        _refused(block, refused),
        _wrong_partitions(block, target),
        _too_large(block, target),
        _without_keys(block, target),
    ):
        bad += [_bad_row(source, block, int(place), why) for place, why in zip(places, reasons, strict=True)]
    if not bad:
        return block, bad
    if len(bad) > len(block.bad):
        block = block.select(~np.isin(block.numbers, [row.row for row in bad]))
    first_reasons = {row.row: row for row in reversed(bad)}
    return block, block.located(first_reasons[number] for number in sorted(first_reasons))


def _refused(block: RowBlock, refused: Mapping[int, str]) -> tuple[NDArray[np.intp], list[str]]:
    places = np.flatnonzero(np.isin(block.numbers, list(refused))) if refused else _NONE
    return places, [refused[int(block.numbers[place])] for place in places]


def _wrong_partitions(block: RowBlock, target: Target) -> tuple[NDArray[np.intp], list[str]]:
    if block.partitions is None or target.fixed is not None:
        return _NONE, []
    places = np.flatnonzero((block.partitions < -1) | (block.partitions >= target.partition_count))
    return places, [f"partition {block.partitions[place]} of {target.partition_count}" for place in places]


def _too_large(block: RowBlock, target: Target) -> tuple[NDArray[np.intp], list[str]]:
    limit = target.record_limit - RECORD_OVERHEAD - HEADER_OVERHEAD * len(block.headers)
    sizes = block.sizes()
    if sizes.max(initial=0) <= limit:
        return _NONE, []
    places = np.flatnonzero(sizes > limit)
    why = f"of record_limit={target.record_limit} ({target.record_limit_from})"
    return places, [f"a record of {sizes[place]} bytes is over the limit {why}" for place in places]


def _without_keys(block: RowBlock, target: Target) -> tuple[NDArray[np.intp], list[str]]:
    if not target.needs_keys:
        return _NONE, []
    places = np.array([i for i in range(block.row_count) if block.key is None or block.key[i] is None], np.intp)
    return places, [f"topic {target.topic!r} is compacted, and the row has no key"] * len(places)


def _bad_row(source: str, block: RowBlock, place: int, reason: str) -> BadRow:
    value = None if block.value is None else block.value[place]
    return BadRow(source, int(block.numbers[place]), reason, value or b"")
