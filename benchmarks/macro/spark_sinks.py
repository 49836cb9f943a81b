"""Ways from Spark into Kafka, alternating in one session, on the same rows and the same broker.

    python -m benchmarks.macro.spark_sinks --rows 500000 --rounds 3

Rates are rows a second and rows a core-second: the CPU time of the JVM and of the Python workers together, from /proc;
then that time a row, of each. The broker's is not in it. Needs PySpark 4.2, for which the JVM connector is fetched,
Java and Maven.

    noop        Spark's own null sink: the cost of making the rows
    null-arrow  the same interface as this package's, sending nothing
    kafkaprod   this package
    exactly     this package with delivery=transactional
    jvm         Spark's own Kafka sink
    foreach     foreachPartition with confluent-kafka, a tenth of the rows
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from tests.kafka.cluster import KafkaCluster
from tests.kafka.runtime import spark_connector_class_path
from tests.spark.sessions import local_session

PARTITIONS = 6
LINGER_MS = "5"
BATCH_BYTES = "262144"
FOREACH_SHARE = 10
WITH_TOPIC = ("kafkaprod", "exactly", "jvm", "foreach")
_TICKS = os.sysconf("SC_CLK_TCK")


class NullWriter(DataSourceArrowWriter):
    """Reads every batch and forgets it."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class NullSink(DataSource):
    """`format("null_arrow")`."""

    @classmethod
    def name(cls) -> str:
        return "null_arrow"

    def writer(self, schema: Any, overwrite: bool) -> NullWriter:
        return NullWriter()


class CpuTime(NamedTuple):
    """Seconds."""

    jvm: float
    python: float


def cpu_time(root: int, broker: int) -> CpuTime:
    """CPU time so far of a process and all its descendants but the broker; those that ended count in their parents."""
    stats = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                name, _, rest = (directory / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue
            fields = rest.split()
            stats[int(directory.name)] = (int(fields[1]), name == "java", sum(map(int, fields[11:15])) / _TICKS)
    jvm = python = 0.0
    for pid, (_, is_jvm, seconds) in stats.items():
        ancestor = pid
        while ancestor not in (root, broker) and ancestor in stats:
            ancestor = stats[ancestor][0]
        if ancestor == root:
            jvm, python = jvm + seconds * is_jvm, python + seconds * (not is_jvm)
    return CpuTime(jvm, python)


def send_partition(rows: Iterator[Row], settings: dict[str, str], topic: str) -> None:
    """What many programs do today."""
    from confluent_kafka import Producer

    producer = Producer(settings)
    for row in rows:
        while True:
            try:
                producer.produce(topic, row.value, row.key)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


def ways(servers: str, codec: str, json: bool) -> dict[str, tuple[Callable[[DataFrame, str], None], int]]:
    """Name -> (what writes a frame to a topic, which share of the rows it gets)."""
    kafka = {
        "bootstrap.servers": servers,
        "acks": "all",
        "linger.ms": LINGER_MS,
        "batch.size": BATCH_BYTES,
        "compression.type": codec,
    }
    options = {f"kafka.{name}": value for name, value in kafka.items()}

    def as_value(df: DataFrame) -> DataFrame:
        return df.selectExpr("to_json(struct(*)) as value") if json else df

    def kafkaprod(df: DataFrame, topic: str) -> None:
        sink = df.write.format("kafkaprod").mode("append").options(**options, topic=topic)
        (sink.option("value.format", "json") if json else sink).save()

    def exactly(df: DataFrame, topic: str) -> None:
        exactly_once = {"delivery": "transactional", "write.id": topic}
        sink = df.write.format("kafkaprod").mode("append").options(**options, **exactly_once, topic=topic)
        (sink.option("value.format", "json") if json else sink).save()

    def foreach(df: DataFrame, topic: str) -> None:
        settings = {name: value for name, value in kafka.items() if name != "batch.size"}
        as_value(df).foreachPartition(lambda rows: send_partition(rows, settings, topic))

    found: dict[str, tuple[Callable[[DataFrame, str], None], int]] = {
        "noop": (lambda df, topic: as_value(df).write.format("noop").mode("overwrite").save(), 1),
        "null-arrow": (lambda df, topic: df.write.format("null_arrow").mode("append").save(), 1),
        "kafkaprod": (kafkaprod, 1),
        "exactly": (exactly, 1),
        "jvm": (lambda df, topic: as_value(df).write.format("kafka").options(**options, topic=topic).save(), 1),
    }
    if not json:
        found["foreach"] = (foreach, FOREACH_SHARE)
    return found


def make_rows(spark: SparkSession, rows: int, value_bytes: int, path: str) -> DataFrame:
    """Key of 8 bytes and a half random value, or for value_bytes=0 eight columns of an event; as Parquet."""
    if value_bytes:
        text = "concat(sha2(cast(id as string), 512), repeat(sha2(cast(id % 97 as string), 512), 10))"
        columns = [
            "cast(lpad(cast(id as string), 8, '0') as binary) as key",
            f"cast(substr({text}, 1, {value_bytes}) as binary) as value",
        ]
    else:
        columns = [
            *("id", "id % 1000 as user", "concat('item-', id % 5000) as item", "id * 0.25D as price"),
            *("id % 3 = 0 as is_new", "timestamp_millis(1700000000000 + id) as at", "if(id % 5 = 0, null, id) as ref"),
            "concat('a \"quoted\" note ', id % 11) as note",
        ]
    spark.range(rows).selectExpr(*columns).write.mode("overwrite").parquet(path)
    return spark.read.parquet(path)


def measure(
    spark: SparkSession, cluster: KafkaCluster, arguments: argparse.Namespace, value_bytes: int, codec: str
) -> None:
    """Run every way in turn and print a line for each."""
    label = f"{value_bytes} B" if value_bytes else "8 columns as JSON"
    rows = arguments.rows if value_bytes < 1000 else arguments.rows // 5
    with tempfile.TemporaryDirectory() as directory:
        df = make_rows(spark, rows, value_bytes, f"{directory}/all")
        few = df.limit(rows // FOREACH_SHARE).repartition(2)
        few.write.parquet(f"{directory}/few")
        frames = {1: df, FOREACH_SHARE: spark.read.parquet(f"{directory}/few")}
        found = ways(cluster.bootstrap(), codec, json=not value_bytes)
        found = {name: way for name, way in found.items() if name in arguments.ways}
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in found}
        costs: dict[str, list[CpuTime]] = {name: [] for name in found}
        for number in range(-arguments.warm_ups, arguments.rounds):
            if number == 0:
                print(f"{label}, {codec}: measuring", flush=True)
            topic = f"t-{value_bytes}-{codec}-{number}".replace(" ", "-")
            for name, (write, share) in found.items():
                if name in WITH_TOPIC:
                    cluster.create_topic(f"{topic}-{name}", PARTITIONS)
                cpu, start = cpu_time(os.getpid(), cluster.pid(1)), time.perf_counter()
                write(frames[share], f"{topic}-{name}")
                seconds = time.perf_counter() - start
                now, count = cpu_time(os.getpid(), cluster.pid(1)), rows / share
                used = CpuTime(now.jvm - cpu.jvm, now.python - cpu.python)
                if number >= 0:
                    figures[name].append((count / seconds, count / max(sum(used), 1 / _TICKS)))
                    costs[name].append(CpuTime(used.jvm / count * 1e6, used.python / count * 1e6))
                if name in WITH_TOPIC:
                    cluster.delete_topic(f"{topic}-{name}")
    print(f"\n{label}, {codec}, {rows} rows, {arguments.master}; median (least..most) of {arguments.rounds} rounds")
    base = statistics.median(core for _, core in figures.get("jvm", [(0, 1)]))
    for name, pairs in figures.items():
        wall, core = (sorted(column) for column in zip(*pairs, strict=True))
        jvm, python = (statistics.median(column) for column in zip(*costs[name], strict=True))
        print(
            f"  {name:11} {statistics.median(wall):12,.0f} rows/s ({wall[0]:,.0f}..{wall[-1]:,.0f})"
            f" {statistics.median(core):12,.0f} rows/core-s ({core[0]:,.0f}..{core[-1]:,.0f})"
            f"  x{statistics.median(core) / base:.2f} of jvm, us a row: JVM {jvm:.2f}, Python {python:.2f}",
            flush=True,
        )


def main() -> None:
    """Parse, start, measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.macro.spark_sinks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-ups", type=int, default=1, help="rounds before, in which the JVM compiles")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--value-bytes", type=int, nargs="+", default=[100, 1000, 0], help="0: 8 columns as JSON")
    parser.add_argument("--codec", nargs="+", default=["none", "zstd"])
    parser.add_argument("--ways", nargs="+", default=["noop", "null-arrow", "kafkaprod", "exactly", "jvm", "foreach"])
    parser.add_argument("--default-arrow", action="store_true", help="leave Spark's Arrow settings alone")
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # The connector's jars are of one version of Spark: only its own sink needs them.
    jars = {"spark__jars": spark_connector_class_path().replace(os.pathsep, ",")} if "jvm" in arguments.ways else {}
    with KafkaCluster(1) as cluster, local_session(arguments.master, **jars) as spark:
        from kafkaprod.spark import tune

        if not arguments.default_arrow:
            tune(spark)
        spark.dataSource.register(NullSink)
        for value_bytes in arguments.value_bytes:
            for codec in arguments.codec:
                measure(spark, cluster, arguments, value_bytes, codec)


if __name__ == "__main__":
    main()
