"""Run a load from beginning to end: attempts over the inputs until every row has its outcome.

An attempt reads from the manifest's position on, skips what the log has (`recovery`), sends block by block, and writes
the manifest again when blocks are acknowledged. It ends with the input, with an error, where the broker has sequence
numbers that the attempt does not know, or where it rejects a row; then the next attempt begins by reading the tails
again. A rejected row is a bad row for the next attempt, which has its bytes again.
Memory: what the producer holds (buffer_memory), two blocks, and twelve bytes per row in flight.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.producer_ids import new_producer_id
from kafkaprod.admin.topics import log_offsets
from kafkaprod.loader.attempt import Attempt, Job, LoadOptions, Progress
from kafkaprod.loader.bad_rows import BadRowSink
from kafkaprod.loader.feed import run_length
from kafkaprod.loader.formats.readers import ReadOptions
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.loader.opening.pipes import STDIN
from kafkaprod.loader.opening.source import Source
from kafkaprod.loader.positions.in_flight import (
    LEAST_BATCH_BYTES,
    BatchTooLargeError,
    LogIsAheadError,
    RowsRefusedError,
)
from kafkaprod.loader.positions.manifest import Manifest, PartitionState, Position
from kafkaprod.loader.positions.manifest_file import ManifestFile
from kafkaprod.loader.positions.recovery import check_complete, read_tails
from kafkaprod.loader.reports.report import LoadReport
from kafkaprod.text import counted

MAX_RESTARTS: Final = 10  # attempts in a row without a row acknowledged

logger = logging.getLogger("kafkaprod.loader")


class Load:
    """Runs one load.

    Args:
        sources: The inputs.
        reading: How to read them.
        options: The topic, and how to send.
        client: Asks the cluster.
        sink: The sink of bad rows.
        progress: Is informed of blocks and bad rows.
        manifest_file: None: the load cannot be resumed, and its producer is an ordinary one.
        manifest: To continue from; None: begin.
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
        self._file = manifest_file
        self._manifest = manifest
        self._before: bytes | None = None  # the file of a load before this one
        self.has_sent = manifest is not None  # whether a row may be in the log
        path = None if manifest_file is None else str(manifest_file.path)
        self.report = LoadReport(options.topic, manifest=path, retention_ms=options.retention_ms)
        self._job = Job(sources, reading, options, sink, progress, manifest_file, self.report)

    def run(self) -> LoadReport:
        """Load everything.

        Raises:
            LoadError, KafkaError, OSError: It stopped; what was acknowledged is in the manifest.
            KeyboardInterrupt: The same, after waiting a little for what is in flight.
        """
        started = time.monotonic()
        is_resumed = self._manifest is not None
        if self._manifest is None:
            self._manifest = self.begin()
        restarts = 0
        is_first = True
        if self._manifest.is_done:
            check_complete(self._client, self._manifest)
            self._options.expected.check_rows(self._manifest.sent_count + self._manifest.bad_count, is_end=True)
            self.report.passed_count = self._manifest.sent_count
        try:
            while not self._manifest.is_done:
                before = self.report.sent_count
                try:
                    if is_resumed:
                        self._read_tails(self._manifest, is_first=is_first)
                        before = self.report.sent_count
                    is_first = False
                    self._run_attempt(self._manifest)
                except RowsRefusedError as error:
                    self._manifest.refused += error.rows
                    self._restart(self._manifest, error)
                except BatchTooLargeError as error:
                    self._make_batches_smaller(self._manifest, error)
                    self._restart(self._manifest, error)
                except LogIsAheadError as error:
                    restarts = 0 if self.report.sent_count > before else restarts + 1
                    if restarts > MAX_RESTARTS:
                        raise LoadError(f"the log changes while it is read: {error}") from error
                    self._restart(self._manifest, error)
                is_resumed = True
        except BaseException:
            if not self.has_sent and self._file is not None:
                self._file.put_back(self._before)  # the command may be corrected and given again
            raise
        finally:
            self.report.seconds = time.monotonic() - started
            self.report.sent_in_all = self._manifest.sent_count
            self.report.bad_in_all = self._manifest.bad_count
        self.report.is_complete = True
        return self.report

    def _run_attempt(self, manifest: Manifest) -> None:
        attempt = Attempt(self._job, manifest)
        try:
            attempt.run()
        finally:
            self.has_sent = self.has_sent or attempt.has_sent

    @property
    def run_rows(self) -> int:
        """Return how many consecutive rows without a key go to one partition, once the load runs."""
        return 0 if self._manifest is None else self._manifest.run_rows

    def _read_tails(self, manifest: Manifest, *, is_first: bool) -> None:
        """Take over what the log has, rows too that no manifest counted before the process died."""
        for number, tail in read_tails(self._client, manifest).items():
            state = manifest.partitions[number]
            state.sent, state.offset = tail.rank, tail.offset
        manifest.sent_count = sum(state.sent for state in manifest.partitions.values())
        if is_first:
            self.report.passed_count = manifest.sent_count
        self.report.sent_count = manifest.sent_count - self.report.passed_count

    def _restart(self, manifest: Manifest, error: Exception) -> None:
        """Prepare another attempt. Raises LoadError if the input cannot be read again; the manifest is written then."""
        if self._is_pipe:
            if self._file is not None:
                self._sink.sync()
                self._file.write(manifest)
            raise LoadError(
                "a part of the input must be read again, which is not possible with a pipe: run the command with "
                "--resume and the same bytes"
            ) from error
        self._sink.rewind(manifest.dead_letter_bytes)
        logger.info("reading the ends of the partitions again: %s", error)

    @property
    def _is_pipe(self) -> bool:
        return any(source.pipe is not None for source in self._sources)

    def _make_batches_smaller(self, manifest: Manifest, error: Exception) -> None:
        least = LEAST_BATCH_BYTES if self._is_pipe else 0  # on a pipe the user must start each try by hand: one try
        manifest.batch_bytes = least or smaller_batches(manifest.batch_bytes, self._options.producer, error)

    def begin(self) -> Manifest:
        """Return the manifest of a load that has sent nothing yet, and write it."""
        topic = self._options.topic
        cluster = self._client.metadata([topic])
        topic_id = cluster.topics[0].topic_id
        if self._file is None:  # the load is never resumed
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
            run_rows=run_length(self._sources, self._reading),
            options=self._options.fingerprint,
            inputs=[describe_source(source) for source in self._sources],
            position=Position(),
            partitions={number: PartitionState(0, 0, end) for number, end in ends.items()},
            dead_letter_bytes=self._sink.position(),
        )
        if self._options.partition is not None and self._options.partition >= len(ends):
            partitions = counted(len(ends), "partition")
            raise LoadRefusedError(f"topic {topic!r} has {partitions}, but no partition {self._options.partition}")
        if self._file is not None:
            self._before = self._file.content()
            self._file.write(manifest)
        return manifest


def smaller_batches(size: int | None, options: Mapping[str, Any], error: Exception) -> int:
    """Return the next smaller size of batches to try. Raises LoadError if there is none.

    Args:
        size: The size of the batches that the topic did not take; None: as the options set it.
        options: The options of the producer.
        error: The broker's.
    """
    size = size or int(options.get("batch_size", 1 << 20))
    if size <= LEAST_BATCH_BYTES:
        raise LoadError(f"the topic takes no batch of {size} bytes: {error}") from error
    return max(size // 2, LEAST_BATCH_BYTES)


def describe_source(source: Source) -> dict[str, Any]:
    """Return what must be the same of an input when a load is resumed."""
    remote = source.remote
    is_path = source.path != STDIN and remote is None
    return {
        "path": os.path.abspath(source.path) if is_path else source.path,
        "member": source.member,
        "format": source.format,
        "compression": source.compression,
        "size": source.size,
        "mtime_ns": source.mtime_ns,
        "encoding": source.encoding,
        **({} if remote is None else {"validator": remote.validator}),
    }
