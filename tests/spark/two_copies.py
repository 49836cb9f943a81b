"""A program with a slow task of which Spark runs a second copy; both send all their rows before either ends.

    python tests/spark/two_copies.py localhost:9092 my-topic SIGNS spark://127.0.0.1:7077

Files in the directory SIGNS tell one copy where the other is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from kafkaprod.spark.options import parse_options
from kafkaprod.spark.plan import WritePlan, make_plan
from kafkaprod.spark.task import REPORT_SCHEMA, report_task

ROWS = 4000
PATIENCE_S = 120.0


def await_sign(sign: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not sign.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {sign.name} within {PATIENCE_S} s")
        time.sleep(0.05)


def task_with_slow_copy(signs: Path, plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first copy of one task sends half its rows, and goes on when the second has sent all of its."""
    context = TaskContext.get()
    assert context is not None
    is_slow = context.partitionId() == 3 and context.attemptNumber() == 0

    def held() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if is_slow and number == 5:
                await_sign(signs / "second")
            yield batch

    reports = list(report_task(plan, held()))
    if is_slow:
        (signs / "first").touch()
    elif context.partitionId() == 3:
        (signs / "second").touch()
        await_sign(signs / "first")
    yield from reports


def main() -> None:
    servers, topic, signs, master, *delivery = sys.argv[1:]
    settings = {
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    df = spark.range(0, ROWS, 1, 4).selectExpr("lpad(cast(id as string), 6000, '0') as value")
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "dedup.headers": "true"}
    options |= {"kafka.batch.size": "1024", "kafka.linger.ms": "0"}
    if delivery:
        options |= {"delivery": delivery[0], "write.id": topic}
    plan = make_plan(df.schema, parse_options(options))
    df.mapInArrow(partial(task_with_slow_copy, Path(signs), plan), REPORT_SCHEMA).collect()
    spark.stop()


def run_two_copies(servers: str, topic: str, directory: Path, *, is_transactional: bool = False) -> list[bytes]:
    """Run the program on a cluster of its own, in an empty directory; the values that it wrote, of 4 tasks alike."""
    from tests.spark.standalone import standalone_cluster

    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with standalone_cluster(directory) as master:
        command = [sys.executable, __file__, servers, topic, str(directory), master]
        command += ["transactional"] if is_transactional else []
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert (directory / "second").exists(), "Spark started no second copy"
    return [str(number).encode().rjust(6000, b"0") for number in range(ROWS)]


if __name__ == "__main__":
    main()
