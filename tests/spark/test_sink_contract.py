"""What Spark's own Kafka sink is tested for, asked of this one: columns, options, their precedence, words of errors.

Source: the behaviours in KafkaSinkSuite of Apache Spark; the code is our own. docs/spark.md lists the differences.
"""

from collections.abc import Callable

import pandas
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import list_topics
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import ConfigError, KafkaError, TopicNotFoundError
from kafkaprod.spark import write
from kafkaprod.spark.options import parse_options
from kafkaprod.spark.preflight import check_topic, check_transactions
from kafkaprod.spark.source import KafkaProdSource
from tests.spark.topics import read_topic, values_of

pytestmark = pytest.mark.spark("4.0")


def save(df: DataFrame, broker: EmbeddedBroker, mode: str = "append", **options: str) -> None:
    writer = df.write.format("kafkaprod").mode(mode).option("kafka.bootstrap.servers", broker.bootstrap_servers)
    writer.options(**{name.replace("__", "."): value for name, value in options.items()}).save()


def error_of(action: Callable[[], object]) -> str:
    """The words of the error before any task starts."""
    with pytest.raises((AnalysisException, ConfigError)) as caught:
        action()
    return str(caught.value)


def test_rows_go_to_the_topic_of_their_column(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    rows = [(topic_name, "1"), (topic_name, "2"), (f"{topic_name}-b", "3")]
    df = spark.createDataFrame(rows, "topic string, value string")
    save(df, embedded_broker)
    assert values_of(embedded_broker.bootstrap_servers, topic_name) == [b"1", b"2"]
    assert values_of(embedded_broker.bootstrap_servers, f"{topic_name}-b") == [b"3"]


def test_topic_option_wins_over_the_topic_column(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    df = spark.createDataFrame([("elsewhere", "1"), (None, "2")], "topic string, value string")
    save(df, embedded_broker, topic=f" {topic_name} ")
    assert values_of(embedded_broker.bootstrap_servers, topic_name) == [b"1", b"2"]


def test_null_topic_without_an_option_fails_the_write(spark: SparkSession, embedded_broker: EmbeddedBroker) -> None:
    df = spark.createDataFrame([(None, "1")], "topic string, value string")
    with pytest.raises(Exception, match="null topic present in the data"):
        save(df, embedded_broker)


def test_no_topic_at_all_fails_before_any_task(spark: SparkSession, embedded_broker: EmbeddedBroker) -> None:
    df = spark.sql("select '1' as value")
    words = "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
    assert words in error_of(lambda: save(df, embedded_broker))
    assert words in error_of(lambda: write(df, {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers}))


def test_value_column_is_required(spark: SparkSession, embedded_broker: EmbeddedBroker) -> None:
    df = spark.sql("select 't' as topic, '1' as key")
    words = "Required attribute 'value' not found: name a column so, or set value.format=json to write all columns"
    assert words in error_of(lambda: save(df, embedded_broker))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("1 as topic, '1' as value", "topic attribute unsupported type int. topic must be a(n) string"),
        ("1L as key, '1' as value", "key attribute unsupported type bigint. key must be a(n) string or binary"),
        (
            "1L as value",
            "value attribute unsupported type bigint. value must be a(n) string or binary: cast it, or set "
            "value.format=json to write all columns",
        ),
        ("'1' as value, '1' as partition", "partition attribute unsupported type string. partition must be a(n) int"),
        (
            "'1' as value, map('a', 'b') as headers",
            "headers attribute unsupported type map<string,string>. headers must be a(n) "
            "array<struct<key:string,value:binary>>",
        ),
        ("'1' as value, 5 as timestamp", "timestamp attribute unsupported type int. timestamp must be a(n) timestamp"),
    ],
)
def test_wrong_type_is_told_in_the_words_of_sparks_sink(
    spark: SparkSession, embedded_broker: EmbeddedBroker, columns: str, words: str
) -> None:
    servers = {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers}
    options = servers if "topic" in columns else servers | {"topic": "t"}
    df = spark.sql(f"select {columns}")
    assert words in error_of(lambda: write(df, options))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("1 as a, 2 as b, 3 as a", "there are 2 columns 'a'"),
        ("'k' as key, 1 as a, 'l' as key", "there are 2 columns 'key'"),
        ("array(named_struct('v', parse_json('{}'))) as a", "column 'a' is or contains a variant"),
        ("interval '1' day as a", "column 'a' is or contains an interval day, which cannot be written with"),
        ("array(interval '1-2' year to month) as a", "contains an interval year to month, which cannot be written"),
        ("make_interval(1) as a", "column 'a' is or contains an interval, which cannot be written with"),
        ("struct(map(date'2020-01-01', 1)) as a", "contains a map<date,int>, but keys of a JSON object are strings"),
    ],
)
def test_json_value_of_columns_it_cannot_have_is_refused(spark: SparkSession, columns: str, words: str) -> None:
    options = {"kafka.bootstrap.servers": "x:1", "value.format": "json"}
    assert words in error_of(lambda: write(spark.sql(f"select {columns}"), options, topic="t"))


def test_interval_in_an_avro_value_is_refused(spark: SparkSession) -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}'
    options = {"kafka.bootstrap.servers": "x:1", "value.format": "avro", "value.schema": schema, "value.schema.id": 1}
    words = error_of(
        lambda: write(spark.sql("select interval '1' day as a"), options | {"preflight": "false"}, topic="t")
    )
    assert "interval day, which cannot be written with value.format=avro" in words


def test_frame_of_pandas_is_refused() -> None:
    frame = pandas.DataFrame({"value": ["1"]})
    words = error_of(lambda: write(frame, {"kafka.bootstrap.servers": "x:1"}, topic="t"))  # type: ignore[arg-type]
    assert "not Spark's: use spark.createDataFrame()" in words


def test_overwriting_is_refused(spark: SparkSession, embedded_broker: EmbeddedBroker) -> None:
    df = spark.sql("select '1' as value")
    words = error_of(lambda: save(df, embedded_broker, mode="overwrite", topic="t"))
    assert "Save mode Overwrite not allowed for Kafka: a topic is only appended to. Use mode('append')" in words


@pytest.mark.parametrize(("option", "what"), [("kafka.key.serializer", "keys"), ("kafka.value.serializer", "values")])
def test_serializers_are_refused(spark: SparkSession, option: str, what: str) -> None:
    df = spark.sql("select '1' as value")
    words = error_of(lambda: write(df, {"kafka.bootstrap.servers": "x:1", option: "foo"}, topic="t"))
    assert f"'{option[6:]}' is not supported as {what} are serialized with ByteArraySerializer" in words


def test_unknown_topic_fails_on_the_driver(spark: SparkSession) -> None:
    with EmbeddedBroker(auto_create_topics=False) as broker:
        df = spark.sql("select '1' as value")
        words = error_of(lambda: save(df, broker, topic="nowhere", kafka__max__block__ms="100"))
    assert "Topic nowhere not present in metadata after 100 ms" in words


@pytest.mark.spark("4.1")
def test_a_stream_looks_for_its_topic_before_it_begins_and_then_no_more() -> None:
    options = {"kafka.allow.auto.create.topics": "false", "kafka.max.block.ms": "200"}
    schema = StructType([StructField("value", StringType())])
    with EmbeddedBroker(auto_create_topics=True, topics={"orders": 1}) as broker:
        options["kafka.bootstrap.servers"] = broker.bootstrap_servers
        with pytest.raises(KafkaError, match="Topic oders not present in metadata after 200 ms"):
            KafkaProdSource(options | {"topic": "oders"}).streamWriter(schema, False)
        KafkaProdSource(options | {"topic": "oders", "preflight": "false"}).streamWriter(schema, False)
        KafkaProdSource(options | {"topic": "orders"}).streamWriter(schema, False)
    KafkaProdSource(options | {"topic": "orders"}).streamWriter(schema, False)  # the broker is gone


def test_no_check_creates_a_topic_if_the_options_forbid_it() -> None:
    options = {
        "kafka.allow.auto.create.topics": "false",
        "kafka.max.block.ms": "100",
        "delivery": "transactional",
        "write.id": "w",
    }
    with EmbeddedBroker(auto_create_topics=True, topics={"orders": 1}) as broker:
        options["kafka.bootstrap.servers"] = broker.bootstrap_servers
        with pytest.raises(KafkaError, match="Topic oders not present in metadata"):
            check_topic(parse_options(options | {"topic": "oders"}))
        with pytest.raises(TopicNotFoundError, match="markres"):
            check_transactions(parse_options(options | {"topic": "orders", "marker.topic": "markres"}))
        with ClusterClient(ProducerConfig.from_options(bootstrap_servers=broker.bootstrap_servers)) as client:
            assert not {"oders", "markres"} & {topic.name for topic in list_topics(client)}


def test_headers_and_partition_column_are_written(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    df = spark.sql(
        """select * from values
        ('0', 'k', array(named_struct('key', 'a', 'value', cast('b' as binary)),
                         named_struct('key', 'c', 'value', cast(null as binary))), 2),
        ('1', 'k', array(), 1),
        ('2', null, null, 0) as t(value, key, headers, partition)"""
    )
    report = write(df, {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers}, topic=topic_name)
    rows = read_topic(embedded_broker.bootstrap_servers, topic_name)
    assert [(row.partition, row.value, row.key, row.headers) for row in rows] == [
        (0, b"2", None, []),
        (1, b"1", b"k", []),
        (2, b"0", b"k", [("a", b"b"), ("c", None)]),
    ]
    assert {number: places.count for number, places in report.offsets[topic_name].items()} == {0: 1, 1: 1, 2: 1}


def test_large_rows_pass_a_small_buffer(spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str) -> None:
    """Memory for a few records only: the task waits for the broker instead of failing."""
    df = spark.range(0, 200, 1, 2).selectExpr("repeat(cast(id % 10 as string), 20000) as value")
    options = {"kafka.buffer.memory": "262144", "kafka.batch.size": "32768", "kafka.max.request.size": "65536"}
    report = write(df, {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers, **options}, topic=topic_name)
    assert report.rows == 200
    assert report.bytes > 200 * 20000
    values = values_of(embedded_broker.bootstrap_servers, topic_name)
    assert values == sorted(str(i % 10).encode() * 20000 for i in range(200))


def test_too_large_a_row_names_topic_row_and_limit(
    spark: SparkSession, embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    df = spark.range(0, 3, 1, 1).selectExpr("repeat('x', if(id = 2, 70000, 1)) as value")
    options = {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers, "kafka.max.request.size": "65536"}
    with pytest.raises(PythonException, match=rf"row 2: record of up to 70\d+ bytes for topic '{topic_name}' exceeds"):
        write(df, options, topic=topic_name)


def test_kafka_option_without_its_prefix_is_named(spark: SparkSession) -> None:
    df = spark.sql("select '1' as value")
    words = error_of(lambda: write(df, {"kafka.bootstrap.servers": "x:1", "linger.ms": "5"}, topic="t"))
    assert "write it as 'kafka.linger.ms'" in words


@pytest.mark.parametrize(("given", "write_id"), [(7, "7"), ("", None), (None, None), ("a", "a")])
def test_write_id_is_text_and_an_empty_one_is_none(given: object, write_id: str | None) -> None:
    """Headers of identity are made of text, in a task; an empty id must not hide a stream's own."""
    options = {"kafka.bootstrap.servers": "x:1", "topic": "t", "write.id": given}
    assert parse_options(options).write_id == write_id


def test_producer_option_is_checked_on_the_driver(spark: SparkSession) -> None:
    df = spark.sql("select '1' as value")
    words = error_of(lambda: write(df, {"kafka.bootstrap.servers": "x:1", "kafka.acks": "7"}, topic="t"))
    assert "acks" in words
    assert "prefix 'kafka.'" in words
