"""Write a DataFrame from the user's own program and return a report: Spark 3.5 and later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from kafkaprod.errors import ConfigError
from kafkaprod.spark.exactly_once import no_write_id
from kafkaprod.spark.mark_checks import check_earlier, check_marks
from kafkaprod.spark.options import SinkOptions, parse_options
from kafkaprod.spark.plan import make_plan
from kafkaprod.spark.preflight import check_topic, check_transactions
from kafkaprod.spark.replay import check_frame
from kafkaprod.spark.report import WriteReport
from kafkaprod.spark.streams import StreamRun, stream_over_connect
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
    return _write(df, {**(options or {}), **{name.replace("_", "."): value for name, value in more.items()}}, None)


def _write(df: DataFrame, options: Mapping[str, Any], stream: StreamRun | None) -> WriteReport:
    """Write a DataFrame, which is a micro-batch of the stream if there is one; None: its tasks see what they are."""
    parsed = parse_options(options)
    is_batch = stream is None and not _is_in_stream(df)
    if is_batch and parsed.transactions is not None and not parsed.write_id and hasattr(df, "_jdf"):
        raise ConfigError(no_write_id())  # over Spark Connect the tasks refuse
    plan = replace(make_plan(df.schema, parsed), stream=stream)
    check_topic(parsed)
    if parsed.transactions is not None:
        check_frame(df, parsed.transactions)
        check_transactions(parsed)
        if is_batch and parsed.write_id:
            check_earlier(df, plan, parsed.transactions)
    run: Any = partial(report_task, plan)
    names = df.schema.names
    if any("." in name or "`" in name for name in names) or len({name.lower() for name in names}) < len(names):
        # mapInArrow looks columns up by name, and takes a dot for a field of a struct, and one case for the other.
        df, run = df.toDF(*(f"c{i}" for i in range(len(names)))), partial(report_task, plan, names=names)
    rows = df.mapInArrow(run, REPORT_SCHEMA).collect()
    report = WriteReport.sum(
        sorted((WriteReport.from_json(row.report) for row in rows), key=lambda task: task.partition)
    )
    if parsed.transactions is not None:
        check_marks(plan, parsed.transactions, report.tasks)
    logger.info("written: %s", report)
    return report


def _is_in_stream(df: DataFrame) -> bool:
    """Whether this thread writes a micro-batch: the tasks get the id of the stream from it, as is seen here."""
    return hasattr(df, "_jdf") and bool(df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))


def foreach_batch(options: Mapping[str, Any] | None = None, /, **more: Any) -> Callable[[DataFrame, int], None]:
    """Make a function for `writeStream.foreachBatch`: every output mode, Spark 3.5 and later.

    df.writeStream.foreachBatch(foreach_batch({"kafka.bootstrap.servers": "localhost:9092"}, topic="orders"))

    Over Spark Connect tasks do not learn their stream and micro-batch: there `delivery=transactional` and
    `dedup.headers` need a `write.id`, and each micro-batch is a write of its own by this name and its number. If the
    session has several active streams, the stream must have this name, too: `queryName`.
    """
    given = {**(options or {}), **{name.replace("_", "."): value for name, value in more.items()}}
    streams: list[StreamRun] = []  # the one that calls, once it is known

    def write_batch(df: DataFrame, batch_id: int) -> None:
        if hasattr(df, "_jdf"):
            _write(df, given, None)
            return
        parsed = parse_options(given)
        if parsed.transactions is None and not parsed.is_deduplicable:
            _write(df, given, None)
            return
        if not streams:
            streams.append(stream_over_connect(df, _demand_write_id(parsed)))
        _write(df, of_micro_batch(given, batch_id), streams[0])

    return write_batch


def of_micro_batch(options: Mapping[str, Any], batch_id: int) -> dict[str, Any]:
    """Return options with which a micro-batch is a write of its own: with its number in write.id."""
    name = next(name for name in options if name.lower() == "write.id")
    return {**options, name: f"{options[name]}-{batch_id}"}


def _demand_write_id(options: SinkOptions) -> str:
    """Return the write.id of a stream whose tasks must know which write they belong to.

    Raises:
        ConfigError: There is none.
    """
    if options.write_id is None:
        raise ConfigError(
            "over Spark Connect foreach_batch() with delivery=transactional or dedup.headers=true needs the option "
            "write.id, a name of the stream that stays the same when it is started again: its tasks do not learn which "
            'stream and micro-batch they belong to. format("kafkaprod") of writeStream needs none'
        )
    return options.write_id
