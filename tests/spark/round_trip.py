"""A program that writes rows through a session of its own and compares what it reads back with Spark's own result.

    python tests/spark/round_trip.py --master local-cluster[2,1,1024] localhost:9092 my-topic
    python tests/spark/round_trip.py --remote local[2] --ship localhost:9092 my-topic

As a batch with `write`, as a batch with `format("kafkaprod")` (PySpark 4.0), as a stream (4.1; through `foreachBatch`
before that): the last not over Spark Connect with --ship, where a stream's tasks do not get what the session was sent.
Of the project it imports only
the package: with --ship the workers may lack it.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
ROWS = """
    select cast(if(id % 7 = 0, null, cast(id as string)) as binary) as key,
           if(id % 11 = 0, null, cast(repeat(cast(id as string), int(id % 50)) as binary)) as value,
           timestamp_millis(1700000000000 + id) as timestamp,
           array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))) as headers
    from range(0, {count}, 1, 4)
"""
COUNT = 20_000
COLUMNS = ("key", "value", "timestamp", "headers")


def session(arguments: argparse.Namespace) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder
    builder = builder.remote(arguments.remote) if arguments.remote else builder.master(arguments.master)
    settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.session.timeZone": "UTC"}
    if not arguments.remote:
        settings["spark.driver.host"] = "127.0.0.1"
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--remote")
    parser.add_argument("--ship", action="store_true")
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic", help="others are made of its name")
    arguments = parser.parse_args()
    spark = session(arguments)
    try:
        if arguments.ship:
            from kafkaprod.spark import ship

            ship(spark)
        round_trips(spark, arguments)
    finally:
        spark.stop()


def round_trips(spark: SparkSession, arguments: argparse.Namespace) -> None:
    from kafkaprod.spark import foreach_batch, write

    kafka = {"kafka.bootstrap.servers": arguments.bootstrap_servers}
    rows = spark.sql(ROWS.format(count=COUNT))

    def by_format(topic: str) -> None:
        rows.write.format("kafkaprod").mode("append").options(**kafka).option("topic", topic).save()

    def by_stream(topic: str) -> None:
        with tempfile.TemporaryDirectory() as directory:
            for step in range(2):  # the directory grows between two runs of the query
                part = rows.where(f"cast(unix_millis(timestamp) as bigint) % 2 = {step}")
                part.write.mode("append").parquet(f"{directory}/in")
                stream = spark.readStream.schema(rows.schema).parquet(f"{directory}/in")
                writer = stream.writeStream.trigger(availableNow=True)
                writer = writer.option("checkpointLocation", str(Path(directory) / "checkpoint"))
                if VERSION >= (4, 1):
                    query = writer.format("kafkaprod").options(**kafka).option("topic", topic).start()
                else:
                    query = writer.foreachBatch(foreach_batch(kafka, topic=topic)).start()
                assert query.awaitTermination(120), "the stream goes on"
                assert query.exception() is None, query.exception()

    ways: dict[str, Callable[[str], object]] = {"write": lambda topic: write(rows, kafka, topic=topic)}
    if VERSION >= (4, 0):
        ways["format"] = by_format
    if not (arguments.remote and arguments.ship):
        ways["stream"] = by_stream
    for name, way in ways.items():
        topic = f"{arguments.topic}-{name}"
        way(topic)
        if VERSION >= (4, 0):
            back = spark.read.format("kafkaprod").options(**kafka).option("subscribe", topic)
            compare(name, rows, back.option("includeHeaders", "true").load())


def compare(name: str, rows: DataFrame, back: DataFrame) -> None:
    count, expected, found = back.count(), sorted_rows(rows), sorted_rows(back)
    assert (count, len(found)) == (COUNT, COUNT), f"{name}: {count}, {len(found)} of {COUNT} rows"
    assert found == expected, f"{name}: other rows came back"
    print(f"{name}: {count} rows are the same")


def sorted_rows(df: DataFrame) -> list[str]:
    return sorted(map(repr, df.select(*COLUMNS).collect()))


if __name__ == "__main__":
    main()
