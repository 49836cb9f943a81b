"""A load from beginning to end: sessions over the inputs until every row has its outcome.

A session reads from the manifest's position on, passes over what the log has (`recovery`), sends block by block, and
writes the manifest again when blocks have been acknowledged. It ends with the input, with an error, or where the
broker has sequence numbers that we did not know of; then the next session begins by reading the tails again.
Memory: what the producer holds (buffer_memory), one block, and four bytes per row that is on its way.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.row_splitter import count_partitions
from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import log_offsets
from kafkaprod.completion import BlockResult
from kafkaprod.errors import BrokerError, KafkaError
from kafkaprod.loader.bad_rows import BadRowSink
from kafkaprod.loader.errors import BadRow, LoadError
from kafkaprod.loader.inputs import Source
from kafkaprod.loader.manifest import Manifest, ManifestFile, PartitionState, Position
from kafkaprod.loader.partitioning import choose_partitions, run_length
from kafkaprod.loader.producing import LoadProducer, new_producer_id
from kafkaprod.loader.readers import ReadOptions, read_rows
from kafkaprod.loader.recovery import read_tails
from kafkaprod.loader.report import LoadReport
from kafkaprod.loader.rows import RowBlock
from kafkaprod.protocol.error_codes import ErrorCode

WAIT_S: Final = 0.5
MAX_RESTARTS: Final = 10  # sessions in a row without a row acknowledged
SALVAGE_S: Final = 10.0
PARTS_A_SECOND: Final = 20
RECORD_OVERHEAD: Final = 128  # of a record and its batch, at most
HEADER_OVERHEAD: Final = 10

# After these the log may have rows that we do not know of: reading the tails tells.
_LOG_IS_AHEAD: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)

_log = logging.getLogger("kafkaprod.loader")


class Progress(Protocol):
    """Who is told how the load goes on."""

    def on_block(self, record_count: int, byte_count: int, position: Position) -> None:
        """Records were handed to the producer."""

    def on_bad(self) -> None:
        """A row was bad."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What to load, and how.

    Attributes:
        topic: Where to.
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


@dataclass(slots=True)
class _Pending:
    """A block on its way: its result, None if nothing of it had to be sent, and what is certain once it is there."""

    result: BlockResult | None
    rows: NDArray[np.int64]  # by partition, those passed over counted
    position: Position | None  # None: more of the reader's block follows
    record_count: int
    byte_count: int
    bad_count: int
    dead_letter_bytes: int


class _LogIsAheadError(Exception):
    """The broker has sequence numbers that the session did not know of."""


class Load:
    """One load.

    Args:
        sources: The inputs.
        reading: How to read them.
        options: Where to, and how.
        client: For questions to the cluster.
        sink: Of bad rows.
        progress: Is told.
        manifest_file: None: the load cannot be resumed, and its producer looks after itself as any other.
        manifest: To go on from; None: begin.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        reading: ReadOptions,
        options: LoadOptions,
        client: ClusterClient,
        sink: BadRowSink,
        progress: Progress,
        manifest_file: ManifestFile | None = None,
        manifest: Manifest | None = None,
    ) -> None:
        self._sources = sources
        self._reading = reading
        self._options = options
        self._client = client
        self._sink = sink
        self._progress = progress
        self._file = manifest_file
        self._manifest = manifest
        self.report = LoadReport(options.topic)
        self._pending: deque[_Pending] = deque()
        self._next_checkpoint_s = 0.0
        self._next_part_s = 0.0
        self._is_changed = False  # whether the manifest in memory is newer than the file

    def run(self) -> LoadReport:
        """Load everything.

        Raises:
            LoadError, KafkaError, OSError: It stopped; what was acknowledged is in the manifest.
            KeyboardInterrupt: Likewise, after waiting a little for what was on its way.
        """
        started = time.monotonic()
        is_resumed = self._manifest is not None
        if self._manifest is None:
            self._manifest = self.begin()
        restarts = 0
        try:
            while not self._manifest.is_done:
                before = self.report.sent_count
                try:
                    self._run_session(self._manifest, reads_tails=is_resumed)
                except _LogIsAheadError as error:
                    restarts = 0 if self.report.sent_count > before else restarts + 1
                    if restarts > MAX_RESTARTS:
                        raise LoadError(f"the log changes while it is read: {error}") from error
                    _log.info("reading the ends of the partitions again: %s", error)
                    is_resumed = True
        finally:
            self.report.seconds = time.monotonic() - started
        self.report.is_complete = True
        return self.report

    @property
    def run_rows(self) -> int:
        """How many rows without a key go to one partition in a row, once the load runs."""
        return 0 if self._manifest is None else self._manifest.run_rows

    def begin(self) -> Manifest:
        """The manifest of a load that has done nothing yet; written before the first record is sent."""
        topic = self._options.topic
        cluster = self._client.metadata([topic])
        topic_id = cluster.topics[0].topic_id
        if self._file is None:  # nothing will be asked about this load later
            ends = dict.fromkeys(range(len(cluster.topics[0].partitions)), 0)
            producer_id = epoch = -1
        else:
            ends = log_offsets(self._client, topic)
            producer_id, epoch = new_producer_id(self._client)
        manifest = Manifest(
            topic=topic,
            topic_id=None if topic_id is None else str(topic_id),
            cluster_id=cluster.cluster_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            partition_count=len(ends),
            run_rows=self._run_rows(),
            options=self._options.fingerprint,
            inputs=[describe_source(source) for source in self._sources],
            position=Position(),
            partitions={number: PartitionState(0, 0, end) for number, end in ends.items()},
            dead_letter_bytes=self._sink.position(),
        )
        if self._options.partition is not None and self._options.partition >= len(ends):
            raise LoadError(f"topic {topic!r} has {len(ends)} partitions, none with number {self._options.partition}")
        if self._file is not None:
            self._file.write(manifest)
        return manifest

    def _run_rows(self) -> int:
        """Length of runs, judged by the first rows; stdin cannot be looked at twice."""
        if self._sources[0].path == "-":
            return 4096
        first = next((block for block in read_rows(self._sources[0], self._reading) if block.row_count), None)
        return 4096 if first is None else run_length(first)

    # --- a session -------------------------------------------------------------------------------------------------

    def _run_session(self, manifest: Manifest, *, reads_tails: bool) -> None:
        if reads_tails:
            for number, tail in read_tails(self._client, manifest).items():
                state = manifest.partitions[number]
                state.sent, state.offset = tail.rank, tail.offset
        skip = np.zeros(manifest.partition_count, dtype=np.int64)
        for number, state in manifest.partitions.items():
            skip[number] = state.sent - state.rows
        identity = None if manifest.producer_id < 0 else (manifest.producer_id, manifest.producer_epoch)
        sent = {number: state.sent for number, state in manifest.partitions.items() if identity is not None}
        producer = LoadProducer(self._options.producer, manifest.topic, identity, sent)
        self._pending.clear()
        self._next_checkpoint_s = time.monotonic() + self._options.checkpoint_s
        is_clean = False
        try:
            self._send_all(producer, manifest, skip)
            is_clean = True
        except (KafkaError, OSError, KeyboardInterrupt):
            self._salvage(producer, manifest)
            raise
        finally:
            self.report.take_latencies(producer.latencies)
            producer.close(None if is_clean else 0)
        manifest.is_done = True
        self._checkpoint(manifest)

    def _send_all(self, producer: LoadProducer, manifest: Manifest, skip: NDArray[np.int64]) -> None:
        for index, rows_before, block in self._blocks(manifest.position):
            position = Position(index, block.end_row, block.end_offset, rows_before)
            self._send(producer, manifest, block, position, skip)
            while self._pending and self._settle(manifest, timeout_s=0.0):
                pass
        while self._pending:
            self._settle(manifest, timeout_s=WAIT_S)

    def _blocks(self, position: Position) -> Iterator[tuple[int, int, RowBlock]]:
        """(number of the input, rows of those before it, block) from a position on."""
        rows_before, row, offset = position.rows_before, position.row, position.offset
        for index in range(position.source, len(self._sources)):
            end_row = row
            for block in read_rows(self._sources[index], self._reading, row, offset):
                end_row = block.end_row
                yield index, rows_before, block
            rows_before += end_row
            row = offset = 0

    def _send(
        self, producer: LoadProducer, manifest: Manifest, block: RowBlock, position: Position, skip: NDArray[np.int64]
    ) -> None:
        """Sort out bad rows, pass over those that the log has, hand the rest to the producer."""
        block, bad = self._sort_out(manifest, block, position.source)
        is_stopped = bool(bad) and self._sink.stops
        if is_stopped:
            block = block.select(block.numbers < bad[0].row)
        partitions = self._partitions(manifest, block, position.rows_before)
        rows = np.zeros(manifest.partition_count, dtype=np.int64)
        count_partitions(partitions.data, rows.data)
        if skip.any():
            block, partitions = self._pass_over(block, partitions, rows, skip)
        if not is_stopped:
            for row in bad:
                self._sink.put(row)
                self._progress.on_bad()
        for part, part_partitions in self._at_rate(block, partitions):
            result = None
            if part.row_count:
                result = producer.send_columns(
                    manifest.topic,
                    part.value,
                    part.key,
                    part.header_columns(),
                    part.timestamps,
                    part_partitions,
                    row_count=part.row_count,
                )
            size = int(part.sizes().sum())
            is_last = part.end_row == block.end_row and not is_stopped
            self._pending.append(
                _Pending(
                    result, rows, position if is_last else None, part.row_count, size, len(bad), self._sink.position()
                )
            )
            self._progress.on_block(part.row_count, size, position)
        if is_stopped:
            self._sink.put(bad[0])

    def _sort_out(self, manifest: Manifest, block: RowBlock, source: int) -> tuple[RowBlock, list[BadRow]]:
        """The rows that can be sent, and those that cannot, by what is known before they are sent.

        It must say the same of a row whenever it is asked: a resumed load counts rows.
        """
        bad = list(block.bad)
        name = self._sources[source].name
        refused = {row for number, row in manifest.refused if number == source}
        if refused:
            block = block.select(~np.isin(block.numbers, list(refused)))
        if block.partitions is not None and self._options.partition is None:
            wrong = (block.partitions < -1) | (block.partitions >= manifest.partition_count)
            if wrong.any():
                places = np.flatnonzero(wrong)
                bad += [
                    self._bad_row(name, block, i, f"partition {block.partitions[i]} of {manifest.partition_count}")
                    for i in places
                ]
                block = block.without(places)
        limit = self._options.record_limit - RECORD_OVERHEAD - HEADER_OVERHEAD * len(block.headers)
        sizes = block.sizes()
        if block.row_count and sizes.max() > limit:
            places = np.flatnonzero(sizes > limit)
            why = f"of record_limit={self._options.record_limit} ({self._options.record_limit_from})"
            bad += [
                self._bad_row(name, block, i, f"a record of {sizes[i]} bytes is over the limit {why}") for i in places
            ]
            block = block.without(places)
        if self._options.needs_keys and block.row_count:
            places = np.array([i for i in range(block.row_count) if block.key is None or block.key[i] is None], np.intp)
            if len(places):
                why = f"topic {manifest.topic!r} is compacted, and the row has no key"
                bad += [self._bad_row(name, block, i, why) for i in places]
                block = block.without(places)
        return block, sorted(bad, key=lambda row: row.row)

    def _bad_row(self, source: str, block: RowBlock, place: int | np.intp, reason: str) -> BadRow:
        value = None if block.value is None else block.value[int(place)]
        return BadRow(source, int(block.numbers[place]), reason, value or b"")

    def _partitions(self, manifest: Manifest, block: RowBlock, rows_before: int) -> NDArray[np.int32]:
        return choose_partitions(
            block, rows_before, manifest.run_rows, manifest.partition_count, self._options.partition
        )

    def _pass_over(
        self, block: RowBlock, partitions: NDArray[np.int32], rows: NDArray[np.int64], skip: NDArray[np.int64]
    ) -> tuple[RowBlock, NDArray[np.int32]]:
        """Take out the first `skip` rows of each partition, which are in the log, and count `skip` down."""
        keep = np.ones(block.row_count, dtype=np.bool_)
        for number in np.flatnonzero(skip):
            places = np.flatnonzero(partitions == number)[: skip[number]]
            keep[places] = False
            skip[number] -= len(places)
        self.report.passed_count += int((~keep).sum())
        return block.select(keep), partitions[keep]

    def _at_rate(self, block: RowBlock, partitions: NDArray[np.int32]) -> Iterator[tuple[RowBlock, NDArray[np.int32]]]:
        """The block, or parts of it at the wanted rate."""
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

    # --- what came back --------------------------------------------------------------------------------------------

    def _settle(self, manifest: Manifest, timeout_s: float) -> bool:
        """Take the oldest block if its outcome is known within the time; return whether it was.

        Raises:
            _LogIsAheadError: See there.
            KafkaError: A record was not delivered.
        """
        head = self._pending[0]
        if head.result is not None:
            if not (head.result.done() if timeout_s == 0.0 else head.result.wait(timeout_s)):
                self._maybe_checkpoint(manifest)
                return False
            self._check(head.result)
        self._pending.popleft()
        self.report.sent_count += head.record_count
        self.report.sent_bytes += head.byte_count
        if head.position is not None:
            self.report.bad_count += head.bad_count
            self._advance(manifest, head, head.position)
        self._maybe_checkpoint(manifest)
        return True

    def _check(self, result: BlockResult) -> None:
        error = result.first_error()
        if error is None:
            return
        if self._file is not None and isinstance(error, BrokerError) and error.code in _LOG_IS_AHEAD:
            raise _LogIsAheadError(str(error)) from error
        raise error

    def _advance(self, manifest: Manifest, head: _Pending, position: Position) -> None:
        ends = {} if head.result is None else head.result.ends()
        for number in np.flatnonzero(head.rows).tolist():
            state = manifest.partitions[number]
            state.rows += int(head.rows[number])
            if number in ends:
                state.sent, state.offset = state.rows, ends[number]
        manifest.position = position
        manifest.sent_count += head.record_count
        manifest.bad_count += head.bad_count
        manifest.sent_bytes += head.byte_count
        manifest.dead_letter_bytes = head.dead_letter_bytes
        self._is_changed = True

    def _maybe_checkpoint(self, manifest: Manifest) -> None:
        if self._is_changed and time.monotonic() >= self._next_checkpoint_s:
            self._checkpoint(manifest)

    def _checkpoint(self, manifest: Manifest) -> None:
        self._sink.sync()
        if self._file is not None:
            self._file.write(manifest)
        self._is_changed = False
        self._next_checkpoint_s = time.monotonic() + self._options.checkpoint_s

    def _salvage(self, producer: LoadProducer, manifest: Manifest) -> None:
        """The session is over: wait a little for what is on its way, so that the manifest tells most of it."""
        with contextlib.suppress(KafkaError, TimeoutError, _LogIsAheadError):
            producer.flush(SALVAGE_S)
            while self._pending and self._settle(manifest, timeout_s=0.0):
                pass
        with contextlib.suppress(KafkaError):
            self._checkpoint(manifest)


def describe_source(source: Source) -> dict[str, Any]:
    """What must be the same of an input when a load is resumed."""
    path = source.path if source.path == "-" else os.path.abspath(source.path)
    return {
        "path": path,
        "member": source.member,
        "format": source.format,
        "compression": source.compression,
        "size": source.size,
        "mtime_ns": source.mtime_ns,
    }
