"""Options of the Spark sink: what is wrong is named, and no secret is shown."""

import pytest

from kafkaprod.errors import ConfigError
from kafkaprod.spark.options import parse_options

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
        ("kafka.spool.dir", "/s", "kafka.spool.dir cannot be set: Spark runs a task that failed again"),
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
