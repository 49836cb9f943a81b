"""Run one attempt of a load: read from the manifest's position on, send, move the manifest forward. See `load`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.row_partitions import count_partitions
from kafkaprod.errors import KafkaError
from kafkaprod.loader.bad_rows import BadRowSink
from kafkaprod.loader.feed import Feed, Target, Turn
from kafkaprod.loader.finding.expected import Expected
from kafkaprod.loader.finding.paths import Listing
from kafkaprod.loader.formats.readers import ReadOptions
from kafkaprod.loader.formats.rows import RowBlock
from kafkaprod.loader.opening.source import Source
from kafkaprod.loader.positions.in_flight import (
    LEAST_BATCH_BYTES,
    BatchTooLargeError,
    InFlight,
    LogIsAheadError,
    RowsRefusedError,
    SentBlock,
)
from kafkaprod.loader.positions.manifest import Manifest, Position
from kafkaprod.loader.positions.manifest_file import ManifestFile
from kafkaprod.loader.producing import LoadProducer
from kafkaprod.loader.reports.report import LoadReport
from kafkaprod.loader.reports.spread import Spread

WAIT_S: Final = 0.5
SALVAGE_S: Final = 10.0
INTERRUPTED_S: Final = 0.4  # the same after Ctrl-C: the user waits for the prompt


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
        producer: Options of the producer, by their own names; not shown, for the secrets in them.
        record_limit: Most bytes of a record, and in words where that comes from.
        needs_keys: Rows without a key are bad: the topic is compacted.
        checkpoint_s: How often the manifest is written.
        partition: One for all records; None: by row.
        rate: Records a second at most; None: as fast as it goes.
        fingerprint: What decides which records a row becomes; must be the same to resume.
        expected: What the whole input has.
        listing: The files that folders and patterns had.
        known_files: Absolute paths of other files of the load that may be there.
        retention_ms: How long the topic keeps records by their timestamps; None: for ever, or not known.
    """

    topic: str
    producer: Mapping[str, Any] = field(repr=False)
    record_limit: int
    record_limit_from: str = "max_request_size"
    needs_keys: bool = False
    checkpoint_s: float = 1.0
    partition: int | None = None
    rate: float | None = None
    fingerprint: dict[str, Any] = field(default_factory=dict)
    expected: Expected = field(default_factory=Expected)
    listing: Listing = field(default_factory=Listing)
    known_files: tuple[str, ...] = ()
    retention_ms: int | None = None

    def check_end(self, row_count: int) -> None:
        """Compare the whole input, of which so many rows were read, with what it should be and what it was.

        Raises:
            UnexpectedInputError, LoadError: It is not complete.
        """
        self.expected.check_rows(row_count, is_end=True)
        self.listing.check(self.known_files)

    def target(self, partition_count: int, run_rows: int) -> Target:
        """Return what the topic takes."""
        limit = self.record_limit, self.record_limit_from
        return Target(self.topic, partition_count, run_rows, self.partition, *limit, self.needs_keys)


@dataclass(frozen=True, slots=True)
class Job:
    """Holds what all attempts of a load have in common.

    Attributes:
        sources: The inputs.
        reading: How to read them.
        options: The topic, and how to send.
        sink: The sink of bad rows.
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


class Attempt:
    """Runs one attempt.

    Args:
        job: What to do.
        manifest: Where to begin; is changed.
    """

    def __init__(self, job: Job, manifest: Manifest) -> None:
        self._sources = job.sources
        self._options = job.options
        self._sink = job.sink
        self._progress = job.progress
        self._file = job.manifest_file
        self._report = job.report
        self._manifest = manifest
        target = self._options.target(manifest.partition_count, manifest.run_rows)
        self._feed = Feed(job.sources, job.reading, target, self._options.rate, can_resume=self._file is not None)
        identity = None if manifest.producer_id < 0 else (manifest.producer_id, manifest.producer_epoch)
        sent = {number: state.sent for number, state in manifest.partitions.items() if identity is not None}
        options = dict(self._options.producer)
        if manifest.batch_bytes is not None:
            options["batch_size"] = manifest.batch_bytes
        self._producer = LoadProducer.open(
            options, manifest.topic, identity, sent, None if identity is None else manifest.cluster_id
        )
        self._in_flight = InFlight(
            manifest,
            self._report,
            can_resume=self._file is not None,
            has_least_batches=manifest.batch_bytes == LEAST_BATCH_BYTES,
        )
        self._skip = np.zeros(manifest.partition_count, dtype=np.int64)  # rows of each to skip: the log has them
        for number, state in manifest.partitions.items():
            self._skip[number] = state.sent - state.rows
        self._read_count = sum(state.rows for state in manifest.partitions.values()) + manifest.bad_count
        self._next_checkpoint_s = time.monotonic() + self._options.checkpoint_s
        self._can_checkpoint = True
        self.has_sent = False  # whether a row was given to the producer

    def run(self) -> None:
        """Send everything that is left.

        Raises:
            LogIsAheadError, BatchTooLargeError, RowsRefusedError: Another attempt must continue from the manifest.
            LoadError, KafkaError, OSError, KeyboardInterrupt: See Load.run().
        """
        is_clean = False
        try:
            self._send_all()
            self._options.check_end(self._read_count)
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
        for turn in self._feed.turns(self._manifest.position, self._manifest.refused):
            self._send(turn)
            self._settle_what_is_done()
            self._maybe_checkpoint()
        while self._in_flight:
            self._in_flight.settle(timeout_s=WAIT_S)
            self._maybe_checkpoint()

    def _settle_what_is_done(self) -> None:
        while self._in_flight and self._in_flight.settle(timeout_s=0.0):
            pass

    def _send(self, turn: Turn) -> None:
        """Give bad rows to the sink, skip those that the log has, give the rest to the producer."""
        block, partitions, bad, position = turn[:4]
        if turn.start.pipes != self._manifest.position.pipes:  # rows after a pipe must not be taken for more of it
            self._move_to(turn.start)
        self._read_count += block.row_count + len(bad)
        self._options.expected.check_rows(self._read_count, is_end=False)
        is_stopped = bool(bad) and self._sink.stops
        if is_stopped:
            keep = (block.numbers < bad[0].row) & (not block.is_tail)
            block, partitions = block.select(keep), partitions[keep]
        elif block.is_tail:
            self._end_within_row(turn)
        self._report.note(block)
        rows = np.zeros(self._manifest.partition_count, dtype=np.int64)
        count_partitions(partitions.data, rows.data)
        if self._skip.any():
            block, partitions = self._pass_over(block, partitions)
        if not is_stopped:
            for row in bad:
                self._sink.put(row)
                self._progress.on_bad()
        for part, part_partitions in self._feed.at_rate(block, partitions):
            result = None
            if part.row_count:
                if not self.has_sent:
                    self._note_before_sending()
                self.has_sent = True
                result = self._producer.send_block(self._manifest.topic, part, part_partitions)
            counts = np.zeros_like(rows)
            count_partitions(part_partitions.data, counts.data)
            size = int(part.sizes().sum())
            is_last = part.end_row == block.end_row and not is_stopped
            self._in_flight.add(
                SentBlock(
                    result=result,
                    source=position.source,
                    numbers=part.numbers,
                    rows=rows,
                    sent_to=np.flatnonzero(counts),
                    position=position if is_last else None,
                    byte_count=size,
                    bad_count=len(bad),
                    dead_letter_bytes=self._sink.position(),
                    spread=None if self._report.spread is None else Spread.of(part.sizes(), counts),
                )
            )
            self._progress.on_block(part.row_count, size, position)
            self._settle_what_is_done()  # at a rate a block takes long: a record that has failed ends the load now
        if is_stopped:
            self._sink.put(bad[0])

    def _end_within_row(self, turn: Turn) -> None:
        """Before a row without an end is sent, have the whole input compared, and its end kept.

        The next run must find the input end there, too: what came of a row that was cut is then in the log.
        """
        source = turn.position.source
        if source == len(self._sources) - 1:
            self._options.check_end(self._read_count)
        if self._sources[source].pipe is not None:
            read = turn.position.read_bytes, turn.position.digest
            self._move_to(replace(turn.start, read_bytes=read[0], digest=read[1]))

    def _move_to(self, position: Position) -> None:
        """Have a position kept before rows behind it are sent."""
        if self._file is None:
            return
        while self._in_flight:
            self._in_flight.settle(timeout_s=WAIT_S)
        self._manifest.position = position
        self._checkpoint()

    def _pass_over(self, block: RowBlock, partitions: NDArray[np.int32]) -> tuple[RowBlock, NDArray[np.int32]]:
        """Take out the rows that are in the log: the first ones of each partition."""
        keep = np.ones(block.row_count, dtype=np.bool_)
        for number in np.flatnonzero(self._skip):
            places = np.flatnonzero(partitions == number)[: self._skip[number]]
            keep[places] = False
            self._skip[number] -= len(places)
        return block.select(keep), partitions[keep]

    # -- the manifest --------------------------------------------------------------------------------------------------

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
            self._note_pipe()
            self._file.write(self._manifest)
        self._in_flight.is_changed = False
        self._next_checkpoint_s = time.monotonic() + self._options.checkpoint_s

    def _note_before_sending(self) -> None:
        """Keep a pipe's digest before rows of it are in the log, where a later run finds and skips them."""
        source = self._manifest.position.source
        if self._file is not None and self._sources[source].pipe is not None and not self._manifest.position.digest:
            self._note_pipe()
            self._file.write(self._manifest)

    def _note_pipe(self) -> None:
        """Give the position of a pipe's first block a digest, too: what was read by now is what must come again."""
        position = self._manifest.position
        pipe = self._sources[position.source].pipe if position.source < len(self._sources) else None
        if pipe is not None and not position.digest:
            read_bytes, digest = pipe.prefix()
            self._manifest.position = replace(position, read_bytes=read_bytes, digest=digest)

    def _salvage(self, wait_s: float) -> None:
        """Wait a little for what is in flight, and write the manifest, after an attempt was stopped.

        What the manifest lacks is found in the log; one that a Ctrl-C left half changed is not written.
        """
        if not self._in_flight.is_whole or not self._can_checkpoint:
            return
        with contextlib.suppress(KafkaError, TimeoutError, LogIsAheadError, BatchTooLargeError, RowsRefusedError):
            with contextlib.suppress(TimeoutError):
                self._producer.flush(wait_s)
            while self._in_flight and self._in_flight.settle(timeout_s=0.0):
                pass
        if self.has_sent or self._in_flight.is_changed:  # else an input that was refused would become the load's
            with contextlib.suppress(KafkaError, TimeoutError):
                self._checkpoint(wait_s)
