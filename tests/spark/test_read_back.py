"""Topics read as DataFrames, with the schema of Spark's own source."""

import json
from collections.abc import Callable

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.producer import Producer
from kafkaprod.spark import write
from tests.spark.topics import committed_values

pytestmark = pytest.mark.spark("4.0")


def load(spark: SparkSession, broker: EmbeddedBroker, **options: str) -> DataFrame:
    reader = spark.read.format("kafkaprod").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.options(**options).load()


def servers(broker: EmbeddedBroker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture(scope="module")
def filled_topic(spark: SparkSession, embedded_broker: EmbeddedBroker) -> str:
    """100 rows in each of three partitions."""
    df = spark.sql("select concat('v', id div 3) as value, int(id % 3) as partition from range(300)")
    write(df, servers(embedded_broker), topic="filled-for-filters")
    return "filled-for-filters"


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
    with pytest.raises(
        AnalysisException, match="must be specified for Kafka source: subscribe, subscribePattern, assign"
    ):
        load(spark, embedded_broker).collect()


def test_topic_without_records_gives_no_rows(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    write(spark.range(0).selectExpr("'v' as value"), servers(embedded_broker), topic=topic_name)  # makes the topic
    assert load(spark, embedded_broker, subscribe=topic_name).collect() == []


@pytest.mark.spark("4.1")
@pytest.mark.parametrize(
    ("condition", "ranges"),
    [
        ("partition = 1 and offset >= 3 and offset < 7", 1),
        ("partition in (0, 2) and offset = 5", 2),
        ("offset > 90 and offset <= 95 and topic = 'elsewhere'", 0),
        ("partition = 2 and value = cast('v5' as binary)", 1),
        ("offset > 95 or partition = 0", 3),
    ],
)
def test_filters_on_places_are_applied_before_anything_is_fetched(
    spark: SparkSession, filled_topic: str, embedded_broker: EmbeddedBroker, condition: str, ranges: int
) -> None:
    """Spark's answer without pushing is the expected one; a range is a task."""
    expected = load(spark, embedded_broker, subscribe=filled_topic).where(condition).collect()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, embedded_broker, subscribe=filled_topic, pushFilters="true").where(condition)
        assert sorted(frame.collect()) == sorted(expected)
        assert frame.rdd.getNumPartitions() == max(ranges, 1)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.spark("4.1")  # 4.0 wants every column of the view
def test_table_of_the_catalog_is_told_what_to_use_instead(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    """Spark hands the options of such a table to nobody; those of a temporary view it does."""
    options = f"OPTIONS (`kafka.bootstrap.servers` '{embedded_broker.bootstrap_servers}', topic '{topic_name}')"
    rows = "SELECT cast(cast(id as string) as binary) as value FROM range(10)"
    with pytest.raises(AnalysisException, match="Use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE kafkaprod_table USING kafkaprod {options} AS {rows}")
    spark.sql(f"CREATE TEMPORARY VIEW kafkaprod_view USING kafkaprod {options}")
    spark.sql(f"INSERT INTO kafkaprod_view (value) {rows}")
    assert load(spark, embedded_broker, subscribe=topic_name).count() == 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": '{"filled-for-filters":{"0":3}}'}, "you must specify all TopicPartitions"),
        ({"endingOffsets": '{"elsewhere":{"0":3}}'}, "If endingOffsets contains specific offsets, you must specify"),
        ({"endingOffsets": '{"filled-for-filters":{"0":9,"1":101,"2":-1}}'}, r"offsets 0\.\.101 .* outside 0\.\.100"),
        ({"startingOffsets": '{"filled-for-filters":{"0":101,"1":0,"2":-2}}'}, r"101\.\.100 .* outside 0\.\.100"),
    ],
)
def test_offsets_that_are_not_there_are_told_before_any_task(
    spark: SparkSession, filled_topic: str, embedded_broker: EmbeddedBroker, options: dict[str, str], words: str
) -> None:
    with pytest.raises(AnalysisException, match=words):
        load(spark, embedded_broker, subscribe=filled_topic, **options).collect()


def test_topic_or_partition_that_is_not_there_is_named(
    spark: SparkSession, filled_topic: str, embedded_broker: EmbeddedBroker
) -> None:
    with pytest.raises(AnalysisException, match="has 3 partitions, but not 7"):
        load(spark, embedded_broker, assign=json.dumps({filled_topic: [7]})).collect()
    with pytest.raises(AnalysisException, match=r"UNKNOWN_TOPIC_OR_PARTITION.*no-such-topic|no-such-topic.*UNKNOWN"):
        load(spark, embedded_broker, subscribe="no-such-topic").collect()


def test_aborted_and_open_transactions_are_left_out_with_read_committed(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    producer = Producer(bootstrap_servers=embedded_broker.bootstrap_servers, transactional_id=topic_name)
    producer.init_transactions()
    ends: list[Callable[[], object]] = [
        producer.commit_transaction,
        producer.abort_transaction,
        producer.commit_transaction,
        producer.flush,
    ]
    for number, end in enumerate(ends):
        producer.begin_transaction()
        for row in range(5):
            producer.send(topic_name, f"{number}-{row}".encode(), partition=0)
        producer.flush()  # an abort drops what was not sent
        end()
    try:
        committed = load(spark, embedded_broker, **{"subscribe": topic_name, "kafka.isolation.level": "read_committed"})
        values = sorted(bytes(row.value) for row in committed.collect())
        assert values == committed_values(embedded_broker.bootstrap_servers, topic_name)
        assert values == sorted(f"{number}-{row}".encode() for number in (0, 2) for row in range(5))
        assert load(spark, embedded_broker, subscribe=topic_name).count() == 20
    finally:
        producer.abort_transaction()
        producer.close()


def test_topics_by_pattern_and_offsets_by_time(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    rows = "select cast(id as string) as value, 0 as partition, timestamp_millis(1000 * id) as timestamp"
    rows += " from range(0, 10, 1, 1)"  # one task, so in this order
    write(spark.sql(rows), servers(embedded_broker), topic=topic_name)
    options = {"subscribePattern": f".*{topic_name[1:]}", "startingOffsetsByTimestampStrategy": "latest"}
    some = load(spark, embedded_broker, **options, startingTimestamp="3000", endingTimestamp="7000")
    assert [row.value for row in some.sort("offset").collect()] == [b"3", b"4", b"5", b"6"]
    with pytest.raises(AnalysisException, match=r"No offset matched .* timestamp 99000"):
        load(spark, embedded_broker, subscribe=topic_name, startingTimestamp="99000").collect()
    with pytest.raises(AnalysisException, match="matches none of"):
        load(spark, embedded_broker, subscribePattern="no-such-topic.+").collect()


def test_what_is_not_in_the_log_is_left_out_if_that_is_wanted(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    rows = "select cast(id as string) as value, 0 as partition from range(10)"
    write(spark.sql(rows), servers(embedded_broker), topic=topic_name)
    ends = {"assign": json.dumps({topic_name: [0]}), "endingOffsets": json.dumps({topic_name: {"0": 15}})}
    with pytest.raises(
        AnalysisException, match=r"nothing was written behind it\. With failOnDataLoss=false what is left"
    ):
        load(spark, embedded_broker, **ends).collect()
    assert load(spark, embedded_broker, **ends, failOnDataLoss="false").count() == 10
