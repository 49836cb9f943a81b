"""Stages before the sink that fail, each once for a task, in Python, in the JVM, without shuffle files; a slow one."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from tests.spark.faulty_daemon import parent_of

ROWS_A_BATCH = 250
BATCHES = 3  # of a task
TASKS = 2
ROWS = ROWS_A_BATCH * BATCHES * TASKS
SETTINGS = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_A_BATCH)}
# Spark looks for slow tasks from the first second on, also in a stage of one task.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.task.duration.threshold": "1s",
}
COPY_PATIENCE_S = 240.0

Stage = Callable[[DataFrame], DataFrame]


def numbered_rows(spark: SparkSession, rows: int = ROWS, tasks: int = TASKS) -> DataFrame:
    """Rows so large that each of Spark's batches leaves the JVM before the next one is computed."""
    return spark.range(0, rows, 1, tasks).selectExpr("lpad(cast(id as string), 1000, '0') as value")


def expected_values(rows: int = ROWS) -> list[bytes]:
    """The values of `numbered_rows`, sorted."""
    return [str(number).encode().rjust(1000, b"0") for number in range(rows)]


def fails_in_python(at_batch: int, kind: str = "raise") -> Stage:
    """A stage whose first attempt raises or dies instead of passing a batch (BATCHES: behind the last)."""
    return lambda df: df.mapInArrow(partial(_failing, at_batch, kind), df.schema)


def _failing(at_batch: int, kind: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    number = 0
    for number, batch in enumerate(batches, 1):
        if number == at_batch + 1:
            _fail_first(context, kind)
        yield batch
    if number == at_batch:
        _fail_first(context, kind)


def _fail_first(context: TaskContext, kind: str) -> None:
    if context.attemptNumber() == 0:
        if kind == "executor":
            os.kill(parent_of(os.getppid()), signal.SIGKILL)  # the JVM, whose child is the daemon, whose child is this
        if kind in ("die", "executor"):
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("a stage before the sink fails")


def fails_in_jvm(at_batch: int) -> Stage:
    """A stage in which the JVM raises at the first row of a batch, the first time that this task computes it."""
    number = "cast(right(value, 9) as int)"
    name = f"kafkaprod.test.{uuid.uuid4().hex}"
    row, task = at_batch * ROWS_A_BATCH, ROWS_A_BATCH * BATCHES
    # setProperty answers with the value before: null the first time. Batch BATCHES: the last row.
    row = min(row, task - 1)
    is_first = f"reflect('java.lang.System', 'setProperty', '{name}.' || ({number} div {task}), 'x') is null"
    fault = f"case when {number} % {task} = {row} and {is_first} then raise_error('the JVM fails') end"
    return lambda df: df.selectExpr(f"coalesce({fault}, value) as value")


def loses_shuffle(spark: SparkSession, directory: Path) -> Stage:
    """A shuffle whose files are deleted once, while they are read; Spark computes them again.

    A note of it is left in a directory.
    """
    return lambda df: df.repartition(TASKS, "value").mapInArrow(
        partial(_losing, Path(str(spark.conf.get("spark.local.dir"))), directory), df.schema
    )


def _losing(shuffles: Path, directory: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(batches, 1):
        yield batch
        if number == 1:
            try:
                (directory / "lost").touch(exist_ok=False)
            except FileExistsError:
                continue
            for path in shuffles.glob("**/shuffle_*.data"):
                path.unlink(missing_ok=True)


def waits_for_copy(directory: Path, at_batch: int, *, until_its_end: bool) -> Stage:
    """A stage whose first attempt at partition 0 waits, in the midst of its rows, for the copy that Spark starts.

    Args:
        directory: Empty; gets a file `copy` when a copy begins, and `waited` when the wait was over.
        at_batch: The batch before which the first attempt waits.
        until_its_end: Wait for the end of the copy's rows: Spark then kills the first attempt while both write. False:
            for their beginning, and then either may be the first at its end.
    """
    return lambda df: df.mapInArrow(partial(_waiting, directory, at_batch, until_its_end), df.schema)


def _waiting(
    directory: Path, at_batch: int, until_its_end: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    is_copy = context.partitionId() == 0 and context.attemptNumber() > 0
    is_slow = context.partitionId() == 0 and context.attemptNumber() == 0
    if is_copy:
        (directory / "copy").touch()
    for number, batch in enumerate(batches):
        if is_slow and number == at_batch:
            _await_file(directory / ("end" if until_its_end else "copy"))
            (directory / "waited").touch()
        yield batch
    if is_copy:
        (directory / "end").touch()


def _await_file(path: Path) -> None:
    deadline = time.monotonic() + COPY_PATIENCE_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {path.name} within {COPY_PATIENCE_S} s")
        time.sleep(0.02)
