"""Write a DataFrame from the user's own program and return a report: Spark 3.5 and later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from kafkaprod.errors import ConfigError
from kafkaprod.spark.exactly_once import check_marks, no_write_id
from kafkaprod.spark.options import SinkOptions, parse_options
from kafkaprod.spark.plan import make_plan
from kafkaprod.spark.preflight import check_topic, check_transactions
from kafkaprod.spark.replay import check_frame
from kafkaprod.spark.report import WriteReport
from kafkaprod.spark.task import REPORT_SCHEMA, report_task

logger = logging.getLogger("kafkaprod.spark")


def write(df: DataFrame, options: Mapping[str, Any] | None = None, /, **more: Any) -> WriteReport:
    """Write a DataFrame to Kafka and return a report of it.

        report = write(df, {"kafka.bootstrap.servers": "localhost:9092"}, topic="orders")

    Args:
        df: Columns as for Spark's own sink: value, and optionally key, headers, topic, partition, timestamp.
        options: As for `format("kafkaprod")`. Values may also be objects, for example a token provider.
        more: More options; underscores replace dots.

    Returns: One report of all tasks; `.tasks` has each.
    Raises: ConfigError, before anything is sent, for options and columns; KafkaError for an unknown topic;
        pyspark's PythonException for a record that was not delivered, after Spark's retries.
    """
    if not hasattr(df, "mapInArrow"):
        kind = type(df)
        raise ConfigError(f"df is a {kind.__module__}.{kind.__qualname__}, not Spark's: use spark.createDataFrame()")
    parsed = parse_options({**(options or {}), **{name.replace("_", "."): value for name, value in more.items()}})
    _check_write_id(df, parsed)
    plan = make_plan(df.schema, parsed)
    check_topic(parsed)
    if parsed.transactions is not None:
        check_frame(df, parsed.transactions)
        check_transactions(parsed)
    rows = df.mapInArrow(partial(report_task, plan), REPORT_SCHEMA).collect()
    report = WriteReport.sum(
        sorted((WriteReport.from_json(row.report) for row in rows), key=lambda task: task.partition)
    )
    if parsed.transactions is not None:
        check_marks(plan, parsed.transactions, report.tasks)
    logger.info("written: %s", report)
    return report


def _check_write_id(df: DataFrame, options: SinkOptions) -> None:
    """Refuse transactions of a write that has no name; the tasks get the query's id from this thread, as is seen here.

    Spark Connect does not show it: there the tasks refuse.
    """
    if options.transactions is None or options.write_id or not hasattr(df, "_jdf"):
        return
    if not df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"):
        raise ConfigError(no_write_id())


def foreach_batch(options: Mapping[str, Any] | None = None, /, **more: Any) -> Callable[[DataFrame, int], None]:
    """Make a function for `writeStream.foreachBatch`: every output mode, Spark 3.5 and later.

    df.writeStream.foreachBatch(foreach_batch({"kafka.bootstrap.servers": "localhost:9092"}, topic="orders"))

    Over Spark Connect tasks do not learn their stream and micro-batch: there `delivery=transactional` and
    `dedup.headers` need a `write.id`, and each micro-batch is a write of its own by this name and its number.
    """
    given = {**(options or {}), **{name.replace("_", "."): value for name, value in more.items()}}

    def write_batch(df: DataFrame, batch_id: int) -> None:
        write(df, given if hasattr(df, "_jdf") else of_micro_batch(given, batch_id))

    return write_batch


def of_micro_batch(options: Mapping[str, Any], batch_id: int) -> dict[str, Any]:
    """Return options with which a micro-batch is a write of its own.

    Raises:
        ConfigError: There is no write.id, and tasks must know which write they belong to.
    """
    name = next((name for name in options if name.lower() == "write.id"), None)
    if name is not None:
        return {**options, name: f"{options[name]}-{batch_id}"}
    parsed = parse_options(options)
    if parsed.transactions is not None or parsed.is_deduplicable:
        raise ConfigError(
            "over Spark Connect foreach_batch() with delivery=transactional or dedup.headers=true needs the option "
            "write.id, a name of the stream that stays the same when it is started again: its tasks do not learn which "
            'stream and micro-batch they belong to. format("kafkaprod") of writeStream needs none'
        )
    return dict(options)
