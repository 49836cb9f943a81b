import dataclasses
import json
import logging
import pickle
import re
import ssl
import subprocess
import sys
import time
import traceback
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkaprod import Producer, compression
from kafkaprod.config import OPTIONS, ProducerConfig, Secret
from kafkaprod.config.addresses import Addresses
from kafkaprod.config.documentation import NOT_YET, configuration_page
from kafkaprod.config.oauth_options import JWT_BEARER
from kafkaprod.config.option import HIGH, REQUIRED, Section, options_of
from kafkaprod.config.option_types import OptionTypes
from kafkaprod.config.refused import REFUSED, REFUSED_VALUES
from kafkaprod.config.rules import RULES
from kafkaprod.config.spellings import Spellings
from kafkaprod.config.topic_options import TopicOptions
from kafkaprod.config.typed_options import typed_options
from kafkaprod.errors import ConfigError

DOCS = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"
CANARY = "canary-5ecr3t"


def config(options: Mapping[str, object] | None = None, **more: Any) -> ProducerConfig:
    return ProducerConfig.from_options({"bootstrap.servers": "localhost"} | dict(options or {}), **more)


def refusal(options: dict[str, object] | None = None, **more: object) -> str:
    with pytest.raises(ConfigError) as caught:
        config(options, **more)
    return str(caught.value)


# -- the table ---------------------------------------------------------------------------------------------------------


def test_defaults_are_safe_and_fast() -> None:
    made = config()
    assert (made.acks, made.enable_idempotence, made.max_in_flight_requests_per_connection) == (-1, True, 5)
    assert (made.linger_ms, made.batch_size, made.max_request_size) == (5, 2**18, 2**20)
    assert (made.delivery_timeout_ms, made.request_timeout_ms, made.max_block_ms) == (120_000, 30_000, 60_000)
    assert (made.compression_type, made.security_protocol, made.buffer_full_policy) == ("none", "PLAINTEXT", "block")


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.default is not REQUIRED])
def test_default_is_a_value_the_option_accepts(name: str) -> None:
    option = OPTIONS[name]
    assert option.parse(option.default) == option.default


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.default is not REQUIRED])
def test_default_has_the_declared_type(name: str) -> None:
    declared = typing.get_type_hints(ProducerConfig, localns={"ssl": ssl})[name]
    if declared is not Any:
        alternatives = typing.get_args(declared) if typing.get_origin(declared) is not tuple else (declared,)
        classes = tuple(typing.get_origin(each) or each for each in alternatives or (declared,))
        assert isinstance(OPTIONS[name].default, classes)


def test_units_in_names_and_declarations_agree() -> None:
    for option in OPTIONS.values():
        assert option.name.endswith("_ms") == (option.unit == "ms"), option.name
        if option.name.endswith("_bytes"):
            assert option.unit == "bytes", option.name


def test_compression_levels_are_those_of_the_codecs() -> None:
    for codec, (lowest, highest, default) in compression.LEVELS.items():
        option = OPTIONS[f"compression_{codec}_level"]
        assert (option.kind.lowest, option.kind.highest, option.default) == (lowest, highest, default)  # type: ignore[attr-defined]
    assert set(OPTIONS["compression_type"].kind.names) == set(compression.CODEC_IDS)  # type: ignore[attr-defined]


def test_no_refused_name_is_an_option() -> None:
    options = Spellings(OPTIONS)
    for name in [*REFUSED, *REFUSED_VALUES]:
        with pytest.raises(ConfigError, match="not supported"):
            options.parse({name: object()})


def test_two_options_with_one_name_are_found_at_import() -> None:
    section = Section("Any")

    @dataclasses.dataclass
    class Clash:
        linger_ms: int = section.option(5, OPTIONS["linger_ms"].kind, HIGH, "")
        delay_ms: int = section.option(5, OPTIONS["linger_ms"].kind, HIGH, "", aliases=("linger.ms",))

    with pytest.raises(AssertionError, match="linger"):
        Spellings(options_of(Clash))


@pytest.mark.parametrize(
    ("options", "expected_ms"),
    [
        ({}, 10_000),
        ({"max_block_ms": 300_000}, 300_000),
        ({"max.block.ms": "500"}, 500),
        ({"max_block_ms": 300_000, "bootstrap_timeout_ms": 5_000}, 5_000),
        ({"bootstrap.timeout.ms": 90_000}, 90_000),
    ],
)
def test_first_contact_has_the_time_of_max_block_ms_if_that_is_given(options: dict[str, Any], expected_ms: int) -> None:
    assert config(**options).bootstrap_timeout_ms == expected_ms


def test_first_contact_follows_a_later_max_block_ms_unless_it_was_given() -> None:
    cases: list[tuple[dict[str, Any], int]] = [
        ({}, 70_000),
        ({"max_block_ms": 5}, 70_000),
        ({"bootstrap_timeout_ms": 7}, 7),
    ]
    for given, expected_ms in cases:
        assert ProducerConfig.from_options(config(**given), max_block_ms=70_000).bootstrap_timeout_ms == expected_ms


def test_committed_page_is_made_from_the_table() -> None:
    assert DOCS.read_text(encoding="utf-8") == configuration_page()


def test_committed_types_are_made_from_the_table() -> None:
    source = (DOCS.parents[1] / "kafkaprod" / "config" / "option_types.py").read_text(encoding="utf-8")
    assert source == typed_options(), "python -m kafkaprod.config types kafkaprod/config/option_types.py"


@pytest.mark.parametrize("name", OptionTypes.__annotations__)
def test_a_typed_name_is_a_name_of_an_option(name: str) -> None:
    assert "unknown option" not in refusal({name: object()})


def test_page_names_every_option_rule_and_refused_name() -> None:
    page = configuration_page()
    for name in [*OPTIONS, *REFUSED, *REFUSED_VALUES]:
        assert f"`{name}" in page, name
    for rule in RULES:
        assert rule.doc in page or any(name in rule.doc for name in NOT_YET)


def test_page_has_a_heading_for_every_option_of_this_version_and_no_other() -> None:
    headings = re.findall(r"^### `(\w+)`$", configuration_page(), re.MULTILINE)
    assert headings == [name for name in OPTIONS if name not in NOT_YET]


def test_an_option_that_is_documented_as_missing_is_missing() -> None:
    """Take an option off NOT_YET when the version has it."""
    assert NOT_YET.keys() <= OPTIONS.keys()
    assert ("transactional_id" in NOT_YET) is not hasattr(Producer, "begin_transaction")
    with pytest.raises(ConfigError):
        Producer(bootstrap_servers="localhost:1", transactional_id="t", transaction_two_phase_commit_enable=True)


def test_module_prints_the_page() -> None:
    printed = subprocess.run([sys.executable, "-m", "kafkaprod.config"], capture_output=True, text=True, check=True)
    assert printed.stdout == configuration_page()


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linger_ms", "linger.ms", "queue.buffering.max.ms", "queue_buffering_max_ms"])
def test_spellings_of_one_option_mean_the_same(name: str) -> None:
    assert config({name: 7}).linger_ms == 7


@pytest.mark.parametrize(
    ("alias", "value", "name", "expected"),
    [
        ("message.timeout.ms", "40000", "delivery_timeout_ms", 40_000),
        ("queue.buffering.max.kbytes", "1024", "buffer_memory", 1024 * 1024),
        ("compression.codec", "lz4", "compression_type", "lz4"),
        ("request.required.acks", "-1", "acks", -1),
        ("message.max.bytes", 2_000_000, "max_request_size", 2_000_000),
        ("message.send.max.retries", 3, "retries", 3),
        ("metadata.broker.list", "a:1,b:2", "bootstrap_servers", (("a", 1), ("b", 2))),
        ("partitioner", "murmur2_random", "partitioner", None),
        ("partitioner.class", "org.apache.kafka.clients.producer.RoundRobinPartitioner", "partitioner", "round_robin"),
        ("partitioner.class", "org.apache.kafka.clients.producer.internals.DefaultPartitioner", "partitioner", None),
        (
            "key.serializer",
            "org.apache.kafka.common.serialization.LongSerializer",
            "key_serializer",
            "LongSerializer",
        ),
        ("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer", "value_serializer", None),
        ("max_batch_size", 1000, "batch_size", 1000),  # in aiokafka it is the size at which a batch is full
    ],
)
def test_names_of_other_clients_are_known(alias: str, value: object, name: str, expected: object) -> None:
    options = {alias: value} if alias == "metadata.broker.list" else {"bootstrap.servers": "a", alias: value}
    assert getattr(ProducerConfig.from_options(options), name) == expected


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({}, (262_144, 1_000_000)),
        ({"batch_size": 16_384}, (16_384, 16_384)),
        ({"batch.size": "262144"}, (262_144, 262_144)),
        ({"batch_size": 0}, (0, 0)),
        ({"batch_size": 2_000_000}, (2_000_000, 2_000_000)),
        ({"max.batch.size": 16_384}, (16_384, 16_384)),
        ({"max_batch_size": 2_000_000}, (262_144, 2_000_000)),
        ({"batch_size": 16_384, "max_batch_size": 65_536}, (16_384, 65_536)),
        ({"max_request_size": 500_000}, (262_144, 500_000)),
        ({"max_request_size": 1000}, (262_144, 262_144)),
        ({"max_request_size": 5_000_000}, (262_144, 1_000_000)),
    ],
)
def test_no_batch_grows_above_a_size_that_was_given(given: dict[str, Any], sizes: tuple[int, int]) -> None:
    made = config(given)
    assert (made.batch_size, made.max_batch_size) == sizes
    again = ProducerConfig.from_options(made, linger_ms=1)
    assert (again.batch_size, again.max_batch_size) == sizes


def test_batch_size_replaced_in_a_configuration_takes_the_most_with_it() -> None:
    made = ProducerConfig.from_options(config(), batch_size=16_384)
    assert (made.batch_size, made.max_batch_size) == (16_384, 16_384)
    made = ProducerConfig.from_options(config({"max_batch_size": 500_000}), batch_size=16_384)
    assert (made.batch_size, made.max_batch_size) == (16_384, 500_000)


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("lingerms", "linger_ms"),
        ("linger-ms", "linger_ms"),
        ("bootstrap_server", "bootstrap_servers"),
        ("compresion.type", "compression_type"),
        ("queue.buffering.max.m", "linger_ms"),
    ],
)
def test_unknown_option_names_the_nearest_one(wrong: str, nearest: str) -> None:
    assert refusal({wrong: 1}) == f"unknown option {wrong!r}; did you mean {nearest}?"


def test_unknown_option_like_no_other_names_none() -> None:
    assert refusal(xyzzy=1) == "unknown option 'xyzzy'"


def test_value_of_an_unknown_option_is_not_shown() -> None:
    assert CANARY not in refusal(sasl_passwort=CANARY)


def test_option_under_two_spellings_is_refused() -> None:
    assert "linger_ms is given twice" in refusal({"linger.ms": 5, "queue.buffering.max.ms": 5})
    assert "linger.ms" in refusal({"linger.ms": 5}, linger_ms=5)
    assert "given twice" in refusal({"linger_ms": 5}, linger_ms=5)


def test_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown option 5"):
        ProducerConfig.from_options({5: 1})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", ["batch.num.messages", "batch_num_messages"])
def test_refused_name_says_what_to_do_instead(name: str) -> None:
    assert refusal({name: 10}) == f"{name} is not supported: a batch is bounded in bytes: use batch_size"


def test_refused_name_is_accepted_with_the_value_that_says_nothing_new() -> None:
    assert config({"ssl.truststore.type": "PEM", "client.dns.lookup": "use_all_dns_ips"}).ssl_context is None
    assert "ssl.truststore.type='JKS'" in refusal({"ssl.truststore.type": "JKS"})


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("linger_ms", "5", 5),
        ("linger_ms", " 5 ", 5),
        ("compression_gzip_level", "-1", -1),
        ("enable_idempotence", "TRUE", True),
        ("acks", "All", -1),
        ("acks", -1, -1),
        ("acks", "-1", -1),
        ("compression_type", "ZSTD", "zstd"),
        ("compression_type", None, "none"),
        ("transactional_id", "orders", "orders"),
        ("ssl_cafile", Path("ca.pem"), "ca.pem"),
    ],
)
def test_values_are_read_from_text_and_python(name: str, value: object, expected: object) -> None:
    more = {"security_protocol": "SSL"} if name.startswith("ssl") else {}
    assert getattr(config({name: value} | more), name) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("linger_ms", -1),
        ("linger_ms", 2**31),
        ("linger_ms", "5ms"),
        ("linger_ms", ""),
        ("linger_ms", 5.0),
        ("linger_ms", True),
        ("linger_ms", None),
        ("enable_idempotence", 1),
        ("enable_idempotence", "yes"),
        ("acks", 2),
        ("acks", "most"),
        ("acks", True),
        ("compression_type", "brotli"),
        ("compression_gzip_level", 0),
        ("compression_gzip_level", 10),
        ("transactional_id", ""),
        ("buffer_memory", 1000),
        ("metadata_max_idle_ms", 4999),
        ("interceptors", "com.example.Interceptor"),
        ("interceptors", [object()]),
        ("key_serializer", "io.confluent.kafka.serializers.KafkaAvroSerializer"),
        ("key_serializer", "org.apache.kafka.common.serialization.VoidSerializer"),
        ("key_serializer", int),
        ("partitioner", "consistent_random"),
        ("partitioner", lambda key: 0),
        ("ssl_context", "context"),
        ("ssl_cafile", 5),
        ("ssl_cafile", b"ca.pem"),
        ("sasl_mechanism", "GSS API"),
        ("sasl_oauth_token_provider", lambda: "token"),
    ],
)
def test_value_out_of_range_names_option_value_and_what_is_allowed(name: str, value: object) -> None:
    message = refusal({name: value})
    assert message.startswith(f"{name}=")
    assert "is not allowed: expected " in message


@pytest.mark.parametrize("name", ["sasl_oauth_token_provider", "oauth_cb"])
def test_a_text_in_place_of_an_object_is_not_shown(name: str) -> None:
    assert refusal({name: "canary"}).startswith(f"{name}=<str> is not allowed")


def test_message_uses_the_name_the_user_wrote() -> None:
    assert refusal({"queue.buffering.max.ms": -5}) == (
        "queue.buffering.max.ms=-5 is not allowed: expected a whole number in 0..2147483647"
    )


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2 ,c", [("a", 1), ("b", 2), ("c", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        ("fe80::1", [("fe80::1", 9092)]),
        (["a:1", "b"], [("a", 1), ("b", 9092)]),
        ([("a", 1), ("::1", 2)], [("a", 1), ("::1", 2)]),
        ("broker.example.", [("broker.example.", 9092)]),
        ("a:1,", [("a", 1)]),
        ("a:1 , ", [("a", 1)]),
        (["a:1,b:2"], [("a", 1), ("b", 2)]),
        (["a:1,b:2", "c:3"], [("a", 1), ("b", 2), ("c", 3)]),
        ("PLAINTEXT://a:1,plaintext://b", [("a", 1), ("b", 9092)]),
        ("PLAINTEXT://[::1]:9093", [("::1", 9093)]),
        ("2001:db8:0:0:0:0:0:9092", [("2001:db8:0:0:0:0:0:9092", 9092)]),
        ("fe80::1%eth0", [("fe80::1%eth0", 9092)]),
    ],
)
def test_bootstrap_servers_become_host_and_port(servers: Any, expected: list[tuple[str, int]]) -> None:
    assert list(ProducerConfig.from_options(bootstrap_servers=servers).bootstrap_servers) == expected


@pytest.mark.parametrize(
    ("servers", "reason"),
    [
        ("a:1;b:2", "commas stand between addresses"),
        (["a:1;b:2"], "commas stand between addresses"),
        ("a,,b", "an address is empty"),
        ("::1:9092", r"write \[address\]:port"),
        ("2001:db8::1:9092", r"write \[address\]:port"),
        ("host:9092:9092", "more than one colon"),
        ("kafka://a:1", "only a security protocol"),
        ("SSL://a:1", "security_protocol=SSL if that is meant"),
        ("a:1,a:1", "twice"),
        ([("a,b", 1)], "expected host:port"),
    ],
)
def test_refused_bootstrap_servers_say_what_is_wrong(servers: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"bootstrap_servers=.*{reason}"):
        ProducerConfig.from_options(bootstrap_servers=servers)


def test_the_protocol_before_an_address_is_no_replacement_for_the_option() -> None:
    made = ProducerConfig.from_options(bootstrap_servers="SSL://a:1", security_protocol="SSL")
    assert made.bootstrap_servers == (("a", 1),)
    assert ProducerConfig.from_options(made, linger_ms=9).bootstrap_servers == (("a", 1),)
    with pytest.raises(ConfigError, match="does not agree with security_protocol=PLAINTEXT"):
        ProducerConfig.from_options(made, security_protocol="PLAINTEXT")


@pytest.mark.parametrize(
    "servers",
    [
        "",
        ",",
        ":9092",
        "a:",
        "a:0",
        "a:65536",
        "a:b",
        "a,a:9092",
        "[::1",
        "[::1]9092",
        "SSL://a:1",
        [],
        5,
        "a b",
        [5],
    ],
)
def test_malformed_bootstrap_servers_are_refused(servers: Any) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers="):
        ProducerConfig.from_options(bootstrap_servers=servers)


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers is missing"):
        ProducerConfig.from_options({})


def test_references_are_not_expanded() -> None:
    assert config(client_id="${env:HOME}").client_id == "${env:HOME}"


def test_hooks_are_kept_as_given() -> None:
    class Upper:
        def serialize(self, topic: str, headers: object, data: object) -> bytes:
            return str(data).upper().encode()

    serializer = Upper()
    made = config(key_serializer=serializer, value_serializer=str.encode)
    assert made.key_serializer is serializer
    assert made.value_serializer == str.encode


# -- rules -------------------------------------------------------------------------------------------------------------

OAUTH = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "https://h/t",
}

CONFLICTS: list[tuple[dict[str, object], str]] = [
    ({"spool_dir": "/s", "transactional_id": "t"}, "spool_dir='/s' conflicts with transactional_id='t'"),
    ({"spool_dir": "/s", "acks": 1, "enable_idempotence": False}, "spool_dir='/s' needs acks=all"),
    ({"bootstrap.servers": Addresses().parse("SSL://a:1")}, "does not agree with security_protocol=PLAINTEXT"),
    (
        {"allowed_secret_sources": (), "sasl_oauthbearer_assertion_file": "/f"},
        "sasl_oauthbearer_assertion_file=file:/f is not allowed",
    ),
    ({"acks": 1, "enable_idempotence": True}, "acks=1 conflicts with enable_idempotence=true"),
    ({"acks": 1, "transactional_id": "t"}, "acks=1 conflicts with enable_idempotence=true"),
    ({"acks": 0, "enable_idempotence": True}, "acks=0 conflicts"),
    ({"retries": 0, "enable_idempotence": True}, "retries=0 conflicts"),
    (
        {"max_in_flight_requests_per_connection": 6, "enable_idempotence": "true"},
        "max_in_flight_requests_per_connection=6 exceeds 5",
    ),
    ({"transactional_id": "t", "enable_idempotence": False}, "transactional_id='t' needs enable_idempotence"),
    (
        {"transactional_id": "t", "buffer_full_policy": "drop"},
        "buffer_full_policy=drop conflicts with transactional_id",
    ),
    ({"transaction_two_phase_commit_enable": True}, "needs a transactional_id"),
    (
        {"transaction_two_phase_commit_enable": True, "transactional_id": "t", "transaction_timeout_ms": 5},
        "transaction_timeout_ms is given with",
    ),
    ({"delivery_timeout_ms": 30_000}, "delivery_timeout_ms=30000 is below linger_ms"),
    ({"reconnect_backoff_ms": 2000}, "reconnect_backoff_ms=2000 exceeds reconnect_backoff_max_ms=1000"),
    ({"retry_backoff_ms": 50, "retry_backoff_max_ms": 40}, "retry_backoff_ms=50 exceeds"),
    ({"socket_connection_setup_timeout_ms": 31_000}, "socket_connection_setup_timeout_ms=31000 exceeds"),
    ({"batch_size": 2**27}, "batch_size=134217728 exceeds buffer_memory"),
    ({"batch_size": 4000, "max_batch_size": 3999}, "max_batch_size=3999 is below batch_size=4000"),
    (
        {"topic_options": TopicOptions([("logs-*", (("batch_size", 2**27),))])},
        "topic_options of 'logs-*': batch_size=134217728 exceeds buffer_memory",
    ),
    ({"partitioner_rack_aware": True, "client_rack": " "}, "needs client_rack"),
    ({"security_protocol": "SASL_SSL"}, "security_protocol=SASL_SSL needs a sasl_mechanism"),
    ({"sasl_mechanism": "PLAIN"}, "has no effect with security_protocol=PLAINTEXT"),
    (
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_plain_username": "u"},
        "needs sasl_plain_u",
    ),
    ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "oauth_cb; given: none"),
    ({"sasl_oauthbearer_token_endpoint_url": "https://h/t"}, "sasl_oauthbearer_token_endpoint_url has no effect"),
    ({**OAUTH}, "or an assertion: sasl_oauthbearer_assertion_file"),
    (
        {**OAUTH, "sasl_oauthbearer_assertion_file": "a", "sasl_oauthbearer_assertion_private_key_file": "b"},
        "are given together: an assertion has one source",
    ),
    ({**OAUTH, "sasl_oauthbearer_grant_type": JWT_BEARER}, "or an assertion: sasl_oauthbearer_assertion_file"),
    ({"security_protocol": "SSL", "ssl_key_pem": "k"}, "without ssl_certificate_pem"),
    (
        {"security_protocol": "SSL", "ssl_cafile": "f", "ssl_ca_pem": "t"},
        "ssl_cafile and ssl_ca_pem are given together",
    ),
    ({"sasl_aws_region": "eu-west-1"}, "sasl_aws_region has no effect with sasl_mechanism=None"),
    (
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "AWS_MSK_IAM",
            "sasl_aws_profile": "p",
            "sasl_aws_role_arn": "r",
        },
        "credentials have one source",
    ),
    (
        {"sasl_kerberos_service_name": "k", "sasl.kerberos.keytab": "f"},
        "sasl_kerberos_service_name, sasl_kerberos_keytab has no effect with sasl_mechanism=None: use GSSAPI",
    ),
    ({"ssl_cafile": "ca.pem"}, "ssl_cafile has no effect with security_protocol=PLAINTEXT"),
    ({"security_protocol": "SSL", "ssl_keyfile": "key.pem"}, "without ssl_certfile"),
    (
        {"security_protocol": "SSL", "ssl_cafile": "ca.pem", "ssl_context": ssl.create_default_context()},
        "set them on the context",
    ),
]


@pytest.mark.parametrize(("options", "words"), CONFLICTS)
def test_conflict_raises_and_names_the_options(options: dict[str, object], words: str) -> None:
    assert words in refusal(options)


def test_every_rule_is_broken_by_one_of_the_conflicts() -> None:
    defaults = {name: option.default for name, option in OPTIONS.items()}
    broken: set[str] = set()
    for options, _ in CONFLICTS:
        named = {name.replace(".", "_"): value for name, value in options.items()}
        given: Any = types.SimpleNamespace(**(defaults | named))
        broken |= {rule.doc for rule in RULES if rule.is_broken(given)}
    assert broken == {rule.doc for rule in RULES}


def test_delivery_timeout_not_given_is_raised_to_what_one_send_takes() -> None:
    assert config(request_timeout_ms=200_000, linger_ms=10).delivery_timeout_ms == 200_010
    assert config(request_timeout_ms=2**31 - 1).delivery_timeout_ms == 2**31 - 1


def test_without_idempotence_acks_and_retries_are_free() -> None:
    made = config(enable_idempotence=False, acks=0, retries=0, max_in_flight_requests_per_connection=50)
    assert (made.acks, made.retries) == (0, 0)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"acks": 1}, "acks=1"),
        ({"acks": "0"}, "acks=0"),
        ({"retries": 0}, "retries=0"),
        ({"max.in.flight": 6}, "max_in_flight_requests_per_connection=6"),
    ],
)
def test_default_idempotence_gives_way_to_what_is_set_and_says_so_once(
    options: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = config(**options)
    assert not made.enable_idempotence
    (line,) = caplog.messages
    assert f"idempotence is off because of {reason}" in line


def test_options_that_idempotence_allows_leave_it_on(caplog: pytest.LogCaptureFixture) -> None:
    assert config(acks="all", retries=1, max_in_flight_requests_per_connection=5).enable_idempotence
    assert config(acks=1, enable_idempotence=False).acks == 1
    assert not caplog.messages


def test_address_as_the_only_argument_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers='host:port'"):
        ProducerConfig.from_options("localhost:9092")  # type: ignore[arg-type]


def test_password_in_an_address_is_not_shown() -> None:
    for value in ("kafka://u:se,cret@host:9092", ["h:1", "u:se,cret@host:x"]):
        with pytest.raises(ConfigError) as caught:
            ProducerConfig.from_options(bootstrap_servers=value)
        assert "cret" not in str(caught.value)
        assert "[hidden]@host" in str(caught.value)


def test_configuration_of_oauthbearer_is_a_secret() -> None:
    made = config(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        oauth_cb=lambda text: ("token", 1.0),
        sasl_oauthbearer_config="clientSecret=abc",
    )
    assert "abc" not in repr(made)
    assert made.sasl_oauthbearer_config.reveal() == "clientSecret=abc"


def test_replace_checks_values_and_rules_again() -> None:
    made = config()
    assert dataclasses.replace(made, linger_ms=9).linger_ms == 9
    with pytest.raises(ConfigError):
        dataclasses.replace(made, linger_ms=-1)
    with pytest.raises(ConfigError):
        dataclasses.replace(made, acks=1)


def test_configuration_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().linger_ms = 6  # type: ignore[misc]


def test_client_id_defaults_to_the_transactional_id_or_a_number() -> None:
    assert config(transactional_id="orders").client_id == "producer-orders"
    first, second = config().client_id, config(client_id="").client_id
    assert int(second.removeprefix("producer-")) == int(first.removeprefix("producer-")) + 1
    assert config(client_id="mine").client_id == "mine"


# -- security ----------------------------------------------------------------------------------------------------------


def login(**more: object) -> dict[str, object]:
    credentials = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "alice", "sasl_plain_password": CANARY}
    return {"security_protocol": "SASL_SSL"} | credentials | more


def test_secret_is_hidden_everywhere_but_in_reveal(caplog: pytest.LogCaptureFixture) -> None:
    made = config(login(ssl_password=CANARY, ssl_certfile="c.pem"))
    logging.getLogger("kafkaprod.test").warning("%s %r %s", made, made, dataclasses.asdict(made))
    shown = [repr(made), str(made), f"{made.ssl_password}", caplog.text]
    assert all(CANARY not in text and "[hidden]" in text for text in shown)
    assert made.sasl_plain_password is not None
    assert made.sasl_plain_password.reveal() == CANARY
    with pytest.raises(TypeError):
        json.dumps(made.sasl_plain_password)


def test_refused_secret_is_in_no_message_and_no_traceback() -> None:
    for options in (login(linger_ms=-1), login(sasl_mechanism="GSS API"), login(sasl_plain_password=(CANARY,))):
        try:
            config(options)
        except ConfigError:
            assert CANARY not in traceback.format_exc()
        else:
            pytest.fail("accepted")


def test_repr_of_a_hook_is_not_shown() -> None:
    class Provider:
        def token(self) -> str:
            return "t"

        def __repr__(self) -> str:
            return CANARY

    made = config(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Provider())
    assert CANARY not in repr(made)
    assert "Provider" in repr(made)


def test_secrets_compare_by_text_and_travel_by_pickle() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
    assert not Secret("")
    assert pickle.loads(pickle.dumps(Secret("a"))).reveal() == "a"


def test_repr_shows_only_what_differs_from_the_defaults() -> None:
    assert repr(config(client_id="c", linger_ms=6)) == (
        "ProducerConfig(bootstrap_servers='localhost:9092', client_id='c', linger_ms=6)"
    )


@pytest.mark.parametrize(("value", "expected"), [("https", True), ("", False), ("none", False), ("HTTPS", True)])
def test_endpoint_identification_means_host_name_check(value: str, expected: bool) -> None:
    options = {"security_protocol": "SSL", "ssl.endpoint.identification.algorithm": value}
    assert config(options).ssl_check_hostname is expected


def test_cipher_suites_take_commas_for_colons() -> None:
    made = config({"security.protocol": "ssl", "ssl.cipher.suites": "A, B"})
    assert (made.ssl_ciphers, made.security_protocol) == ("A:B", "SSL")


def test_pem_stores_of_java_are_files_of_ours() -> None:
    made = config({"security.protocol": "SSL", "ssl.truststore.location": "ca.pem", "ssl.keystore.location": "me.pem"})
    assert (made.ssl_cafile, made.ssl_certfile, made.ssl_keyfile) == ("ca.pem", "me.pem", None)


def jaas(text: str) -> dict[str, object]:
    return {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": text}


@pytest.mark.parametrize(
    "text",
    [
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\"ice" password="p;w=\'1\'";',
        "org.apache.kafka.common.security.plain.PlainLoginModule required\n username='al\"ice'"
        "\n password=\"p;w='1'\" ;",
    ],
)
def test_jaas_entry_gives_user_name_and_password(text: str) -> None:
    made = config(jaas(text))
    assert made.sasl_plain_username == 'al"ice'
    assert made.sasl_plain_password == Secret("p;w='1'")


@pytest.mark.parametrize(
    "text",
    [
        f'com.evil.Module required username="a" password="{CANARY}";',
        f'org.apache.kafka.common.security.plain.PlainLoginModule required password="{CANARY}";',
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{CANARY}"',
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{CANARY};',
        f"{CANARY}",
    ],
)
def test_jaas_entry_with_no_equivalent_is_refused_without_showing_it(text: str) -> None:
    assert CANARY not in refusal(jaas(text))


@pytest.mark.parametrize(
    "text", ["module required" + " " * 100_000, "a." * 50_000, "module required " + "a = b " * 20_000 + '"']
)
def test_a_long_jaas_entry_is_refused_at_once(text: str) -> None:
    began_s = time.thread_time()
    refusal(jaas(text))
    assert time.thread_time() - began_s < 1


def test_a_retriever_class_that_is_no_text_is_refused() -> None:
    refusal({"security.protocol": "SASL_SSL", "sasl.oauthbearer.jwt.retriever.class": ["x"]})


def kerberos_jaas(settings: str) -> dict[str, object]:
    entry = f"com.sun.security.auth.module.Krb5LoginModule required {settings};"
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.jaas.config": entry}


def test_jaas_entry_of_kerberos_gives_keytab_and_principal() -> None:
    made = config(
        kerberos_jaas('useKeyTab=true storeKey=true keyTab="/etc/me.keytab" principal="me@REALM" serviceName="brokers"')
    )
    assert (made.sasl_kerberos_keytab, made.sasl_kerberos_principal) == ("/etc/me.keytab", "me@REALM")
    assert (made.sasl_kerberos_service_name, made.sasl_kerberos_domain_name) == ("brokers", None)
    cached = config(kerberos_jaas("useTicketCache=true"))
    assert (cached.sasl_kerberos_keytab, cached.sasl_kerberos_service_name) == (None, "kafka")
    assert "without useKeyTab=true" in refusal(kerberos_jaas('keyTab="/etc/me.keytab"'))
    assert "without an equivalent: ticketCache" in refusal(kerberos_jaas('ticketCache="/tmp/c"'))


def test_jaas_entry_conflicts_with_a_user_name() -> None:
    entry = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
    assert "sasl_plain_username is given twice" in refusal(jaas(entry) | {"sasl.username": "c"})


# -- files -------------------------------------------------------------------------------------------------------------


def test_file_is_read_and_arguments_replace_its_options(tmp_path: Path) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("bootstrap.servers=a:1,b:2\nqueue.buffering.max.ms=7\nacks = all\n")
    made = ProducerConfig.from_file(file, linger_ms=9)
    assert (made.bootstrap_servers, made.linger_ms, made.acks) == ((("a", 1), ("b", 2)), 9, -1)


def test_file_with_an_unknown_option_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "producer.properties"
    file.write_text("bootstrap.servers=a\nlingerms=7\n")
    with pytest.raises(ConfigError, match="linger_ms"):
        ProducerConfig.from_file(file)


@pytest.mark.parametrize("name", ["client_id", "transactional_id"])
@pytest.mark.parametrize("value", ["x" * 32_768, "é" * 16_384, "a\ud800"])
def test_texts_that_no_request_can_hold_are_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}=.* at most 32767 bytes of UTF-8"):
        ProducerConfig.from_options({"bootstrap_servers": "h:1", name: value})


def test_the_longest_transactional_id_gives_a_client_id_that_fits() -> None:
    config = ProducerConfig.from_options({"bootstrap_servers": "h:1", "transactional_id": "x" * 32_767})
    assert config.client_id.startswith("producer-xxx")
    assert len(config.client_id) == 255
