"""Memory of a Python worker over one long Spark task.

    python -m benchmarks.macro.spark_memory --rows 10000000

One task writes rows of a key and 100 bytes to the null broker; ten times on the way, and at the end when all are
acknowledged, the worker's resident set is noted. It should be the same from the second note on.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.sink import Sink
from kafkaprod.spark import tune
from kafkaprod.spark.options import parse_options
from kafkaprod.spark.plan import WritePlan, make_plan
from kafkaprod.spark.task import write_task
from tests.spark.sessions import local_session

NOTES = 10
PARTITIONS = 6


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def noting_task(plan: WritePlan, step: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The sink's task; its answer is (rows, MiB) pairs and the report's count."""
    notes: list[tuple[int, float]] = []

    def noting() -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            if rows >= step * (len(notes) + 1):
                notes.append((rows, resident_mib()))
            yield batch

    report = write_task(plan, noting())
    notes.append((report.rows, resident_mib()))
    yield pa.RecordBatch.from_pydict({"notes": [json.dumps(notes)]})


def main() -> None:
    """Write, and print the notes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.macro.spark_memory", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--json", action="store_true", help="values are objects of eight columns instead")
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with Sink({"t": PARTITIONS}) as sink, local_session("local[1]") as spark:
        tune(spark)
        key, value = (
            "cast(lpad(cast(id as string), 8, '0') as binary) as key",
            "cast(repeat('v', 100) as binary) as value",
        )
        eight = (
            "id",
            "id % 9 as a",
            "id * 0.25D as b",
            "'text' as c",
            "id % 2 = 0 as d",
            "id as e",
            "id as f",
            "'x' as g",
        )
        df = spark.range(0, arguments.rows, 1, 1).selectExpr(*(eight if arguments.json else (key, value)))
        options = {"kafka.bootstrap.servers": sink.bootstrap, "kafka.compression.type": arguments.codec, "topic": "t"}
        options |= {"value.format": "json"} if arguments.json else {}
        plan = make_plan(df.schema, parse_options(options))
        task = partial(noting_task, plan, arguments.rows // NOTES)
        (row,) = df.mapInArrow(task, "notes string").collect()
    for rows, mib in json.loads(row.notes):
        print(f"{rows:12,} rows  {mib:7.1f} MiB")


if __name__ == "__main__":
    main()
