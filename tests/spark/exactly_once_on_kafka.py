"""A stream with `delivery=transactional` into Apache Kafka, while everything dies: every row exactly once.

    python -m tests.spark.exactly_once_on_kafka --rows 1000000 --batches 20 --worker-kills 10 --task-failures 5 \
        --driver-kills 3 --slow-tasks 3

A standalone Spark cluster of two hosts, speculation on, writes text files, some a micro-batch. Tasks fail, and Python
workers and executors are killed with -9, at the places that `faulty_daemon` has; a slow task waits for a speculative
copy of it; JVM and driver are killed with -9 inside micro-batches, and the stream starts again from its checkpoint.
Afterwards consumers of librdkafka and Java must read each row once with `read_committed`.

With `--local` the stream runs in one JVM, without executors that could be killed and without speculation: for the full
count on a small machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.kafka.cluster import KafkaCluster
from tests.kafka.process import guarded
from tests.kafka.reading import read_values, values_with_java
from tests.spark.faulty_daemon import PLACES, VARIABLE
from tests.spark.standalone import JAVA_OPTIONS, standalone_cluster

ROOT = Path(__file__).parents[2]
TOPIC, PARTITIONS, TASKS = "rows", 4, 4
LOCAL = "local[2,8]"  # two tasks at a time, each up to eight times
WIDTH = 100  # bytes of a row in the files, with its line end
PATIENCE_S = 1200.0  # without a new micro-batch: a machine may do much else
DRIVER_RUNS = 4  # more than there are kills: a task that failed too often ends a driver, too


@dataclass
class Goals:
    """What to write, and what must have happened before it is written."""

    rows: int
    batches: int
    worker_kills: int
    task_failures: int
    driver_kills: int
    slow_tasks: int
    is_local: bool
    seed: int


@dataclass
class Tally:
    """What has happened."""

    rows: int = 0
    task_failures: int = 0
    worker_kills: int = 0
    executor_kills: int = 0
    slow_tasks: int = 0
    twins: int = 0
    driver_kills: int = 0
    driver_ends: int = 0
    places: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    tasks: int = 0
    aborted_rows: int = 0
    write_s: float = 0.0
    seconds: float = 0.0


# -- the driver --------------------------------------------------------------------------------------------------------


def drive(settings: dict[str, Any]) -> None:
    """Body of the driver's process: stream all files, in micro-batches of `TASKS` files."""
    builder = SparkSession.builder.master(settings["master"])
    for name, value in settings["spark"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    options = {
        "kafka.bootstrap.servers": settings["servers"],
        "topic": TOPIC,
        "delivery": "transactional",
        "kafka.linger.ms": "0",
    }
    rows = spark.readStream.option("maxFilesPerTrigger", str(TASKS)).text(settings["source"])
    writer = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", settings["checkpoint"])
    writer.format("kafkaprod").options(**options).start().awaitTermination()


def spark_settings(file_bytes: int, faults: Path) -> dict[str, str]:
    """Return what the driver sets: a task for each file, speculation, and workers with faults."""
    return {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "8",
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.5",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.sql.files.maxPartitionBytes": str(file_bytes),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
        "spark.python.daemon.module": "tests.spark.faulty_daemon",
        f"spark.executorEnv.{VARIABLE}": str(faults),
        "spark.executorEnv.PYTHONPATH": str(ROOT),
    }


# -- what goes wrong ---------------------------------------------------------------------------------------------------


class Plan:
    """When which fault is due, spread over the micro-batches.

    Args:
        goals: How many of each.
        faults: The directory that workers look at.
    """

    def __init__(self, goals: Goals, faults: Path) -> None:
        rng = random.Random(goals.seed)
        is_local = goals.is_local  # there the executor is the driver
        kinds = [("worker", "executor")[number % 3 == 2 and not is_local] for number in range(goals.worker_kills)]
        kinds += ["fail"] * goals.task_failures
        places = [PLACES[number % len(PLACES)] for number in range(len(kinds))]
        rng.shuffle(places)
        names = list(zip(kinds, places, strict=True)) + [("slow", "rows")] * goals.slow_tasks
        rng.shuffle(names)
        self._faults = faults
        self._left = [f"{kind}.{place}.{number}" for number, (kind, place) in enumerate(names)]
        self._step = max(goals.batches - 1, 1) / max(len(names), 1)
        self._put = 0

    def put(self, batches: int) -> None:
        """Put the faults that are due after so many micro-batches, one at a time."""
        is_pending = any(not path.name.startswith(("done.", "attempt.", "twins.")) for path in self._faults.iterdir())
        if self._left and not is_pending and batches >= self._put * self._step - 1:
            (self._faults / self._left.pop(0)).touch()
            self._put += 1


class Stream:
    """The stream's driver, started again until the stream has ended.

    Args:
        settings: Of the driver.
        goals: What must happen.
        tally: Filled in.
        directory: Of faults and checkpoint.
    """

    def __init__(self, settings: dict[str, Any], goals: Goals, tally: Tally, directory: Path) -> None:
        self._settings, self._goals, self._tally = settings, goals, tally
        self._checkpoint = directory / "checkpoint"
        self._faults = directory / "faults"
        self._plan = Plan(goals, self._faults)
        self._rng = random.Random(goals.seed + 1)
        self._log = directory / "driver.out"

    def run(self) -> None:
        """Run to the end of the files. Raises AssertionError if it does not come to it."""
        goals, tally = self._goals, self._tally
        command = [sys.executable, "-m", "tests.spark.exactly_once_on_kafka", "--driver", json.dumps(self._settings)]
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        environment |= JAVA_OPTIONS
        environment |= {"PYTHONPATH": str(ROOT), VARIABLE: str(self._faults)}  # for tasks in the driver's own JVM
        while True:
            with self._log.open("ab") as log:
                process = subprocess.Popen(
                    guarded(command), env=environment, cwd=ROOT, stdout=log, stderr=log, process_group=0
                )
            try:
                self._watch(process)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # the JVM, too
                process.wait()
            done = self._count("commits")
            print(f"{done} micro-batches; {tally}", flush=True)
            if process.returncode == 0 and done >= goals.batches:
                return
            if process.returncode >= 0:
                tally.driver_ends += 1
                assert tally.driver_ends < DRIVER_RUNS, self._log.read_text(errors="replace")[-6000:]

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the driver has ended, or should be killed."""
        goals, tally = self._goals, self._tally
        deadline, last = time.monotonic() + PATIENCE_S, -1
        while process.poll() is None:
            done = self._count("commits")
            if done != last:
                deadline, last = time.monotonic() + PATIENCE_S, done
            assert time.monotonic() < deadline, self._log.read_text(errors="replace")[-6000:]
            self._plan.put(done)
            kill_at = (tally.driver_kills + 1) * goals.batches // (goals.driver_kills + 1)
            if tally.driver_kills < goals.driver_kills and done >= kill_at and self._count("offsets") > done:
                time.sleep(self._rng.uniform(0, 1.0))
                if self._count("offsets") > self._count("commits") and process.poll() is None:
                    tally.driver_kills += 1
                    return
            time.sleep(0.02)

    def _count(self, kind: str) -> int:
        return sum(path.name.isdecimal() for path in (self._checkpoint / kind).glob("*"))


# -- what must be ------------------------------------------------------------------------------------------------------


def write_files(directory: Path, goals: Goals) -> int:
    """Write the rows, the same number in each file; return the bytes of a file."""
    files = goals.batches * TASKS
    assert goals.rows % files == 0, f"--rows must be a multiple of {files}"
    directory.mkdir()
    rows = goals.rows // files
    for number in range(files):
        lines = (row_of(row) for row in range(number * rows, (number + 1) * rows))
        (directory / f"{number:06}.txt").write_text("".join(f"{line}\n" for line in lines))
    return rows * WIDTH


def row_of(number: int) -> str:
    return f"{number:012}-".ljust(WIDTH - 1, "x")


def check(values: Iterator[bytes], rows: int, reader: str) -> None:
    """Compare what a reader of committed data gets with the rows."""
    seen = bytearray(rows)
    for value in values:
        number = int(value[:12])
        is_ours = number < rows and value == row_of(number).encode()
        assert is_ours, f"{reader}: a row that was not written: {value!r}"
        assert not seen[number], f"{reader}: row {number} is there twice"
        seen[number] = 1
    assert seen.count(0) == 0, f"{reader}: {seen.count(0)} rows are lost, the first of them {seen.index(0)}"
    print(f"{reader}: {rows} rows, each once", flush=True)


def count_faults(faults: Path, tally: Tally, goals: Goals) -> None:
    """Read what workers have left in the directory. Raises AssertionError if a fault has not come."""
    done = [path.name.split(".") for path in faults.glob("done.*")]
    kinds = [kind for _, kind, _, _ in done]
    tally.worker_kills, tally.executor_kills = kinds.count("worker"), kinds.count("executor")
    tally.task_failures, tally.slow_tasks = kinds.count("fail"), kinds.count("slow")
    tally.places = {place: sum(at == place for _, _, at, _ in done) for place in PLACES}
    attempts = [path.name for path in faults.glob("attempt.*")]
    tally.attempts, tally.tasks = len(attempts), len({name.rpartition(".")[0] for name in attempts})
    tally.twins = len(list(faults.glob("twins.*")))
    missed = {
        "worker kills": goals.worker_kills - tally.worker_kills - tally.executor_kills,
        "task failures": goals.task_failures - tally.task_failures,
        "slow tasks": goals.slow_tasks - tally.slow_tasks,
        "driver kills": goals.driver_kills - tally.driver_kills,
    }
    assert not any(missed.values()), f"faults that did not come: {missed}; {tally}"


def run(goals: Goals, *, reads_with_java: bool) -> Tally:
    """See the module. Raises AssertionError for what must not be."""
    tally, started = Tally(rows=goals.rows), time.monotonic()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in ("faults", "cluster"):
            (directory / name).mkdir()
        file_bytes = write_files(directory / "in", goals)
        kafka = stack.enter_context(KafkaCluster(1))
        kafka.create_topic(TOPIC, PARTITIONS)
        settings = {
            "master": LOCAL if goals.is_local else stack.enter_context(standalone_cluster(directory / "cluster")),
            "servers": kafka.bootstrap(),
            "source": str(directory / "in"),
            "checkpoint": str(directory / "checkpoint"),
            "spark": spark_settings(file_bytes, directory / "faults"),
        }
        print(f"Kafka and Spark run after {time.monotonic() - started:.0f} s", flush=True)
        writing = time.monotonic()
        Stream(settings, goals, tally, directory).run()
        tally.write_s = round(time.monotonic() - writing, 1)
        count_faults(directory / "faults", tally, goals)
        servers = kafka.bootstrap()
        check(read_values(servers, TOPIC), goals.rows, "librdkafka")
        if reads_with_java:
            check(values_with_java(servers, TOPIC, goals.rows + 1), goals.rows, "Java")
        everything = read_values(servers, TOPIC, isolation_level="read_uncommitted")
        tally.aborted_rows = sum(1 for _ in everything) - goals.rows
    tally.seconds = round(time.monotonic() - started, 1)
    return tally


def main() -> None:
    """Run as the arguments say."""
    if sys.argv[1:2] == ["--driver"]:
        return drive(json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser(prog="python -m tests.spark.exactly_once_on_kafka", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--batches", type=int, default=5, help="micro-batches")
    parser.add_argument("--worker-kills", type=int, default=2, help="a third of them executors")
    parser.add_argument("--task-failures", type=int, default=2)
    parser.add_argument("--driver-kills", type=int, default=1)
    parser.add_argument("--slow-tasks", type=int, default=1, help="tasks of which Spark runs a copy")
    parser.add_argument("--java", action="store_true", help="read with Java's consumer, too")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--local", action="store_true", dest="is_local", help="one JVM for Spark; see above")
    options = vars(parser.parse_args())
    if options["is_local"]:
        options["slow_tasks"] = 0
    reads_with_java = options.pop("java")
    print(f"seed {options['seed']}", flush=True)
    print(run(Goals(**options), reads_with_java=reads_with_java), flush=True)
    return None


if __name__ == "__main__":
    main()
