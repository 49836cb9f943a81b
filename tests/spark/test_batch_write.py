"""Batches into Kafka, read back and compared with what Spark itself collects."""

import datetime
import gc
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.producer import Producer
from kafkaprod.spark import write, writing
from kafkaprod.spark.options import parse_options
from kafkaprod.spark.plan import WritePlan, make_plan
from kafkaprod.spark.rows import SentRows, send_batch
from kafkaprod.spark.task import write_task
from kafkaprod.spark.writing import SMALL_BYTES, FailedRecordError
from tests.spark.topics import read_topic
from tests.support.core.faces import partition_of_key

ROWS = """
    select if(id % 7 = 0, null, cast(id as string)) as key,
           if(id % 11 = 0, null, cast(repeat(cast(id as string), int(id % 50)) as binary)) as value,
           timestamp_millis(1700000000000 + id) as timestamp,
           if(id % 13 = 0, null, transform(sequence(0, id % 4), i ->
               named_struct('key', concat('h', i), 'value', if(i = 1, null, cast(cast(id as string) as binary)))
           )) as headers
    from range(0, 5000, 1, 3)
"""


def expected_rows(spark: SparkSession) -> list[tuple[object, ...]]:
    """What Spark collects, as a reader of the topic should see it."""
    rows = [
        (
            None if row.key is None else row.key.encode(),
            None if row.value is None else bytes(row.value),
            [(header.key, None if header.value is None else bytes(header.value)) for header in row.headers or ()],
            int(row.timestamp.replace(tzinfo=datetime.UTC).timestamp() * 1000 + 0.5),
        )
        for row in spark.sql(ROWS).collect()
    ]
    return sorted(rows, key=repr)


def written_rows(broker: EmbeddedBroker, topic: str) -> list[tuple[object, ...]]:
    rows = read_topic(broker.bootstrap_servers, topic)
    return sorted(((row.key, row.value, row.headers, row.timestamp_ms) for row in rows), key=repr)


def count_frozen(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()]})


def test_workers_leave_their_imports_out_of_the_collection_after_each_task(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    write(spark.sql(ROWS), {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers}, topic=topic_name)
    frozen = spark.range(1, numPartitions=1).mapInArrow(count_frozen, "frozen long").collect()
    assert [row.frozen > 10_000 for row in frozen] == [True]


def test_every_row_arrives_as_spark_has_it(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    report = write(spark.sql(ROWS), {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers}, topic=topic_name)
    assert written_rows(embedded_broker, topic_name) == expected_rows(spark)
    assert report.rows == 5000
    assert [task.partition for task in report.tasks] == [0, 1, 2]
    rows = read_topic(embedded_broker.bootstrap_servers, topic_name)
    for number, places in report.offsets[topic_name].items():
        offsets = [row.offset for row in rows if row.partition == number]
        assert (places.first, places.last, places.count) == (offsets[0], offsets[-1], len(offsets))


@pytest.mark.spark("4.0")
def test_large_offsets_arrive_alike(spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str) -> None:
    """The other layout of Spark's Arrow batches."""
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        save = spark.sql(ROWS).write.format("kafkaprod").mode("append").option("topic", topic_name)
        save.option("kafka.bootstrap.servers", embedded_broker.bootstrap_servers).save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert written_rows(embedded_broker, topic_name) == expected_rows(spark)


def test_keys_go_where_javas_partitioner_puts_them(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    df = spark.range(500).selectExpr("cast(id as string) as key", "'v' as value")
    write(df, {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers}, topic=topic_name)
    rows = read_topic(embedded_broker.bootstrap_servers, topic_name)
    assert len(rows) == 500
    assert all(row.partition == partition_of_key(row.key or b"", 3) for row in rows)


def test_empty_frame_writes_nothing(spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str) -> None:
    df = spark.range(0).selectExpr("cast(id as string) as value")
    report = write(df, {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers}, topic=topic_name)
    assert report.rows == 0


def test_task_whose_rows_were_not_all_acknowledged_fails(
    embedded_broker: EmbeddedBroker, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reason: here the second of two batches gets lost on its way to the producer."""
    options = {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers, "topic": topic_name}
    plan = make_plan(StructType([StructField("value", StringType())]), parse_options(options))
    batches = [pa.record_batch({"value": ["x" * SMALL_BYTES, "y"]}) for _ in range(2)]

    def losing(producer: Producer, plan: WritePlan, batch: pa.RecordBatch, *more: Any) -> list[SentRows]:
        return [] if batch is batches[1] else send_batch(producer, plan, batch, *more)

    monkeypatch.setattr(writing, "send_batch", losing)
    with pytest.raises(FailedRecordError, match="task -1 had 4 rows, of which 2 were acknowledged"):
        write_task(plan, batches)
