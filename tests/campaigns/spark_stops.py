"""Spark writes that are stopped from outside, again and again: `python -m tests.campaigns.spark_stops --stages 10`.

    stages       the stage of a batch write is cancelled while its tasks send; the write is made again with its write.id
    queries      a stream's query is stopped inside a micro-batch, and started again from its checkpoint
    connect      over Spark Connect: a stage before the sink fails once for each task, of a batch or a stream, or the
                 write is interrupted and made again; needs grpcio and grpcio-status, and runs in a process of its own

All writes have `delivery=transactional`; a reader of committed data must see each row once. Only what came while rows
were sent counts as a fault: a write that ended with an error, a query that had not come to its end.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.campaigns.spark_faults import Tally, add_files, await_records, new_topic, rows_of, save
from tests.spark.failing_stages import BATCHES, expected_values, fails_in_python
from tests.spark.sessions import local_session
from tests.spark.stalls import await_end
from tests.spark.streaming_driver import FILES_A_BATCH, SMALL_BUFFER
from tests.spark.streams import run_stream, start_stream
from tests.spark.targets import target
from tests.spark.topics import count_of

STOPS_A_QUERY = 5
SIZE = {"spark__sql__execution__arrow__maxRecordsPerBatch": "1000"}


def save_until_whole(
    df: DataFrame, servers: str, topic: str, rng: random.Random, stop: Callable[[], object], stops: int
) -> int:
    """Write, stopped so often while rows are sent, until a write ends well; return how many were stopped."""
    by_format, stopped = rng.random() < 0.5, 0
    while True:
        before = count_of(servers, topic)
        is_done = threading.Event()
        watcher = threading.Thread(target=_stop_once, args=(servers, topic, before, rng.uniform(0, 0.4), is_done, stop))
        if stopped < stops:
            watcher.start()
        try:
            save(df, servers, topic, by_format, is_transactional=True)
            return stopped
        except Exception as error:
            if stopped >= stops:
                raise
            print(f"{topic}: {type(error).__name__}", flush=True)
            stopped += 1
        finally:
            is_done.set()
            if watcher.ident is not None:
                watcher.join()


def _stop_once(
    servers: str, topic: str, before: int, delay_s: float, is_done: threading.Event, stop: Callable[[], object]
) -> None:
    while count_of(servers, topic) <= before:
        if is_done.wait(0.01):
            return
    if not is_done.wait(delay_s):
        stop()


# -- stages ------------------------------------------------------------------------------------------------------------


def cancel_stages(spark: SparkSession) -> None:
    """Cancel what runs now."""
    context = spark.sparkContext
    for stage in context.statusTracker().getActiveStageIds():
        context._jsc.sc().cancelStage(stage)  # PySpark has cancelJob and cancelAllJobs only


def run_stages(spark: SparkSession, servers: str, rng: random.Random, tally: Tally) -> None:
    """One batch write, cancelled up to twice."""
    df, expected = rows_of(spark)
    topic = new_topic()
    tally.faults += save_until_whole(df, servers, topic, rng, partial(cancel_stages, spark), rng.randrange(1, 3))
    tally.add(servers, topic, expected)


# -- queries -----------------------------------------------------------------------------------------------------------


def start_query(spark: SparkSession, options: dict[str, str], directory: Path, by_batch: bool) -> Any:
    """Start the stream of a directory, a few files a micro-batch."""
    rows = spark.readStream.option("maxFilesPerTrigger", str(FILES_A_BATCH)).text(str(directory / "in"))
    return start_stream(rows, directory / "checkpoint", options, by_batch)


def run_query(spark: SparkSession, servers: str, rng: random.Random, tally: Tally, directory: Path) -> None:
    """Stop one stream some times, then let it come to its end."""
    topic, by_batch = new_topic(), rng.random() < 0.5
    options = SMALL_BUFFER | {"kafka.bootstrap.servers": servers, "topic": topic, "delivery": "transactional"}
    (directory / "in").mkdir()
    expected: list[bytes] = []
    stops = 0
    while True:
        before = count_of(servers, topic)
        add_files(directory / "in", expected)
        query = start_query(spark, options, directory, by_batch)
        if stops == STOPS_A_QUERY:
            await_end(query, servers)
            break
        await_records(servers, topic, more_than=before)
        if not query.awaitTermination(rng.uniform(0.01, 1.0)):
            query.stop()
            stops += 1
    tally.faults += stops
    tally.add(servers, topic, expected)


# -- Spark Connect -----------------------------------------------------------------------------------------------------


def connect_session() -> SparkSession:
    """A session over Spark Connect, to a server that ends with this process."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.remote("local[2,4]")
    more = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    for name, value in (more | {name.replace("__", "."): value for name, value in SIZE.items()}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run_connect(spark: SparkSession, servers: str, rng: random.Random, tally: Tally, directory: Path) -> None:
    """A batch write, interrupted or with a stage that fails before the sink, and a stream with such a stage."""
    topic = new_topic()
    if tally.runs % 4 == 3:
        expected = _connect_stream(spark, servers, topic, rng, directory)
        tally.faults += 1
        tally.add(servers, topic, expected)
        return
    df, expected = rows_of(spark)
    if tally.runs % 2:
        tally.faults += save_until_whole(df, servers, topic, rng, spark.interruptAll, 1)
    else:
        failing = fails_in_python(rng.randrange(0, BATCHES + 1))(df)
        save(failing, servers, topic, by_format=rng.random() < 0.5, is_transactional=True)
        tally.faults += 2  # each task's first attempt
    tally.add(servers, topic, expected)


def _connect_stream(spark: SparkSession, servers: str, topic: str, rng: random.Random, directory: Path) -> list[bytes]:
    """Stream one file by the data source or `foreachBatch`, with a stage that fails; return the rows."""
    (directory / "in").mkdir()
    expected = expected_values()
    (directory / "in" / "1.txt").write_bytes(b"\n".join(expected))
    df = fails_in_python(rng.randrange(0, BATCHES + 1))(spark.readStream.text(str(directory / "in")))
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "delivery": "transactional", "write.id": topic}
    run_stream(df, directory / "checkpoint", options, by_batch=rng.random() < 0.5)
    return expected


# -- the campaign ------------------------------------------------------------------------------------------------------


def numbered(directory: Path) -> Iterator[Path]:
    """Directories in a directory, each made when it is asked for."""
    number = 0
    while True:
        path = directory / str(number)
        path.mkdir()
        yield path
        number += 1


def repeat(kind: str, faults: int, run: Callable[[Tally], object]) -> None:
    """Run until so many faults have come."""
    tally = Tally(kind, is_transactional=True)
    while tally.faults < faults:
        run(tally)


def run_classic(arguments: argparse.Namespace, servers: str, rng: random.Random) -> None:
    with tempfile.TemporaryDirectory() as scratch, local_session("local[2,4]", **SIZE) as spark:
        directories = numbered(Path(scratch))
        repeat("stages", arguments.stages, lambda tally: run_stages(spark, servers, rng, tally))
        repeat("queries", arguments.queries, lambda tally: run_query(spark, servers, rng, tally, next(directories)))


def run_over_connect(arguments: argparse.Namespace, rng: random.Random) -> None:
    spark, servers = connect_session(), arguments.servers
    with tempfile.TemporaryDirectory() as scratch:
        directories = numbered(Path(scratch))
        repeat("connect", arguments.connect, lambda tally: run_connect(spark, servers, rng, tally, next(directories)))


def main() -> None:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.spark_stops", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    for name in ("stages", "queries", "connect"):
        parser.add_argument(f"--{name}", type=int, default=0, metavar="FAULTS", help="how many (default: 0)")
    parser.add_argument("--kafka", action="store_true", help="write to Apache Kafka, not to the embedded broker")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--servers", help=argparse.SUPPRESS)  # of the process that speaks Spark Connect
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    rng = random.Random(arguments.seed)
    if arguments.servers:
        run_over_connect(arguments, rng)
        return
    print(f"seed {arguments.seed}", flush=True)
    with target(is_kafka=arguments.kafka) as servers:
        if arguments.stages or arguments.queries:
            run_classic(arguments, servers, rng)
        if arguments.connect:
            command = [sys.executable, "-m", "tests.campaigns.spark_stops", "--connect", str(arguments.connect)]
            command += ["--seed", str(arguments.seed), "--servers", servers]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
