"""Spark writes with a write.id that are made twice: `python -m tests.campaigns.spark_repeats --runs 52 --connect 20`.

Each run writes rows in transactions, by `write()`, `format("kafkaprod")`, `foreach_batch` or the data source of
streams, as far as this PySpark has them. Then something happens, and the write is made again:

    again              nothing has happened
    PLACE KIND         a task fails or its worker is killed, at each place that `faulty_daemon` has; Spark runs it again
    for good           a task fails at each attempt, and so the write
    other rows         the rows have changed
    sparse             the rows are in two partitions, and were in three of forty
    new checkpoint     a stream begins with another checkpoint, the same write.id and other rows
    replayed           Spark's note that a micro-batch is done is gone
    deleted mark       the groups with the write marks are gone: the page says that the rows come again

Each row must be in the topic once, or the error must say what was in the way; the table at the end counts both. The
exit status is 1 if one went wrong. `--connect` makes so many runs over Spark Connect, in a process of its own; it needs
grpcio and grpcio-status.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import subprocess
import sys
import tempfile
import traceback
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession

from kafkaprod.spark import write
from tests.spark.faulty_daemon import PLACES, VARIABLE
from tests.spark.sessions import local_session
from tests.spark.stalls import last_line
from tests.spark.streams import run_stream
from tests.spark.targets import target
from tests.spark.topics import committed_values
from tests.spark.ways import WAYS

ROWS: Final = 300
ATTEMPTS: Final = 4
FAULTS: Final = tuple(f"{place} {kind}" for place in PLACES for kind in ("fail", "worker"))
BATCH_KINDS: Final = ("again", *FAULTS, "for good", "other rows", "sparse", "deleted mark")
STREAM_KINDS: Final = ("again", *FAULTS, "for good", "other rows", "new checkpoint", "replayed")
SETTINGS: Final = {
    "spark.python.daemon.module": "tests.spark.faulty_daemon",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
    "spark.sql.adaptive.enabled": "false",  # write() refuses shuffled rows with it
}
ERRORS: Final = {  # kind -> what the error of the second write says
    "other rows": "other ones were written by an earlier attempt",
    "sparse": "but an earlier attempt wrote",
    "new checkpoint": "is that of stream",
}


@dataclass(frozen=True, slots=True)
class Run:
    """A write that is made twice.

    Attributes:
        spark: The session.
        servers: Of the cluster.
        way: How it is written.
        topic: The topic, whose name is the write.id, too.
        directory: For files of a stream, and its checkpoints.
        faults: The directory that `faulty_daemon` looks at.
    """

    spark: SparkSession
    servers: str
    way: str
    topic: str
    directory: Path
    faults: Path

    def check(self, kind: str) -> str:
        """Write twice; return what is wrong, empty if nothing is."""
        expected = values(0)
        self._put_faults(kind)
        try:
            self._save(0, 40 if kind == "sparse" else 2, "first")
        except Exception as error:
            if kind != "for good":
                traceback.print_exc()
                return f"the first write: {last_line(error)}"
        else:
            if kind == "for good":
                return "the first write did not fail"
        left = [path for path in self.faults.iterdir() if not path.name.startswith(("done.", "attempt."))]
        if left and kind != "for good":  # of which those that the second task did not come to are left
            return "the fault has not come"
        self._between(kind)
        try:
            self._save(*self._second(kind))
        except Exception as error:
            said = str(error)
            if ERRORS.get(kind, "nothing") not in said:
                return f"the second write: {last_line(error)}"
            found = committed_values(self.servers, self.topic)
            if "some rows are in Kafka twice" in said and set(found) == set(expected):
                return ""
            return "" if found == expected else f"an error, and {len(found)} records of {len(set(found))} rows"
        if kind in ERRORS:
            return "the second write is no error"
        found = committed_values(self.servers, self.topic)
        times = 2 if kind == "deleted mark" else 1
        is_right = sorted(set(found)) == expected and len(found) == times * len(expected)
        return "" if is_right else f"{len(found)} records of {len(set(found))} rows"

    def _put_faults(self, kind: str) -> None:
        place, _, fault = kind.partition(" ")
        if kind == "for good":
            for number in range(ATTEMPTS * 2):  # either of two tasks takes them
                (self.faults / f"fail.rows.{number}").touch()
        elif kind in FAULTS:
            (self.faults / f"{fault}.{place}.0").touch()

    def _between(self, kind: str) -> None:
        for path in self.faults.iterdir():
            path.unlink()
        if kind == "replayed":
            for note in (self.directory / "first" / "commits").glob("*0*"):
                note.unlink()
        if kind == "other rows" and self._is_stream:
            for note in (self.directory / "first" / "commits").glob("*0*"):
                note.unlink()
        if kind == "deleted mark":
            admin = AdminClient({"bootstrap.servers": self.servers})
            listed = admin.list_consumer_groups().result().valid or []
            names = [group.group_id for group in listed if self.topic in group.group_id]
            for answer in admin.delete_consumer_groups(names).values():
                answer.result()

    def _second(self, kind: str) -> tuple[int, int, str]:
        """Return the first row, the partitions and the checkpoint of the second write."""
        return (
            1000 if kind in ("other rows", "new checkpoint") else 0,
            2,
            "second" if kind == "new checkpoint" else "first",
        )

    @property
    def _is_stream(self) -> bool:
        return self.way in ("stream", "foreach_batch")

    def _save(self, first: int, partitions: int, checkpoint: str) -> None:
        options = {"kafka.bootstrap.servers": self.servers, "topic": self.topic, "write.id": self.topic}
        options |= {"delivery": "transactional", "verify.replay": "content"}
        if self._is_stream:
            source = self.directory / "in"
            source.mkdir(exist_ok=True)
            rows = values(first)
            for number in range(2):
                half = rows[number * ROWS // 2 : (number + 1) * ROWS // 2]
                if not (source / f"{number}.txt").exists() or first:
                    (source / f"{number}.txt").write_bytes(b"\n".join(half))
            df = self.spark.readStream.text(str(source))
            run_stream(df, self.directory / checkpoint, options, by_batch=self.way == "foreach_batch")
            return
        df = self._frame(first, partitions)
        if self.way == "write":
            write(df, options)
        else:
            df.write.format("kafkaprod").mode("append").options(**options).save()

    def _frame(self, first: int, partitions: int) -> DataFrame:
        text = "lpad(cast(id as string), 5, '0') as value"
        rows = self.spark.range(first, first + ROWS, 1, 2).selectExpr("cast(id % 3 as string) as key", text)
        if self.topic.startswith("sparse"):
            return rows.sortWithinPartitions("value").repartition(partitions, "key").sortWithinPartitions("value")
        return rows


def values(first: int) -> list[bytes]:
    """The values of ROWS rows, sorted."""
    return [b"%05d" % number for number in range(first, first + ROWS)]


def plans(ways: tuple[str, ...], runs: int, rng: random.Random) -> list[tuple[str, str]]:
    """Return so many pairs of a way and a kind, each before one comes again."""
    every = [
        (way, kind)
        for way in ways
        for kind in (STREAM_KINDS if way in ("stream", "foreach_batch") else BATCH_KINDS)
    ]  # fmt: skip
    chosen: list[tuple[str, str]] = []
    while len(chosen) < runs:
        chosen += rng.sample(every, len(every))
    return chosen[:runs]


def run_all(spark: SparkSession, servers: str, runs: int, rng: random.Random, faults: Path) -> int:
    """Make runs with one session; return how many went wrong."""
    tally: collections.Counter[str] = collections.Counter()
    wrong = 0
    for number, (way, kind) in enumerate(plans(WAYS, runs, rng)):
        with tempfile.TemporaryDirectory() as scratch:
            topic = f"{kind.replace(' ', '-')}-{uuid.uuid4().hex[:8]}"
            why = Run(spark, servers, way, topic, Path(scratch), faults).check(kind)
        for path in faults.iterdir():
            path.unlink()
        wrong += bool(why)
        tally.update((way, kind, "runs", "each row once" if kind not in ERRORS else "an error that names it"))
        print(f"{number + 1} {way}, {kind}: {why or 'right'}", flush=True)
    for name, count in sorted(tally.items()):
        print(f"{count:5} {name}")
    return wrong


def run_over_connect(servers: str, runs: int, rng: random.Random, faults: Path) -> int:
    """Make runs over Spark Connect, to a server that ends with this process."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.remote(f"local[2,{ATTEMPTS}]")
    more = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"}
    for name, value in (SETTINGS | more).items():
        builder = builder.config(name, value)
    return run_all(builder.getOrCreate(), servers, runs, rng, faults)


def main() -> int:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.spark_repeats", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--runs", type=int, default=0, help="in a session of this process (default: 0)")
    parser.add_argument("--connect", type=int, default=0, metavar="RUNS", help="over Spark Connect (default: 0)")
    parser.add_argument("--kafka", action="store_true", help="write to Apache Kafka, not to the embedded broker")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--servers", help=argparse.SUPPRESS)  # of the process that speaks Spark Connect
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as faults:
        os.environ[VARIABLE] = faults
        if arguments.servers:
            return bool(run_over_connect(arguments.servers, arguments.connect, rng, Path(faults)))
        print(f"seed {arguments.seed}", flush=True)
        wrong = 0
        with target(is_kafka=arguments.kafka) as servers:
            if arguments.runs:
                settings = {name.replace(".", "__"): value for name, value in SETTINGS.items()}
                with local_session(f"local[2,{ATTEMPTS}]", **settings) as spark:
                    wrong += run_all(spark, servers, arguments.runs, rng, Path(faults))
            if arguments.connect:
                command = [sys.executable, "-m", "tests.campaigns.spark_repeats", "--connect", str(arguments.connect)]
                command += ["--seed", str(arguments.seed), "--servers", servers]
                wrong += subprocess.run(command, check=False).returncode
    print(f"{wrong} runs went wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
