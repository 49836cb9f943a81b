"""Spark writes while something dies, again and again: `python -m tests.campaigns.spark_faults --worker 10 --driver 5`.

    worker       all Python workers of the executor are killed with -9 at random instants of a batch write
    task         a task's input fails after about half its rows
    speculation  a second copy of a slow task runs beside the first
    broker       Apache Kafka is killed with -9 in the middle of a batch write, and started again
    driver       JVM and driver of a stream are killed with -9; the stream starts again from its checkpoint

After each run an independent client reads the topic. Every row must be there; a reader that leaves out what the headers
say it has seen must see each once; with `--transactional`, a reader of committed data. The tally says how many records
came more than once, so that a fault that did not bite can be told. What must happen while rows are sent is done again
until it did.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from kafkaprod.spark import write
from tests.kafka.cluster import KafkaCluster
from tests.spark.sessions import local_session
from tests.spark.stalls import Patience, report_of
from tests.spark.streaming_driver import FILES_A_BATCH, SMALL_BUFFER
from tests.spark.targets import target
from tests.spark.topics import committed_values, count_of, seen_once
from tests.spark.two_copies import run_two_copies
from tests.spark.ways import WAYS

ROWS = 20_000
DRIVER = "tests.spark.streaming_driver"


@dataclass
class Tally:
    """Of all runs with one fault."""

    fault: str
    runs: int = 0
    faults: int = 0  # that came while rows were being sent
    rows: int = 0
    repeated: int = 0
    runs_repeated: int = 0
    lost: int = 0
    seen_twice: int = 0  # by a reader that honours the headers, or reads committed data
    is_transactional: bool = False

    def add(self, servers: str, topic: str, expected: list[bytes]) -> None:
        """Read a topic and compare."""
        count, values = seen_once(servers, topic)
        if self.is_transactional:
            values = list(committed_values(servers, topic))
        self.runs += 1
        self.rows += len(expected)
        self.repeated += count - len(expected)
        self.runs_repeated += count > len(expected)
        self.lost += len(set(expected) - set(values))
        self.seen_twice += len(values) - len(set(values))
        print(self, flush=True)
        assert sorted(values, key=repr) == sorted(expected, key=repr), self


# -- batch writes ------------------------------------------------------------------------------------------------------


def rows_of(spark: SparkSession) -> tuple[DataFrame, list[bytes]]:
    """Two tasks; ten batches of Spark's each, too large to be joined."""
    df = spark.range(0, ROWS, 1, 2).selectExpr("lpad(cast(id as string), 1000, '0') as value")
    return df, [str(number).encode().rjust(1000, b"0") for number in range(ROWS)]


def save(df: DataFrame, servers: str, topic: str, by_format: bool, is_transactional: bool) -> None:
    options = SMALL_BUFFER | {"kafka.bootstrap.servers": servers, "topic": topic, "dedup.headers": "true"}
    if is_transactional:
        options |= {"delivery": "transactional", "write.id": topic}
    if by_format and "format" in WAYS:
        df.write.format("kafkaprod").mode("append").options(**options).save()
    else:
        write(df, options)


def worker_pids() -> list[int]:
    """Python workers: children of the daemons of this process's JVM."""
    parents, words = {}, {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(directory.name)] = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
                words[int(directory.name)] = (directory / "cmdline").read_bytes()

    def ancestors(pid: int) -> Iterator[int]:
        while pid in parents:
            pid = parents[pid]
            yield pid

    is_daemon = {pid for pid in parents if b"pyspark.daemon" in words[pid] and os.getpid() in ancestors(pid)}
    return [pid for pid in is_daemon if parents[pid] in is_daemon]


def beside(fault: Callable[[], int], action: Callable[[], object]) -> int:
    """Do something while a thread does the other; the thread's answer."""
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(fault()))
    thread.start()
    try:
        action()
    finally:
        thread.join()
    return answers[0]


def kill_workers(servers: str, topic: str, delay_s: float, is_done: threading.Event) -> int:
    await_records(servers, topic)
    is_done.wait(delay_s)
    for pid in worker_pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return not is_done.is_set()


def await_records(servers: str, topic: str, more_than: int = 0, pid: int | None = None) -> None:
    """Wait for more records; `pid`: the program that sends them, if it is not this one.

    Raises:
        AssertionError: There are none; the text says what the program does.
    """
    program = os.getpid() if pid is None else pid
    patience = Patience(program)
    while count_of(servers, topic) <= more_than:
        if patience.is_over() or _has_ended(program):
            report = report_of(program, servers)
            raise AssertionError(f"no more than {more_than} records in {topic}\n{report}")


def _has_ended(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def run_worker(spark: SparkSession, servers: str, rng: random.Random, tally: Tally) -> None:
    df, expected = rows_of(spark)
    topic, is_done = new_topic(), threading.Event()

    def action() -> None:
        save(df, servers, topic, by_format=rng.random() < 0.5, is_transactional=tally.is_transactional)
        is_done.set()

    tally.faults += beside(partial(kill_workers, servers, topic, rng.uniform(0, 1), is_done), action)
    tally.add(servers, topic, expected)


def failing_input(at_batch: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    for number, batch in enumerate(batches):
        if number == at_batch and context is not None and context.attemptNumber() == 0:
            raise RuntimeError("the input fails")
        yield batch


def run_task(spark: SparkSession, servers: str, rng: random.Random, tally: Tally) -> None:
    df, expected = rows_of(spark)
    topic = new_topic()
    failing = df.mapInArrow(partial(failing_input, rng.randrange(4, 8)), df.schema)
    save(failing, servers, topic, by_format=rng.random() < 0.5, is_transactional=tally.is_transactional)
    tally.faults += 2  # each task's first attempt
    tally.add(servers, topic, expected)


def run_broker(spark: SparkSession, cluster: KafkaCluster, rng: random.Random, tally: Tally) -> None:
    df, expected = rows_of(spark)
    topic, is_done = new_topic(), threading.Event()
    cluster.create_topic(topic, 3)

    def kill() -> int:
        await_records(cluster.bootstrap(), topic)
        was_done = is_done.wait(rng.uniform(0, 0.5))
        cluster.kill9(1)
        cluster.restart(1)
        return not was_done

    def action() -> None:
        save(df, cluster.bootstrap(), topic, by_format=rng.random() < 0.5, is_transactional=tally.is_transactional)
        is_done.set()

    tally.faults += beside(kill, action)
    tally.add(cluster.bootstrap(), topic, expected)


# -- programs of their own ---------------------------------------------------------------------------------------------


def run_driver(servers: str, rng: random.Random, tally: Tally, kills: int, way: str, directory: Path) -> None:
    """Kill one stream until it was killed so often, then let it come to its end."""
    topic, source = new_topic(), directory / "in"
    source.mkdir()
    expected: list[bytes] = []
    command = [sys.executable, "-m", DRIVER, servers, topic, str(source), str(directory / "checkpoint"), way]
    command += ["transactional"] if tally.is_transactional else []
    is_done = False
    while not is_done:
        before = count_of(servers, topic)
        add_files(source, expected)
        with (directory / "driver.err").open("wb") as output:
            process = subprocess.Popen(
                command, env=os.environ | {"PYSPARK_PYTHON": sys.executable}, stderr=output, process_group=0
            )
        try:
            if tally.faults < kills:
                await_records(servers, topic, before, process.pid)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(rng.uniform(0, 1.5))
                tally.faults += process.poll() is None
            else:
                await_exit(process, servers)
                is_done = True
        except AssertionError as error:
            error.add_note((directory / "driver.err").read_text(errors="replace")[-8000:])
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the JVM and the driver; workers are not among them
            process.wait()
    tally.add(servers, topic, expected)


def await_exit(process: subprocess.Popen[bytes], servers: str) -> None:
    """Wait for the good end of a stream's driver. Raises AssertionError: another end, or none; the text says why."""
    patience = Patience(process.pid)
    while process.poll() is None:
        assert not patience.is_over(), f"the driver does not end\n{report_of(process.pid, servers)}"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
    assert process.returncode == 0, f"the driver ended with {process.returncode}"


def add_files(source: Path, expected: list[bytes]) -> None:
    """For four micro-batches more."""
    for _ in range(4 * FILES_A_BATCH):
        values = [f"{len(expected) + row}-".ljust(500, "x") for row in range(1000)]
        (source / f"{len(expected):09}.txt").write_text("\n".join(values))
        expected += [value.encode() for value in values]


def run_speculation(servers: str, tally: Tally, directory: Path) -> None:
    topic = new_topic()
    expected = run_two_copies(servers, topic, directory, is_transactional=tally.is_transactional)
    tally.faults += 1
    tally.add(servers, topic, expected)


def new_topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def main() -> None:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.spark_faults", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    for name in ("worker", "task", "speculation", "broker", "driver"):
        parser.add_argument(f"--{name}", type=int, default=0, metavar="FAULTS", help="how many (default: 0)")
    parser.add_argument("--kafka", action="store_true", help="write to Apache Kafka, not to the embedded broker")
    parser.add_argument("--transactional", action="store_true", help="write with delivery=transactional")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    rng = random.Random(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)

    def repeat(name: str, run: Callable[[Tally], Any]) -> None:
        tally = Tally(name, is_transactional=arguments.transactional)
        while tally.faults < getattr(arguments, name):
            run(tally)

    with target(is_kafka=arguments.kafka) as servers:
        if arguments.worker or arguments.task or arguments.broker:
            size = {"spark__sql__execution__arrow__maxRecordsPerBatch": "1000"}
            with local_session("local[2,4]", **size) as spark:
                repeat("worker", lambda tally: run_worker(spark, servers, rng, tally))
                repeat("task", lambda tally: run_task(spark, servers, rng, tally))
                if arguments.broker:
                    with KafkaCluster(1) as cluster:
                        repeat("broker", lambda tally: run_broker(spark, cluster, rng, tally))
        with tempfile.TemporaryDirectory() as scratch:
            for number in range(arguments.speculation):
                (Path(scratch) / str(number)).mkdir()
            numbers = iter(range(arguments.speculation))
            repeat("speculation", lambda tally: run_speculation(servers, tally, Path(scratch) / str(next(numbers))))
        for way in ("format", "foreach_batch") if arguments.driver else ():
            if way == "format" and "stream" not in WAYS:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                run_driver(
                    servers,
                    rng,
                    Tally(f"driver, {way}", is_transactional=arguments.transactional),
                    arguments.driver,
                    way,
                    Path(scratch),
                )


if __name__ == "__main__":
    main()
