"""Stages before the sink fail, again and again: `python -m tests.campaigns.spark_cuts --runs 200 --executors 20`.

Each run writes rows through a stage that fails once for each task: in Python or in the JVM before, between or behind
the batches, by a worker that dies, by shuffle files that are deleted while they are read, or (`--executors`) by an
executor that is killed. The write is a batch by `write()` or `format("kafkaprod")`, or a stream by the data source or
`foreach_batch`; transactional with each `verify.replay`, or at least once. Then the topic is read by librdkafka and by
kafkaprod's own reader, both with `read_committed`, and every fourth time with `--own-source` by Spark's own. A
transactional write must have each row once, the others each row. The table at the end counts the runs of each fault;
the exit status is 1 if one went wrong.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import sys
import tempfile
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.spark import write
from tests.kafka.runtime import spark_connector_class_path
from tests.spark.failing_stages import (
    BATCHES,
    ROWS,
    SETTINGS,
    Stage,
    expected_values,
    fails_in_jvm,
    fails_in_python,
    loses_shuffle,
    numbered_rows,
)
from tests.spark.sessions import local_session
from tests.spark.stalls import last_line
from tests.spark.streams import run_stream
from tests.spark.topics import committed_values, count_of, values_of

SHUFFLED_ROWS = 20_000
READ_BY_OWN_SOURCE = 4  # every so many runs, with --own-source
# A daemon that has imported everything: a worker that replaces a failed one starts in a tenth of the time.
DAEMON = {"spark__python__daemon__module": "tests.spark.faulty_daemon"}
DELIVERIES = ("content", "content", "none", "at_least_once")
WAYS = ("write", "format", "stream", "foreach_batch")


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
    counts = [len(values), _count(spark, "kafkaprod", servers, topic)]
    if has_own_source:
        counts.append(_count(spark, "kafka", servers, topic))
    is_right = values == expected and set(counts) == {rows}
    return "" if is_right else f"{counts} rows by readers, not {rows}; {count_of(servers, topic)} offsets"


def _save(spark: SparkSession, plan: Plan, options: dict[str, str], rows: int, directory: Path) -> None:
    if plan.way in ("stream", "foreach_batch"):
        source = directory / "in"
        source.mkdir()
        (source / "1.txt").write_bytes(b"\n".join(expected_values(rows)))
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


def campaign(spark: SparkSession, servers: str, arguments: argparse.Namespace, rng: random.Random) -> int:
    """Run on one host; return how many runs went wrong."""
    tally: collections.Counter[str] = collections.Counter()
    wrong = 0
    for number in range(arguments.runs):
        with tempfile.TemporaryDirectory() as scratch:
            has_own_source = arguments.own_source and number % READ_BY_OWN_SOURCE == 0
            kinds = faults(spark, Path(scratch))
            fault = list(kinds)[number % len(kinds)]
            way, delivery = rng.choice(WAYS), rng.choice(DELIVERIES)
            if delivery == "none" and not fault.startswith("Python"):
                delivery = "content"  # write() refuses these plans otherwise: they need not give the same rows again
            plan = Plan(fault, kinds[fault](), way, delivery)
            wrong += _note(tally, plan, run(spark, servers, plan, Path(scratch), has_own_source=has_own_source))
    _show(tally)
    return wrong


def campaign_of_executors(servers: str, runs: int, rng: random.Random) -> int:
    """Run on a cluster of two executors, one of which is killed in each run."""
    tally: collections.Counter[str] = collections.Counter()
    wrong = 0
    more = {name.replace(".", "__"): value for name, value in SETTINGS.items()} | DAEMON
    more |= {"spark__executorEnv__PYTHONPATH": os.environ.get("PYTHONPATH", os.getcwd())}
    more |= {"spark__executor__maxNumFailures": "10000", "spark__deploy__maxExecutorRetries": "-1"}
    with local_session("local-cluster[2,1,1024]", **more) as spark:
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as scratch:
                stage = fails_in_python(rng.randrange(1, BATCHES + 1), "executor")
                plan = Plan("executors are killed", stage, rng.choice(WAYS), rng.choice(DELIVERIES))
                wrong += _note(tally, plan, run(spark, servers, plan, Path(scratch), has_own_source=False))
    _show(tally)
    return wrong


def _note(tally: collections.Counter[str], plan: Plan, error: str) -> bool:
    for name in (plan.fault, plan.way, plan.delivery, "runs"):
        tally[name] += 1
    print(f"{tally['runs']} {plan.fault}, {plan.way}, {plan.delivery}: {error or 'right'}", flush=True)
    return bool(error)


def _show(tally: collections.Counter[str]) -> None:
    for name, count in sorted(tally.items()):
        print(f"{count:5} {name}")


def main() -> int:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.spark_cuts", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--runs", type=int, default=0, help="on one host (default: 0)")
    parser.add_argument("--executors", type=int, default=0, metavar="RUNS", help="that kill executors (default: 0)")
    parser.add_argument("--own-source", action="store_true", help="read by Spark's own source, too; needs Maven")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    rng = random.Random(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)
    wrong = 0
    more = {name.replace(".", "__"): value for name, value in SETTINGS.items()} | DAEMON
    if arguments.own_source:
        more |= {"spark__jars": spark_connector_class_path().replace(os.pathsep, ",")}
    with EmbeddedBroker(auto_create_topics=True, num_partitions=3) as broker:
        if arguments.runs:
            with local_session("local[2,4]", **more) as spark:
                wrong += campaign(spark, broker.bootstrap_servers, arguments, rng)
        if arguments.executors:
            wrong += campaign_of_executors(broker.bootstrap_servers, arguments.executors, rng)
    print(f"{wrong} runs went wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
