"""Speculation: a second copy of a task that is slow runs beside it, and both send their rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkaprod.broker.embedded import EmbeddedBroker
from tests.spark.standalone import standalone_cluster
from tests.spark.topics import read_topic

ROWS = 4000
PROGRAM = """
import os, sys, time
from functools import partial
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
from kafkaprod.spark.options import parse_options
from kafkaprod.spark.plan import make_plan
from kafkaprod.spark.task import REPORT_SCHEMA, report_task

servers, topic, rows, signs, master = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), sys.argv[5]
spark = (
    SparkSession.builder.master(master).config("spark.executor.memory", "512m")
    .config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    .config("spark.speculation", "true").config("spark.speculation.quantile", "0.5")
    .config("spark.speculation.minTaskRuntime", "100ms").config("spark.speculation.multiplier", "1.1")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100").getOrCreate()
)

def slow_task(plan, batches):
    '''The first copy of one task sends half its rows, then goes on when the second copy has sent all of its.'''
    context = TaskContext.get()
    is_slow = context.partitionId() == 3 and context.attemptNumber() == 0
    def held():
        for number, batch in enumerate(batches):
            if is_slow and number == 5:
                deadline = time.monotonic() + 120
                while not (signs / "second").exists() and time.monotonic() < deadline:
                    time.sleep(0.05)
            yield batch
    yield from report_task(plan, held())
    if context.attemptNumber() == 1:
        (signs / "second").touch()
        time.sleep(2)  # both reach their end

df = spark.range(0, rows, 1, 4).selectExpr("lpad(cast(id as string), 6000, '0') as value")
options = {"kafka.bootstrap.servers": servers, "topic": topic, "dedup.headers": "true"}
options |= {"kafka.batch.size": "1024", "kafka.linger.ms": "0"}
plan = make_plan(df.schema, parse_options(options))
df.mapInArrow(partial(slow_task, plan), REPORT_SCHEMA).collect()
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_speculative_copy_repeats_rows_that_the_headers_tell(
    embedded_broker: EmbeddedBroker, topic_name: str, tmp_path: Path
) -> None:
    expected = [str(id).encode().rjust(6000, b"0") for id in range(ROWS)]
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with standalone_cluster(tmp_path) as master:
        arguments = (embedded_broker.bootstrap_servers, topic_name, str(ROWS), str(tmp_path), master)
        command = [sys.executable, str(program), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert (tmp_path / "second").exists(), "Spark started no second copy"
    rows = read_topic(embedded_broker.bootstrap_servers, topic_name)
    assert ROWS < len(rows) <= ROWS + ROWS // 4
    once = {tuple(value for name, value in row.headers if name.startswith("kp.")): row.value for row in rows}
    assert sorted(once.values(), key=repr) == expected
