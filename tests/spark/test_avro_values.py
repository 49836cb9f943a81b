"""Rows as Avro records with the registry's ids, read back by confluent's deserializer."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.errors import ConfigError
from kafkaprod.spark import write
from tests.spark.topics import values_of
from tests.support.schema_registry import Registry, running_registry

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of authlib, which confluent's client imports

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "price", "type": "double"},
            {"name": "item", "type": ["null", "string"], "default": None},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        ],
    }
)
COLUMNS = "id, id * 0.25D as price, if(id % 5 = 0, null, concat('tea ', id)) as item, timestamp_millis(id * 1000) as at"


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


def read_back(registry: Registry, broker: EmbeddedBroker, topic: str) -> list[Any]:
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    context = SerializationContext(topic, MessageField.VALUE)
    rows: list[Any] = [deserialize(value, context) for value in values_of(broker.bootstrap_servers, topic)]
    return sorted(rows, key=lambda row: row["id"])


def expected(count: int) -> list[dict[str, object]]:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return [
        {
            "id": number,
            "price": number * 0.25,
            "item": f"tea {number}" if number % 5 else None,
            "at": epoch + datetime.timedelta(seconds=number),
        }
        for number in range(count)
    ]


def test_the_data_source_registers_the_schema_once_and_confluent_reads_the_rows(
    spark: SparkSession, embedded_broker: EmbeddedBroker, registry: Registry, topic_name: str
) -> None:
    rows = spark.sql(f"select cast(id as string) as key, {COLUMNS} from range(0, 500, 1, 4)")
    (
        rows.write.format("kafkaprod")
        .mode("append")
        .option("kafka.bootstrap.servers", embedded_broker.bootstrap_servers)
        .option("topic", topic_name)
        .option("value.format", "avro")
        .option("value.schema", SCHEMA)
        .option("schema.registry.url", registry.url)
        .save()
    )
    assert registry.asked == [f"POST /subjects/{topic_name}-value/versions"]  # no task asks
    assert read_back(registry, embedded_broker, topic_name) == expected(500)


def test_without_a_schema_the_subjects_latest_is_taken(
    spark: SparkSession, embedded_broker: EmbeddedBroker, registry: Registry, topic_name: str, tmp_path: Path
) -> None:
    registry.add("other", '"string"')
    registry.add("orders", SCHEMA)
    (tmp_path / "user").write_text("me:secret\n")
    options = {
        "kafka.bootstrap.servers": embedded_broker.bootstrap_servers,
        "value.format": "avro",
        "value.subject": "orders",
        "value.columns": "id, price, at",
        "schema.registry.url": registry.url,
        "schema.registry.basic.auth.user.info": f"file:{tmp_path / 'user'}",
    }
    write(spark.sql(f"select {COLUMNS} from range(10)"), options, topic=topic_name)
    assert registry.authorization is not None
    assert registry.authorization.startswith("Basic ")
    assert values_of(embedded_broker.bootstrap_servers, topic_name)[0][:5] == b"\x00\x00\x00\x00\x02"  # type: ignore[index]
    assert read_back(registry, embedded_broker, topic_name) == [{**row, "item": None} for row in expected(10)]


def test_a_stream_writes_avro(
    spark: SparkSession, embedded_broker: EmbeddedBroker, registry: Registry, topic_name: str, tmp_path: Path
) -> None:
    from kafkaprod.spark import foreach_batch

    spark.sql(f"select {COLUMNS} from range(100)").write.parquet(str(tmp_path / "in"))
    options = {
        "kafka.bootstrap.servers": embedded_broker.bootstrap_servers,
        "value.format": "avro",
        "value.schema": SCHEMA,
        "schema.registry.url": registry.url,
    }
    rows = spark.readStream.schema("id long, price double, item string, at timestamp").parquet(str(tmp_path / "in"))
    query = (
        rows.writeStream.foreachBatch(foreach_batch(options, topic=topic_name))
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert read_back(registry, embedded_broker, topic_name) == expected(100)


@pytest.mark.parametrize(
    ("schema", "more", "words"),
    [
        ("{", {}, "the Avro schema is refused"),
        ('"string"', {}, "needs the schema of a record"),
        (SCHEMA.replace("price", "cost"), {}, "column 'price' is no field of the Avro schema, which has id, cost"),
        (SCHEMA, {"value.columns": "id"}, "has a field 'price' without a default"),
        (SCHEMA, {"auto.register.schemas": "false"}, "Subject 'orders-value' not found"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_before_anything_is_sent(
    spark: SparkSession, registry: Registry, schema: str, more: dict[str, str], words: str
) -> None:
    options = {
        "kafka.bootstrap.servers": "x:1",
        "value.format": "avro",
        "value.schema": schema,
        "schema.registry.url": registry.url,
    }
    with pytest.raises(ConfigError) as caught:
        write(spark.sql(f"select {COLUMNS} from range(1)"), options | more, topic="orders")
    assert words in str(caught.value)
