"""The part that runs on executors: it writes the rows of one task to Kafka and waits until all are acknowledged."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from kafkaprod.spark.exactly_once import write_exactly_once
from kafkaprod.spark.input_end import whole, worker_input
from kafkaprod.spark.plan import WritePlan
from kafkaprod.spark.pool import borrowed_producer
from kafkaprod.spark.report import WriteReport
from kafkaprod.spark.worker import freeze_imports
from kafkaprod.spark.writing import TaskWriter, retry_count

REPORT_SCHEMA: Final = "report string"


def write_task(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> WriteReport:
    """Write a task's rows and wait until every one is acknowledged or, with delivery=transactional, committed.

    Raises:
        FailedRecordError: A record was not delivered; others may have been. Spark runs the task again.
        InputCutError: The rows were cut off; with delivery=transactional nothing is committed.
        KafkaError: As `write_exactly_once`.
    """
    started_ns = time.perf_counter_ns()
    freeze_imports()
    context = TaskContext.get()
    report = WriteReport()
    if context is not None:
        report.partition, report.attempt = context.partitionId(), context.attemptNumber()
    transactions = plan.options.transactions
    source = worker_input()
    batches = whole(batches, source, report.partition, is_proof_needed=transactions is not None)
    first = next(batches, None)
    if first is None:  # an empty partition needs no connection
        return report
    batches = itertools.chain((first,), batches)
    if transactions is not None:
        write_exactly_once(plan, transactions, batches, source, report)
    else:
        with borrowed_producer(plan.options.kafka) as producer:
            retries_before = retry_count(producer)
            TaskWriter(plan, producer, report).run(batches)
            report.retries = retry_count(producer) - retries_before
    report.seconds = (time.perf_counter_ns() - started_ns) / 1e9
    return report


def report_task(
    plan: WritePlan, batches: Iterator[pa.RecordBatch], names: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Run `write_task` in `mapInArrow`: yield one row, the report as JSON.

    Args:
        plan: The plan of the write.
        batches: The rows.
        names: The columns' names, where Spark has others; None: those of the batches.
    """
    report = write_task(plan, batches if names is None else (batch.rename_columns(list(names)) for batch in batches))
    yield pa.RecordBatch.from_pydict({"report": [report.to_json()]})
