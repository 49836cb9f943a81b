"""The data source `kafkaprod`: Spark's plug-in points, which delegate to `plan`, `task` and `reader`.

The life of a write: Spark makes the source and its writer in a process on the driver (once for a batch, once per
micro-batch for a stream), pickles the writer, calls `write` once per task attempt in the executors' Python workers, and
`commit` or `abort` in another process on the driver. Errors before the tasks become AnalysisException.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamReader, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkaprod.errors import ConfigError
from kafkaprod.spark.mark_checks import check_marks
from kafkaprod.spark.options import boolean_option, parse_options
from kafkaprod.spark.plan import WritePlan, make_plan
from kafkaprod.spark.preflight import check_topic, check_topic_of_stream, check_transactions
from kafkaprod.spark.reader import HEADERS, SCHEMA, TopicReader, make_reader
from kafkaprod.spark.report import WriteReport
from kafkaprod.spark.task import write_task
from kafkaprod.spark.worker import freeze_imports

NAME = "kafkaprod"

logger = logging.getLogger("kafkaprod.spark")


@dataclass
class TaskDone(WriterCommitMessage):
    """Carries a task's report to `commit`."""

    report: WriteReport


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame: `df.write.format("kafkaprod").mode("append")`."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return TaskDone(write_task(self._plan, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _commit(self._plan, messages)
        logger.info("written: %s", _sum(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        logger.error("aborted; the tasks that succeeded have written: %s", _sum(messages))


def _commit(plan: WritePlan, messages: Sequence[WriterCommitMessage | None]) -> None:
    freeze_imports()
    if plan.options.transactions is not None:
        tasks = [message.report for message in messages if isinstance(message, TaskDone)]
        check_marks(plan, plan.options.transactions, tasks)


def _sum(messages: Sequence[WriterCommitMessage | None]) -> WriteReport:
    return WriteReport.sum(message.report for message in messages if isinstance(message, TaskDone))


if hasattr(datasource, "DataSourceStreamArrowWriter"):  # Spark 4.1+

    class StreamWriter(datasource.DataSourceStreamArrowWriter):
        """Writes the micro-batches of a stream: `df.writeStream.format("kafkaprod")`."""

        def __init__(self, plan: WritePlan) -> None:
            self._plan = plan

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return TaskDone(write_task(self._plan, iterator))

        def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
            _commit(self._plan, messages)
            logger.info("micro-batch %d written: %s", batchId, _sum(messages))

        def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
            logger.error("micro-batch %d aborted; the tasks that succeeded have written: %s", batchId, _sum(messages))


class KafkaProdSource(DataSource):
    """`format("kafkaprod")`: options and columns as for Spark's own `kafka` sink and source."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        # No other option is required here: a view that is only written to has none.
        return f"{SCHEMA}, {HEADERS}" if boolean_option(self.options, "includeheaders", False) else SCHEMA

    def reader(self, schema: StructType) -> TopicReader:
        freeze_imports()
        self._refuse_catalog_table()
        return make_reader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        raise ConfigError(
            "format('kafkaprod') reads batches, for checks; read a stream with Spark's own source, format('kafka')"
        )

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise ConfigError(
                "Save mode Overwrite not allowed for Kafka: a topic is only appended to. Use mode('append')"
            )
        freeze_imports()
        self._refuse_catalog_table()
        options = parse_options(self.options)
        plan = make_plan(schema, options)
        check_topic(options)
        check_transactions(options)
        return BatchWriter(plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        if "StreamWriter" not in globals():
            raise ConfigError(
                "format('kafkaprod') writes streams from Spark 4.1 on; before that use "
                "writeStream.foreachBatch(kafkaprod.spark.foreach_batch(...))"
            )
        freeze_imports()
        options = parse_options(self.options)
        plan = make_plan(schema, options)
        check_topic_of_stream(options)
        check_transactions(options)
        return StreamWriter(plan)

    def _refuse_catalog_table(self) -> None:
        if not self.options:
            raise ConfigError(
                "there are no options: Spark passes none to a table of its catalog (CREATE TABLE ... USING kafkaprod). "
                "Use CREATE TEMPORARY VIEW ... USING kafkaprod OPTIONS (...), and INSERT INTO or SELECT FROM that"
            )
