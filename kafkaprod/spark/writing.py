"""Writes the rows of one task through a producer, and counts what was acknowledged."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext

from kafkaprod.errors import BufferFullError, DeliveryFailedError, KafkaError
from kafkaprod.producer import Producer
from kafkaprod.spark.deduplication import RowIdentity, with_identity
from kafkaprod.spark.plan import WritePlan
from kafkaprod.spark.report import WriteReport
from kafkaprod.spark.rows import SentRows, send_batch
from kafkaprod.spark.streams import StreamRun

MAX_PENDING_BYTES: Final = 32 << 20  # of rows whose outcome was not checked yet; they keep Spark's batches in memory
SMALL_BYTES: Final = 512 << 10  # a smaller batch of Spark's is joined with others, up to
JOINED_BYTES: Final = 4 << 20


class FailedRecordError(KafkaError):
    """A record was not delivered; the message has topic, partition, row of the task, and the error."""


class TaskWriter:
    """Writes a task's rows.

    Args:
        plan: Maps the columns.
        producer: Serves this task alone while it runs.
        report: Filled in.
    """

    def __init__(self, plan: WritePlan, producer: Producer, report: WriteReport) -> None:
        self._plan = plan
        self._producer = producer
        self._report = report
        self._pending: collections.deque[SentRows] = collections.deque()
        self._pending_bytes = 0
        self._identity = _identity(plan, report) if plan.options.is_deduplicable else None
        self._last_batch: dict[tuple[str, int], int] = {}  # base offset of the last record batch that was counted

    def run(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Write the rows and wait until each is acknowledged.

        Raises:
            FailedRecordError: A record was not delivered; others may have been.
        """
        row = 0
        for batch in _joined(batches):
            self._report.bytes += batch.get_total_buffer_size()
            self._send(batch, row)
            row += batch.num_rows
        try:
            self._producer.flush()
        except DeliveryFailedError:
            self._settle(0)  # raises with the record, if it is among those still pending
            raise
        self._settle(0)
        if self._report.rows != row:  # must not happen; but Spark would take the task's end for success
            raise FailedRecordError(
                f"task {self._report.partition} had {row} rows, of which {self._report.rows} were acknowledged"
            )

    def _send(self, batch: pa.RecordBatch, first_row: int) -> None:
        try:
            headers = "headers" if self._plan.headers >= 0 else None
            if self._identity is not None:
                batch, headers = with_identity(batch, headers, self._identity, first_row)
            for sent in send_batch(self._producer, self._plan, batch, headers, first_row):
                self._pending.append(sent)
                self._pending_bytes += sent.size
        except BufferFullError:
            self._settle(0)  # a failed record explains more than the memory it holds
            raise
        except KafkaError as error:
            raise FailedRecordError(
                f"task {self._report.partition}, in its rows from {first_row} (row numbers below count from there): "
                f"{type(error).__name__}: {error}"
            ) from error
        self._settle(MAX_PENDING_BYTES)

    def _settle(self, limit: int) -> None:
        """Wait for the oldest rows and count them until at most `limit` bytes are pending."""
        while self._pending and (limit == 0 or self._pending_bytes > limit):
            sent = self._pending.popleft()
            self._pending_bytes -= sent.size
            sent.result.wait()
            if self._count(sent) < len(sent.result):
                for row, error in sent.result.errors.items():
                    raise FailedRecordError(self._describe(sent, row, error)) from error

    def _count(self, sent: SentRows) -> int:
        """Count the delivered rows."""
        report = self._report
        delivered = 0
        for partition, base_offset, first, count in sent.result.runs():
            delivered += count
            start = base_offset + first if base_offset >= 0 else -1
            report.add_range(sent.topic, partition, start, start + count - 1 if start >= 0 else -1, count)
            place = (sent.topic, partition)
            if self._last_batch.get(place) != base_offset:
                self._last_batch[place] = base_offset
                report.batches += 1
        report.rows += delivered
        return delivered

    def _describe(self, sent: SentRows, row: int, error: Exception) -> str:
        partition, number = int(sent.result.partitions[row]), sent.first_row + int(sent.rows[row])
        return (
            f"record of topic {sent.topic!r}, partition {partition}, row {number} of task {self._report.partition} "
            f"was not delivered: {type(error).__name__}: {error}"
        )


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches, in their order: the work per batch costs more than the copy."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        size = batch.get_total_buffer_size()
        if size < SMALL_BYTES:
            held.append(batch)
            held_bytes += size
        if size >= SMALL_BYTES or held_bytes >= JOINED_BYTES:
            yield from _join(held)
            held, held_bytes = [], 0
        if size >= SMALL_BYTES:
            yield batch
    yield from _join(held)


def _join(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) > 1:
        batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return [batch for batch in batches if batch.num_rows]


def _identity(plan: WritePlan, report: WriteReport) -> RowIdentity:
    """Return the identity, which is the same for every attempt at the task and for a replayed micro-batch."""
    context = TaskContext.get()
    batch, stream = None, plan.stream
    if context is not None:
        batch, stream = context.getLocalProperty("streaming.sql.batchId"), stream or StreamRun.of_task(context)
    if stream is None:
        query = plan.write_id
    else:  # a new checkpoint begins again at micro-batch 0, also under the same write.id
        query = stream.id if plan.options.write_id is None else f"{plan.options.write_id}-{stream.id}"
    return RowIdentity(query, int(batch or 0), max(report.partition, 0))


def retry_count(producer: Producer) -> int:
    """Return how many records the producer has sent again; it serves one task at a time."""
    metrics: dict[str, Any] = producer.metrics()["producer-metrics"]
    return int(metrics["record-retry-total"])
