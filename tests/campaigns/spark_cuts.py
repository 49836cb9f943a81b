"""Stages before the sink fail, again and again: `python -m tests.campaigns.spark_cuts --runs 200 --executors 20`.

Each run writes rows through a stage that fails once for each task: in Python or in the JVM before, between or behind
the batches, by a worker that dies, by shuffle files that are deleted while they are read, or (`--executors`) by an
executor that is killed. With `--speculation` the stage is slow instead, and Spark runs a second attempt at the task
beside the first. The write is a batch by `write()` or `format("kafkaprod")`, or a stream by the data source or
`foreach_batch`, as far as this PySpark has them; transactional with each `verify.replay`, or at least once. Then the
topic is read by librdkafka and by kafkaprod's own reader, both with `read_committed`, and every fourth time with
`--own-source` by Spark's own. A transactional write must have each row once, the others each row. The table at the end
counts the runs of each fault; the exit status is 1 if one went wrong.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import os
import random
import sys
import tempfile
import traceback
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kafkaprod.spark import write
from tests.kafka.runtime import spark_connector_class_path
from tests.spark.failing_stages import (
    BATCHES,
    ROWS,
    SETTINGS,
    SPECULATION,
    Stage,
    expected_values,
    fails_in_jvm,
    fails_in_python,
    loses_shuffle,
    numbered_rows,
    waits_for_copy,
)
from tests.spark.sessions import local_session
from tests.spark.stalls import last_line
from tests.spark.standalone import standalone_cluster
from tests.spark.streams import run_stream
from tests.spark.targets import target
from tests.spark.topics import committed_values, count_of, values_of
from tests.spark.ways import HAS_READER, WAYS

SHUFFLED_ROWS = 20_000
READ_BY_OWN_SOURCE = 4  # every so many runs, with --own-source
# A daemon that has imported everything: a worker that replaces a failed one starts in a tenth of the time.
DAEMON = {"spark__python__daemon__module": "tests.spark.faulty_daemon"}
DELIVERIES = ("content", "content", "none", "at_least_once")


@dataclass(frozen=True, slots=True)
class Plan:
    """A run: its stage, how it writes, and verify.replay or at_least_once."""

    fault: str
    stage: Stage
    way: str
    delivery: str


def faults(spark: SparkSession, directory: Path) -> dict[str, Callable[[], Stage]]:
    """The faults of one host, by name."""
    found: dict[str, Callable[[], Stage]] = {}
    for at in range(BATCHES + 1):
        found[f"Python raises at batch {at}"] = partial(fails_in_python, at)
        found[f"the JVM raises at batch {at}"] = partial(fails_in_jvm, at)
    for at in range(1, BATCHES + 1):
        found[f"Python dies at batch {at}"] = partial(fails_in_python, at, "die")
    found["shuffle files are lost"] = partial(loses_shuffle, spark, directory)
    return found


def run(spark: SparkSession, servers: str, plan: Plan, directory: Path, *, has_own_source: bool) -> str:
    """Do one write and read it back; return what is wrong, empty if nothing is."""
    topic = f"t-{uuid.uuid4().hex[:8]}"
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "write.id": topic}
    if plan.delivery != "at_least_once":
        options |= {"delivery": "transactional", "verify.replay": plan.delivery}
    is_shuffled = plan.fault.startswith("shuffle")
    rows = SHUFFLED_ROWS if is_shuffled else ROWS
    expected = expected_values(rows)
    try:
        _save(spark, plan, options, rows, directory)
    except Exception as error:
        traceback.print_exc()
        return last_line(error)
    if plan.delivery == "at_least_once":
        different = set(values_of(servers, topic))
        return "" if different == set(expected) else f"{len(different)} different rows of {rows}"
    values = committed_values(servers, topic)
    counts = [len(values)]
    if HAS_READER:
        counts.append(_count(spark, "kafkaprod", servers, topic))
    if has_own_source:
        counts.append(_count(spark, "kafka", servers, topic))
    is_right = values == expected and set(counts) == {rows}
    return "" if is_right else f"{counts} rows by readers, not {rows}; {count_of(servers, topic)} offsets"


def _save(spark: SparkSession, plan: Plan, options: dict[str, str], rows: int, directory: Path) -> None:
    if plan.way in ("stream", "foreach_batch"):
        source = directory / "in"
        source.mkdir()
        values = expected_values(rows)
        for number in range(2):  # a task each
            half = values[number * rows // 2 : (number + 1) * rows // 2]
            (source / f"{number}.txt").write_bytes(b"\n".join(half))
        df = plan.stage(spark.readStream.text(str(source)))
        run_stream(df, directory / "checkpoint", options, by_batch=plan.way == "foreach_batch")
        return
    df = plan.stage(numbered_rows(spark, rows, tasks=8 if rows != ROWS else 2))
    if plan.way == "write":
        write(df, options)
    else:
        df.write.format("kafkaprod").mode("append").options(**options).save()


def _count(spark: SparkSession, source: str, servers: str, topic: str) -> int:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    df: DataFrame = reader.option("kafka.isolation.level", "read_committed").load()
    return df.count()


class Campaign:
    """Runs with one kind of session, one after the other.

    Args:
        servers: Of the cluster to write to.
        rng: Chooses what is written how.
        has_own_source: Read every fourth topic by Spark's own source, too.
    """

    def __init__(self, servers: str, rng: random.Random, *, has_own_source: bool) -> None:
        self._servers = servers
        self._rng = rng
        self._has_own_source = has_own_source
        self._tally: collections.Counter[str] = collections.Counter()
        self.wrong = 0

    def on_one_host(self, runs: int) -> None:
        """Every fault of one host, in turn."""
        numbers = iter(range(runs))
        for first in numbers:
            with _session("local[2,4]", self._has_own_source) as spark:
                for number in itertools.chain((first,), numbers):
                    with tempfile.TemporaryDirectory() as scratch:
                        kinds = faults(spark, Path(scratch))
                        fault = list(kinds)[number % len(kinds)]
                        self._run(spark, fault, kinds[fault](), Path(scratch))
                    if fault.startswith("shuffle"):
                        break  # Spark takes the driver for a dead executor, and ends the JVM ten minutes later
        self._show()

    def with_executors_killed(self, runs: int) -> None:
        """A cluster of two executors, one of which is killed in each run."""
        more = {"spark__executor__maxNumFailures": "10000", "spark__deploy__maxExecutorRetries": "-1"}
        with _session("local-cluster[2,1,1024]", False, **more) as spark:
            for _ in range(runs):
                stage = fails_in_python(self._rng.randrange(1, BATCHES + 1), "executor")
                with tempfile.TemporaryDirectory() as scratch:
                    self._run(spark, "executors are killed", stage, Path(scratch))
        self._show()

    def with_speculation(self, runs: int) -> None:
        """A cluster of two hosts, on one of which a task is slow until the other has an attempt at it, too."""
        more = {name.replace(".", "__"): value for name, value in SPECULATION.items()}
        more |= {"spark__executor__memory": "512m"}
        with (
            tempfile.TemporaryDirectory() as directory,
            standalone_cluster(Path(directory)) as master,
            _session(master, False, **more) as spark,
        ):
            for number in range(runs):
                with tempfile.TemporaryDirectory() as scratch:
                    signs = Path(scratch) / "signs"
                    signs.mkdir()
                    end = "ends" if number % 2 else "begins"
                    at_batch = self._rng.randrange(BATCHES)
                    stage = waits_for_copy(signs, at_batch, until_its_end=end == "ends")
                    self._run(spark, f"a task waits until its copy {end}", stage, Path(scratch), signs / "copy")
        self._show()

    def _run(self, spark: SparkSession, fault: str, stage: Stage, scratch: Path, sign: Path | None = None) -> None:
        way, delivery = self._rng.choice(WAYS), self._rng.choice(DELIVERIES)
        if delivery == "none" and fault.startswith(("the JVM", "shuffle")):
            delivery = "content"  # write() refuses these plans otherwise: they need not give the same rows again
        plan = Plan(fault, stage, way, delivery)
        has_own_source = self._has_own_source and self._tally["runs"] % READ_BY_OWN_SOURCE == 0
        error = run(spark, self._servers, plan, scratch, has_own_source=has_own_source)
        if not error and sign is not None and not sign.exists():
            error = "Spark started no copy"
        self._tally.update((plan.fault, plan.way, plan.delivery, "runs"))
        print(f"{self._tally['runs']} {fault}, {way}, {delivery}: {error or 'right'}", flush=True)
        self.wrong += bool(error)
        assert (status := _jvm_status(spark)) is None, f"the session's JVM has ended with {status}"

    def _show(self) -> None:
        for name, count in sorted(self._tally.items()):
            print(f"{count:5} {name}")


@contextlib.contextmanager
def _session(master: str, has_own_source: bool, **more: str) -> Iterator[SparkSession]:
    settings = {name.replace(".", "__"): value for name, value in SETTINGS.items()} | DAEMON | more
    settings["spark__executorEnv__PYTHONPATH"] = os.environ.get("PYTHONPATH", os.getcwd())
    if has_own_source:
        settings["spark__jars"] = spark_connector_class_path().replace(os.pathsep, ",")
    with local_session(master, **settings) as spark:
        yield spark


def _jvm_status(spark: SparkSession) -> int | None:
    gateway: Any = spark.sparkContext._gateway
    status: int | None = gateway.proc.poll()
    return status


def main() -> int:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.spark_cuts", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--runs", type=int, default=0, help="on one host (default: 0)")
    parser.add_argument("--executors", type=int, default=0, metavar="RUNS", help="that kill executors (default: 0)")
    parser.add_argument("--speculation", type=int, default=0, metavar="RUNS", help="with a copy of a task (default: 0)")
    parser.add_argument("--kafka", action="store_true", help="write to Apache Kafka, not to the embedded broker")
    parser.add_argument("--own-source", action="store_true", help="read by Spark's own source, too; needs Maven")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    rng = random.Random(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)
    wrong = 0
    with target(is_kafka=arguments.kafka) as servers:
        for kind, runs in (
            (Campaign.on_one_host, arguments.runs),
            (Campaign.with_executors_killed, arguments.executors),
            (Campaign.with_speculation, arguments.speculation),
        ):
            if runs:
                campaign = Campaign(servers, rng, has_own_source=arguments.own_source)
                kind(campaign, runs)
                wrong += campaign.wrong
    print(f"{wrong} runs went wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
