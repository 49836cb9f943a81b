"""Run one session of a load: read from the manifest's position on, send, move the manifest forward. See `load`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.row_partitions import count_partitions
from kafkaprod.errors import KafkaError
from kafkaprod.loader.bad_rows import BadRowSink
from kafkaprod.loader.errors import BadRow
from kafkaprod.loader.in_flight import (
    LEAST_BATCH_BYTES,
    BatchTooLargeError,
    InFlight,
    LogIsAheadError,
    RowsRefusedError,
    SentBlock,
)
from kafkaprod.loader.inputs import Source
from kafkaprod.loader.manifest import Manifest, Position
from kafkaprod.loader.manifest_file import ManifestFile
from kafkaprod.loader.partitioning import choose_partitions
from kafkaprod.loader.producing import LoadProducer
from kafkaprod.loader.readers import ReadOptions, read_rows
from kafkaprod.loader.report import LoadReport
from kafkaprod.loader.rows import RowBlock
from kafkaprod.loader.screening import Screen

WAIT_S: Final = 0.5
SALVAGE_S: Final = 10.0
INTERRUPTED_S: Final = 0.4  # the same after Ctrl-C: the user waits for the prompt
PARTS_A_SECOND: Final = 20


class Progress(Protocol):
    """Is informed of how the load advances."""

    def on_block(self, record_count: int, byte_count: int, position: Position) -> None:
        """Count records that the producer got."""

    def on_bad(self) -> None:
        """Count a bad row."""

    def on_retries(self, count: int) -> None:
        """Set how many records were sent again so far."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Describes where to send, and how.

    Attributes:
        topic: The load's topic.
        producer: Options of the producer, by their own names.
        record_limit: Most bytes of a record, and in words where that comes from.
        needs_keys: Rows without a key are bad: the topic is compacted.
        checkpoint_s: How often the manifest is written.
        partition: One for all records; None: by row.
        rate: Records a second at most; None: as fast as it goes.
        fingerprint: What decides which records a row becomes; must be the same to resume.
    """

    topic: str
    producer: Mapping[str, Any]
    record_limit: int
    record_limit_from: str = "max_request_size"
    needs_keys: bool = False
    checkpoint_s: float = 1.0
    partition: int | None = None
    rate: float | None = None
    fingerprint: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    """Holds what all sessions of a load have in common.

    Attributes:
        sources: The inputs.
        reading: How to read them.
        options: The topic, and how to send.
        sink: Of bad rows.
        progress: Is informed of blocks and bad rows.
        manifest_file: None: the load cannot be resumed, and its producer is an ordinary one.
        report: Counts.
    """

    sources: Sequence[Source]
    reading: ReadOptions
    options: LoadOptions
    sink: BadRowSink
    progress: Progress
    manifest_file: ManifestFile | None
    report: LoadReport


class Session:
    """Runs one session.

    Args:
        job: What to do.
        manifest: Where to begin; is changed.
    """

    def __init__(self, job: Job, manifest: Manifest) -> None:
        self._sources = job.sources
        self._reading = job.reading
        self._options = job.options
        self._sink = job.sink
        self._progress = job.progress
        self._file = job.manifest_file
        self._report = job.report
        self._manifest = manifest
        identity = None if manifest.producer_id < 0 else (manifest.producer_id, manifest.producer_epoch)
        sent = {number: state.sent for number, state in manifest.partitions.items() if identity is not None}
        options = dict(self._options.producer)
        if manifest.batch_bytes is not None:
            options["batch_size"] = manifest.batch_bytes
        self._producer = LoadProducer.open(options, manifest.topic, identity, sent)
        self._in_flight = InFlight(
            manifest,
            self._report,
            can_resume=self._file is not None,
            has_least_batches=manifest.batch_bytes == LEAST_BATCH_BYTES,
        )
        self._skip = np.zeros(manifest.partition_count, dtype=np.int64)  # rows of each to skip: the log has them
        for number, state in manifest.partitions.items():
            self._skip[number] = state.sent - state.rows
        self._next_checkpoint_s = time.monotonic() + self._options.checkpoint_s
        self._next_part_s = 0.0
        self._can_checkpoint = True
        self.has_sent = False  # whether a row was given to the producer

    def run(self) -> None:
        """Send everything that is left.

        Raises:
            LogIsAheadError, BatchTooLargeError, RowsRefusedError: Another session must continue from the manifest.
            LoadError, KafkaError, OSError, KeyboardInterrupt: See Load.run().
        """
        is_clean = False
        try:
            self._send_all()
            is_clean = True
        except KeyboardInterrupt:
            self._salvage(INTERRUPTED_S)
            raise
        except (KafkaError, OSError):
            self._salvage(SALVAGE_S)
            raise
        finally:
            self._report.take(self._producer.latencies, self._producer.retry_count)
            self._producer.close(None if is_clean else 0)
        self._manifest.finish()
        self._checkpoint()

    def _send_all(self) -> None:
        screen = self._screen()
        for index, rows_before, block in self._blocks(self._manifest.position):
            position = Position(index, block.end_row, block.end_offset, rows_before)
            refused = {row: why for source, row, why in self._manifest.refused if source == index}
            good, bad = screen.sort_out(block, self._sources[index].name, refused)
            self._send(good, bad, position)
            while self._in_flight and self._in_flight.settle(timeout_s=0.0):
                pass
            self._maybe_checkpoint()
        while self._in_flight:
            self._in_flight.settle(timeout_s=WAIT_S)
            self._maybe_checkpoint()

    def _screen(self) -> Screen:
        options = self._options
        return Screen(
            topic=self._manifest.topic,
            partition_count=self._manifest.partition_count,
            record_limit=options.record_limit,
            record_limit_from=options.record_limit_from,
            needs_keys=options.needs_keys,
            ignores_wishes=options.partition is not None,
        )

    def _blocks(self, position: Position) -> Iterator[tuple[int, int, RowBlock]]:
        """Yield (number of the input, rows of those before it, block) from a position on."""
        rows_before, row, offset = position.rows_before, position.row, position.offset
        for index in range(position.source, len(self._sources)):
            end_row = row
            for block in read_rows(self._sources[index], self._reading, row, offset):
                end_row = block.end_row
                yield index, rows_before, block
            rows_before += end_row
            row = offset = 0

    def _send(self, block: RowBlock, bad: list[BadRow], position: Position) -> None:
        """Give bad rows to the sink, skip those that the log has, give the rest to the producer."""
        is_stopped = bool(bad) and self._sink.stops
        if is_stopped:
            block = block.select(block.numbers < bad[0].row)
        if block.row_count and not self._report.has_keys:
            self._report.has_keys = block.has_keys()
        partitions = self._partitions(block, position.rows_before)
        rows = np.zeros(self._manifest.partition_count, dtype=np.int64)
        count_partitions(partitions.data, rows.data)
        if self._skip.any():
            block, partitions = self._pass_over(block, partitions)
        if not is_stopped:
            for row in bad:
                self._sink.put(row)
                self._progress.on_bad()
        for part, part_partitions in self._at_rate(block, partitions):
            result = None
            if part.row_count:
                self.has_sent = True
                result = self._producer.send_columns(
                    self._manifest.topic,
                    part.value,
                    part.key,
                    part.header_columns(),
                    part.timestamps,
                    part_partitions,
                    row_count=part.row_count,
                )
            size = int(part.sizes().sum())
            is_last = part.end_row == block.end_row and not is_stopped
            self._in_flight.add(
                SentBlock(
                    result=result,
                    source=position.source,
                    numbers=part.numbers,
                    rows=rows,
                    position=position if is_last else None,
                    byte_count=size,
                    bad_count=len(bad),
                    dead_letter_bytes=self._sink.position(),
                )
            )
            self._progress.on_block(part.row_count, size, position)
        if is_stopped:
            self._sink.put(bad[0])

    def _partitions(self, block: RowBlock, rows_before: int) -> NDArray[np.int32]:
        return choose_partitions(
            block, rows_before, self._manifest.run_rows, self._manifest.partition_count, self._options.partition
        )

    def _pass_over(self, block: RowBlock, partitions: NDArray[np.int32]) -> tuple[RowBlock, NDArray[np.int32]]:
        """Take out the rows that are in the log: the first ones of each partition."""
        keep = np.ones(block.row_count, dtype=np.bool_)
        for number in np.flatnonzero(self._skip):
            places = np.flatnonzero(partitions == number)[: self._skip[number]]
            keep[places] = False
            self._skip[number] -= len(places)
        self._report.passed_count += int((~keep).sum())
        return block.select(keep), partitions[keep]

    def _at_rate(self, block: RowBlock, partitions: NDArray[np.int32]) -> Iterator[tuple[RowBlock, NDArray[np.int32]]]:
        """Yield the block, or parts of it at the set rate."""
        rate = self._options.rate
        if rate is None:
            yield block, partitions
            return
        step = max(int(rate / PARTS_A_SECOND), 1)
        places = np.arange(block.row_count)
        for first in range(0, max(block.row_count, 1), step):
            keep = (places >= first) & (places < first + step)
            is_last = first + step >= block.row_count
            part = replace(block.select(keep), end_row=block.end_row if is_last else -1)
            now_s = time.monotonic()
            time.sleep(max(self._next_part_s - now_s, 0.0))
            self._next_part_s = max(self._next_part_s, now_s) + part.row_count / rate
            yield part, partitions[keep]

    # --- the manifest ----------------------------------------------------------------------------------------------

    def _maybe_checkpoint(self) -> None:
        if time.monotonic() >= self._next_checkpoint_s:
            self._progress.on_retries(self._report.retry_count + self._producer.retry_count)
            if self._in_flight.is_changed:
                self._checkpoint()

    def _checkpoint(self, timeout_s: float | None = None) -> None:
        self._can_checkpoint = False  # a manifest must not be ahead of bad rows that are not kept yet
        self._sink.sync(timeout_s)
        self._can_checkpoint = True
        if self._file is not None:
            self._file.write(self._manifest)
        self._in_flight.is_changed = False
        self._next_checkpoint_s = time.monotonic() + self._options.checkpoint_s

    def _salvage(self, wait_s: float) -> None:
        """Wait a little for what is in flight, and write the manifest, after a session was stopped.

        What the manifest lacks is found in the log; one that a Ctrl-C left half changed is not written.
        """
        if not self._in_flight.is_whole or not self._can_checkpoint:
            return
        with contextlib.suppress(KafkaError, TimeoutError, LogIsAheadError, BatchTooLargeError, RowsRefusedError):
            with contextlib.suppress(TimeoutError):
                self._producer.flush(wait_s)
            while self._in_flight and self._in_flight.settle(timeout_s=0.0):
                pass
        with contextlib.suppress(KafkaError, TimeoutError):
            self._checkpoint(wait_s)
