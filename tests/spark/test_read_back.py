"""Topics read as DataFrames, with the schema of Spark's own source."""

import json

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from kafkaprod.broker.embedded import EmbeddedBroker
from kafkaprod.spark import write


def load(spark: SparkSession, broker: EmbeddedBroker, **options: str) -> DataFrame:
    reader = spark.read.format("kafkaprod").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.options(**options).load()


def test_what_was_written_comes_back(spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str) -> None:
    df = spark.sql(
        """select cast(cast(id as string) as binary) as key, cast(concat('v', id) as binary) as value,
        cast(id % 3 as int) as partition, timestamp_millis(1700000000000 + id) as timestamp,
        array(named_struct('key', 'h', 'value', cast('x' as binary))) as headers from range(300)"""
    )
    write(df, {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers}, topic=topic_name)
    back = load(spark, embedded_broker, subscribe=topic_name, includeHeaders="true")
    columns = ["key", "value", "partition", "timestamp", "headers"]
    assert sorted(back.select(columns).collect()) == sorted(df.select(columns).collect())
    assert {(row.topic, row.timestampType) for row in back.collect()} == {(topic_name, 0)}
    ranges = {
        "startingOffsets": json.dumps({topic_name: {"1": 10}}),
        "endingOffsets": json.dumps({topic_name: {"1": 15}}),
    }
    some = load(spark, embedded_broker, assign=json.dumps({topic_name: [1]}), **ranges).where("offset > 10")
    assert sorted(row.offset for row in some.collect()) == [11, 12, 13, 14]


def test_reading_needs_to_know_what(spark: SparkSession, embedded_broker: EmbeddedBroker) -> None:
    with pytest.raises(AnalysisException, match="must be specified for Kafka source: subscribe, assign"):
        load(spark, embedded_broker).collect()
