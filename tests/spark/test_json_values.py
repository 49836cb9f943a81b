"""Rows as JSON built in the engine, against Spark's own to_json."""

import json

from pyspark.sql import SparkSession

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.spark import write
from tests.spark.topics import values_of

COLUMNS = """
    id, id % 3 = 0 as is_third, id * 0.25D as price, if(id % 5 = 0, null, concat('say "', id, '" \\u00e9\\n')) as text,
    cast(id as decimal(12, 2)) as amount, timestamp_millis(1700000000000 + id) as at,
    date_add(date'2024-01-01', int(id)) as day, array(id, null) as list, named_struct('a', id, 'b', 'x') as pair
"""


def test_rows_are_the_bytes_of_to_json(spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str) -> None:
    df = spark.sql(f"select {COLUMNS} from range(0, 500, 1, 2)")
    options = {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers, "value.format": "json"}
    write(df, options, topic=topic_name)
    expected = sorted(row.value.encode() for row in df.selectExpr("to_json(struct(*)) as value").collect())
    assert values_of(embedded_broker.bootstrap_servers, topic_name) == expected


def test_attributes_stay_out_of_the_value_unless_named(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    df = spark.sql("select 'k' as key, 1 as a, 2 as b")
    options = {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers, "value.format": "json"}
    write(df, options, topic=topic_name)
    write(df, options | {"value.columns": "b, key"}, topic=topic_name)
    values = [json.loads(value or b"") for value in values_of(embedded_broker.bootstrap_servers, topic_name)]
    assert values == [{"a": 1, "b": 2}, {"b": 2, "key": "k"}]
