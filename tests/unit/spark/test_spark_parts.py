"""Options, reports and headers of the Spark sink, without a session."""

import subprocess
import sys
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from kafkaprod.errors import ConfigError
from kafkaprod.spark.deduplication import HEADER_TYPE, RowIdentity, with_identity
from kafkaprod.spark.options import parse_options
from kafkaprod.spark.report import OffsetRange, WriteReport
from kafkaprod.spark.session import register
from kafkaprod.spark.source import KafkaProdSource

SERVERS = {"kafka.bootstrap.servers": "localhost:1"}


def test_kafka_options_lose_their_prefix_and_secrets_are_not_shown() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hush";'
    options = parse_options(
        SERVERS
        | {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": jaas}
    )
    assert options.kafka["sasl.jaas.config"] == jaas
    assert "hush" not in repr(options)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("kafka.ssl.engine.factory.class", "x", "ssl.engine.factory.class is not supported"),
        ("kafka.ssl.keystore.type", "JKS", "ssl.keystore.type='JKS' is not supported"),
        ("kafka.no.such", "x", "unknown option 'no.such'"),
        ("kafka.bootstrap.server", "x:1", "unknown option 'bootstrap.server'; did you mean bootstrap_servers?"),
        ("topics", "t", "unknown option 'topics'; did you mean 'topic'?"),
        ("dedup.header", "true", "unknown option 'dedup.header'; did you mean 'dedup.headers'?"),
        ("compression.type", "zstd", "write it as 'kafka.compression.type'"),
        ("delivery", "exactly_once", "delivery='exactly_once' must be one of at_least_once, transactional"),
        ("dedup.headers", "maybe", "dedup.headers='maybe' must be true or false"),
        ("value.format", "xml", "value.format='xml' must be one of bytes, json, avro"),
        ("value.columns", "a", "value.columns needs value.format=json"),
        ("value.schema", "{}", "value.schema needs value.format=avro"),
        ("schema.registry.url", "http://x", "schema.registry.url needs value.format=avro"),
        ("value.format", "avro", "needs schema.registry.url, or value.schema and value.schema.id"),
    ],
)
def test_wrong_option_is_named(option: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(SERVERS | {option: value})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"schema.registry.basic.auth.user.info": "a:b"}, "schema.registry.basic.auth.user.info needs schema.registry"),
        ({"schema.registry.url": "env:KAFKAPROD_NO_SUCH_NAME"}, "schema.registry.url must be a text"),
        ({"value.schema.id": "7"}, "value.schema.id needs value.schema"),
        ({"value.schema": "{}", "value.schema.id": "seven"}, "value.schema.id='seven' must be a number"),
        ({"value.schema": "{}", "value.schema.id": "7", "value.subject": "s"}, "value.subject needs schema.registry"),
        ({"schema.registry.url": "http://x", "auto.register.schemas": "maybe"}, "must be true or false"),
        ({"value.schemas": "{}"}, "did you mean 'value.schema'"),
    ],
)
def test_options_of_avro_values_are_checked(more: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(SERVERS | {"value.format": "avro"} | more)
    assert words in str(caught.value)


def test_credentials_of_a_registry_are_not_shown() -> None:
    registry = {"schema.registry.url": "http://x", "schema.registry.basic.auth.user.info": "me:hush"}
    options = parse_options(SERVERS | {"value.format": "avro"} | registry)
    assert options.avro is not None
    assert options.avro.registry == {"url": "http://x", "basic.auth.user.info": "me:hush"}
    assert "hush" not in repr(options)


def test_misspelt_servers_are_told_before_missing_ones() -> None:
    with pytest.raises(ConfigError, match="did you mean bootstrap_servers"):
        parse_options({"kafka.bootstrap.server": "x:1"})


def test_options_that_are_nobodys_pass() -> None:
    assert parse_options(SERVERS | {"mergeSchema": "true", "header": "true"}).topic is None


def test_missing_bootstrap_servers_are_named() -> None:
    with pytest.raises(ConfigError, match=r"'kafka\.bootstrap\.servers' must be specified"):
        parse_options({})


def test_reports_add_up_and_survive_the_way_as_text() -> None:
    one = WriteReport(rows=3, bytes=30, batches=1, seconds=0.5, partition=0, attempt=1)
    one.add_range("t", 0, 10, 12, 3)
    other = WriteReport(rows=2, bytes=5, batches=2, retries=1, seconds=0.25, partition=1)
    other.add_range("t", 0, 5, 5, 1)
    other.add_range("t", 4, 0, 0, 1)
    total = WriteReport.sum(WriteReport.from_json(task.to_json()) for task in (one, other))
    assert (total.rows, total.bytes, total.batches, total.retries, total.seconds) == (5, 35, 3, 1, 0.75)
    assert total.offsets == {"t": {0: OffsetRange(5, 12, 4), 4: OffsetRange(0, 0, 1)}}
    assert total.tasks == [one, other]


def test_identity_headers_stand_behind_a_rows_own() -> None:
    own = pa.array([[{"key": "x", "value": b"1"}], None, [{"key": "y", "value": None}]], HEADER_TYPE)
    batch, position = with_identity(pa.record_batch({"headers": own}), "headers", RowIdentity("q", 7, 2), 10)
    assert [[(pair["key"], pair["value"]) for pair in row] for row in batch.column(position).to_pylist()] == [
        [("x", b"1"), ("kp.query", b"q"), ("kp.batch", b"7"), ("kp.part", b"2"), ("kp.seq", b"10")],
        [("kp.query", b"q"), ("kp.batch", b"7"), ("kp.part", b"2"), ("kp.seq", b"11")],
        [("y", None), ("kp.query", b"q"), ("kp.batch", b"7"), ("kp.part", b"2"), ("kp.seq", b"12")],
    ]


def test_a_stream_cannot_be_read_and_the_error_names_the_source_that_can() -> None:
    with pytest.raises(ConfigError, match=r"read a stream with Spark's own source, format\('kafka'\)"):
        KafkaProdSource({}).streamReader(StructType())


def test_without_pyspark_the_import_names_the_extra() -> None:
    program = "import sys; sys.modules['pyspark'] = None; import kafkaprod.spark"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    *_, last = done.stderr.splitlines()
    assert last == "ImportError: kafkaprod.spark needs PySpark: pip install 'kafkaprod[spark]'"


def test_register_needs_spark_4() -> None:
    class Registry:
        registered: type | None = None

        def register(self, source: type) -> None:
            self.registered = source

    registry = Registry()
    register(SimpleNamespace(dataSource=registry))  # type: ignore[arg-type]
    assert registry.registered is KafkaProdSource
    with pytest.raises(ConfigError, match=r"needs Spark 4\.0 or later"):
        register(SimpleNamespace())  # type: ignore[arg-type]
