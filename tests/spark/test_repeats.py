"""Tasks and micro-batches that run more than once: nothing is lost, and readers of the headers see each row once."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.spark import write
from kafkaprod.spark.options import parse_options
from kafkaprod.spark.plan import WritePlan, make_plan
from kafkaprod.spark.task import REPORT_SCHEMA, report_task
from tests.spark.streams import run_stream
from tests.spark.topics import read_topic, seen_once
from tests.support.broker.fixtures_broker import wait_until

ROWS = 20_000
Fault = Callable[[], None]


def fail() -> None:
    raise RuntimeError("half way")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def failing_task(plan: WritePlan, fault: Fault, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The sink's task, whose first attempt comes to grief after some batches were sent."""
    context = TaskContext.get()
    assert context is not None

    def disturbed() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 2 and context.attemptNumber() == 0:
                fault()
            yield batch

    yield from report_task(plan, disturbed())


@pytest.mark.parametrize("fault", [fail, die])
def test_task_that_is_run_again_loses_no_row(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str, fault: Fault
) -> None:
    # Batches too large to be joined, so that the first attempt has sent some when it fails.
    df = spark.range(0, ROWS, 1, 2).selectExpr("lpad(cast(id as string), 1000, '0') as value")
    options = {
        "kafka.bootstrap.servers": embedded_broker.bootstrap_servers,
        "kafka.buffer.memory": "65536",  # so that the first attempt's rows are sent before its end
        "kafka.batch.size": "4096",
        "kafka.max.request.size": "32768",
        "topic": topic_name,
        "dedup.headers": "true",
    }
    plan = make_plan(df.schema, parse_options(options))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    try:
        df.mapInArrow(partial(failing_task, plan, fault), REPORT_SCHEMA).collect()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    count, values = seen_once(embedded_broker.bootstrap_servers, topic_name)
    assert count > ROWS
    assert values == [str(number).encode().rjust(1000, b"0") for number in range(ROWS)]


def test_broker_that_is_killed_and_comes_back_loses_no_row(spark: SparkSession) -> None:
    with EmbeddedBroker(topics={"t": 3}) as broker:
        df = spark.range(0, ROWS, 1, 2).selectExpr("repeat(cast(id as string), 50) as value")
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.buffer.memory": "131072",
            "kafka.batch.size": "4096",
            "kafka.max.request.size": "65536",
        }

        def kill() -> None:
            wait_until(lambda: read_topic(broker.bootstrap_servers, "t"), "the first rows are in the topic")
            broker.kill()
            broker.start()

        killer = threading.Thread(target=kill)
        killer.start()
        report = write(df, options, topic="t")
        killer.join()
        rows = read_topic(broker.bootstrap_servers, "t")
    assert report.rows == ROWS
    assert {row.value for row in rows} == {str(number).encode() * 50 for number in range(ROWS)}


@pytest.mark.parametrize("by_batch", [pytest.param(False, marks=pytest.mark.spark("4.1")), True])
def test_micro_batch_replayed_from_its_checkpoint_is_recognised(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str, tmp_path: Path, by_batch: bool
) -> None:
    """As after a driver that died between a micro-batch's last record and the note that it is done."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    options = {
        "kafka.bootstrap.servers": embedded_broker.bootstrap_servers,
        "topic": topic_name,
        "dedup.headers": "true",
    }
    source.mkdir()
    (source / "1.txt").write_text("\n".join(str(number) for number in range(1000)))
    run_stream(spark.readStream.text(str(source)), checkpoint, options, by_batch)
    assert seen_once(embedded_broker.bootstrap_servers, topic_name)[0] == 1000
    for note in (checkpoint / "commits").glob("*0*"):
        note.unlink()
    (source / "2.txt").write_text("\n".join(str(number) for number in range(1000, 1500)))
    run_stream(spark.readStream.text(str(source)), checkpoint, options, by_batch)
    count, values = seen_once(embedded_broker.bootstrap_servers, topic_name)
    assert count == 2500  # the first file twice
    assert values == sorted((str(number).encode() for number in range(1500)), key=repr)
