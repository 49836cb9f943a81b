"""Options of the broker, of groups and of client metrics: given at the start, altered, described, kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.config import BrokerConfig
from kafkaprod.broker.handlers import config_resources
from kafkaprod.broker.settings.absent_options import is_absent
from kafkaprod.broker.settings.broker_options import OPTIONS, with_options
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages import alter_configs, describe_configs, list_config_resources
from kafkaprod.protocol.messages import incremental_alter_configs as incremental
from kafkaprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.support.broker.broker_requests import TOPIC, produce
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets
from tests.support.broker.fixtures_log import make_batch

TOPIC_TYPE, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND = 0, 1, 2


@pytest.fixture
def box(tmp_path: Path) -> BrokerWithoutSockets:
    return BrokerWithoutSockets(tmp_path, topics={TOPIC: 1})


def alter(
    box: BrokerWithoutSockets, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> int:
    configs = [incremental.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
    resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return box.ask(request, incremental.IncrementalAlterConfigsResponse, 1).responses[0].error_code


def replace_all(box: BrokerWithoutSockets, kind: int, name: str, values: dict[str, str | None]) -> int:
    configs = [alter_configs.AlterableConfig(name=key, value=value) for key, value in values.items()]
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = alter_configs.AlterConfigsRequest(resources=[resource])
    return box.ask(request, alter_configs.AlterConfigsResponse, 2).responses[0].error_code


def described(box: BrokerWithoutSockets, kind: int, name: str) -> dict[str, Any]:
    resource = describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name)
    request = describe_configs.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (result,) = box.ask(request, describe_configs.DescribeConfigsResponse, 4).results
    assert result.error_code == 0
    return {entry.name: entry for entry in result.configs}


def test_alter_configs_replaces_what_was_set(box: BrokerWithoutSockets) -> None:
    assert replace_all(box, TOPIC_TYPE, TOPIC, {"retention.ms": "5", "flush.ms": "9"}) == 0
    assert replace_all(box, TOPIC_TYPE, TOPIC, {"retention.ms": "6"}) == 0
    assert box.broker.topics.get(TOPIC).properties == {"retention.ms": "6"}  # type: ignore[union-attr]
    assert replace_all(box, TOPIC_TYPE, TOPIC, {"retention.ms": None}) == ErrorCode.INVALID_REQUEST
    assert replace_all(box, TOPIC_TYPE, "nothing", {}) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replace_all(box, TOPIC_TYPE, TOPIC, {"no.such": "1"}) == ErrorCode.INVALID_CONFIG
    assert box.broker.topics.get(TOPIC).properties == {"retention.ms": "6"}  # type: ignore[union-attr]


def test_options_of_the_broker_take_effect_at_once_and_after_a_restart(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 1})
    assert alter(box, BROKER, "0", ("message.max.bytes", SET, "100")) == 0
    assert alter(box, BROKER, "", ("message.max.bytes", SET, "100000"), ("group.max.size", SET, "7")) == 0
    assert produce(box, make_batch([b"v" * 200])).error_code == ErrorCode.MESSAGE_TOO_LARGE
    box.broker.close()
    box = BrokerWithoutSockets(tmp_path)
    shown = described(box, BROKER, "0")
    assert (shown["message.max.bytes"].value, shown["message.max.bytes"].config_source) == ("100", 2)
    assert (shown["group.max.size"].value, shown["group.max.size"].config_source) == ("7", 3)
    assert described(box, BROKER, "").keys() == {"message.max.bytes", "group.max.size"}
    assert produce(box, make_batch([b"v" * 200])).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert described(box, TOPIC_TYPE, TOPIC)["max.message.bytes"].value == "100"
    assert alter(box, BROKER, "0", ("message.max.bytes", DELETE, None)) == 0
    assert produce(box, make_batch([b"v" * 200])).error_code == 0


def test_options_without_a_use_here_are_checked_and_kept(box: BrokerWithoutSockets) -> None:
    name = "sasl.kerberos.min.time.before.relogin"
    assert described(box, BROKER, "0")[name].value == "60000"
    assert alter(box, BROKER, "0", (name, SET, "58000")) == 0
    assert described(box, BROKER, "0")[name].value == "58000"
    assert alter(box, BROKER, "0", (name, SET, "soon")) == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("kind", "name", "key", "value", "expected"),
    [
        (BROKER, "7", "message.max.bytes", "1", ErrorCode.INVALID_REQUEST),
        (BROKER, "0", "num.partitions", "0", ErrorCode.INVALID_CONFIG),
        (BROKER, "0", "fetch.max.bytes", "5000", ErrorCode.INVALID_REQUEST),
        (BROKER, "0", "node.id", "5", ErrorCode.INVALID_REQUEST),
        (BROKER, "0", "no.such.option", "5", ErrorCode.INVALID_CONFIG),
        (LOGGER, "0", "kafka", "DEBUG", ErrorCode.INVALID_REQUEST),
        (GROUP, "g", "share.isolation.level", "read_committed", ErrorCode.INVALID_CONFIG),
        (GROUP, "", "consumer.session.timeout.ms", "5", ErrorCode.INVALID_REQUEST),
        (GROUP, "g", "consumer.session.timeout.ms", "44999", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", "consumer.session.timeout.ms", "60001", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", "consumer.heartbeat.interval.ms", "4999", ErrorCode.INVALID_CONFIG),
        (GROUP, "g", "consumer.heartbeat.interval.ms", "15001", ErrorCode.INVALID_CONFIG),
        (BROKER, "0", "group.consumer.session.timeout.ms", "50000", ErrorCode.INVALID_REQUEST),
        (BROKER, "0", "num.partitions", "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "0", "offsets.retention.minutes", "10", ErrorCode.INVALID_REQUEST),
        (BROKER, "0", "offsets.topic.num.partitions", "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "0", "num.io.threads", "17", ErrorCode.INVALID_CONFIG),
        (BROKER, "0", "num.io.threads", "3", ErrorCode.INVALID_CONFIG),
        (BROKER, "0", "num.io.threads", "16", ErrorCode.NONE),
        (BROKER, "0", "num.io.threads", "4", ErrorCode.NONE),
        (GROUP, "g" * 1_025, "consumer.session.timeout.ms", "50000", ErrorCode.INVALID_REQUEST),
        (TOPIC_TYPE, TOPIC, "remote.storage.enable", "true", ErrorCode.INVALID_CONFIG),
        (TOPIC_TYPE, TOPIC, "remote.storage.enable", "false", ErrorCode.NONE),
        (BROKER, "0", "group.consumer.heartbeat.interval.ms", "15001", ErrorCode.INVALID_CONFIG),
        (BROKER, "0", "group.consumer.min.session.timeout.ms", "1", ErrorCode.INVALID_REQUEST),
        (METRICS, "m", "interval.ms", "99", ErrorCode.INVALID_CONFIG),
        (99, "x", "y", "z", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_altered_is_refused(
    box: BrokerWithoutSockets, kind: int, name: str, key: str, value: str, expected: ErrorCode
) -> None:
    assert alter(box, kind, name, (key, SET, value)) == expected


def test_validation_alone_changes_nothing(box: BrokerWithoutSockets) -> None:
    assert alter(box, BROKER, "0", ("group.max.size", SET, "7"), validate_only=True) == 0
    assert alter(box, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"), validate_only=True) == 0
    assert described(box, BROKER, "0")["group.max.size"].value == "10000"
    assert described(box, GROUP, "g")["consumer.session.timeout.ms"].value == "45000"


def listed(box: BrokerWithoutSockets, *types: int, version: int = 1) -> list[tuple[int, str]]:
    request = list_config_resources.ListConfigResourcesRequest(resource_types=list(types))
    answer = box.ask(request, list_config_resources.ListConfigResourcesResponse, version)
    return [(item.resource_type, item.resource_name) for item in answer.config_resources]


def test_options_of_groups_and_client_metrics_are_kept_and_listed(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path, topics={TOPIC: 1})
    assert alter(box, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == 0
    assert alter(box, METRICS, "m", ("metrics", SET, "a"), ("metrics", APPEND, "b")) == ErrorCode.INVALID_REQUEST
    assert alter(box, METRICS, "m", ("metrics", SET, "a")) == 0
    assert alter(box, METRICS, "m", ("metrics", APPEND, "b,a,b")) == 0
    box.broker.close()
    box = BrokerWithoutSockets(tmp_path)
    assert described(box, GROUP, "g")["consumer.session.timeout.ms"].value == "50000"
    assert described(box, METRICS, "m")["metrics"].value == "a,b"
    assert listed(box) == [(TOPIC_TYPE, TOPIC), (BROKER, "0"), (LOGGER, "0"), (METRICS, "m"), (GROUP, "g")]
    assert listed(box, GROUP) == [(GROUP, "g")]
    assert listed(box, version=0) == [(METRICS, "m")]
    assert alter(box, GROUP, "g", ("consumer.session.timeout.ms", DELETE, None)) == 0
    assert listed(box, GROUP) == []


def test_options_of_groups_have_the_brokers_bounds_and_defaults(tmp_path: Path) -> None:
    options = {"group.consumer.min.session.timeout.ms": "100", "group.consumer.heartbeat.interval.ms": "6000"}
    config = with_options(BrokerConfig(data_dir=""), options)
    box = BrokerWithoutSockets(tmp_path, consumer_groups=config.consumer_groups)
    assert alter(box, GROUP, "g", ("consumer.session.timeout.ms", SET, "7000")) == 0
    shown = described(box, GROUP, "g")
    assert shown["consumer.session.timeout.ms"].value == "7000"
    assert (shown["consumer.heartbeat.interval.ms"].value, shown["consumer.heartbeat.interval.ms"].config_source) == (
        "6000",
        5,
    )
    assert alter(box, GROUP, "g", ("consumer.session.timeout.ms", SET, "6000")) == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    "options",
    [
        {"group.consumer.session.timeout.ms": "44999"},
        {"group.consumer.heartbeat.interval.ms": "15001"},
        {"group.consumer.min.heartbeat.interval.ms": "5001"},
        {"group.consumer.max.session.timeout.ms": "44999"},
        {"group.consumer.min.session.timeout.ms": "1", "group.consumer.session.timeout.ms": "5000"},
        {"group.consumer.migration.policy": "sideways"},
    ],
)
def test_options_of_consumer_groups_out_of_bounds_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"group\.consumer\."):
        with_options(BrokerConfig(data_dir=""), options)


CONFIG = BrokerConfig(data_dir="")


def test_options_at_the_start_have_kafkas_names() -> None:
    config = with_options(
        CONFIG,
        {
            "group.min.session.timeout.ms": "1000",
            "message.max.bytes": "2000000",
            "log.retention.ms": "5",
            "log.retention.hours": "2",
            "auto.create.topics.enable": "false",
            "offsets.retention.minutes": "10",
            "offsets.topic.replication.factor": "1",
            "max.connections": "9",
            "node.id": "3",
        },
    )
    assert config.node_id == with_options(CONFIG, {"broker.id": "3", "node.id": "03"}).node_id == 3
    assert (config.groups.min_session_timeout_ms, config.log.max_message_bytes) == (1000, 2_000_000)
    assert (config.log.retention_ms, config.auto_create_topics) == (5, False)
    assert (config.offsets_retention_ms, config.limits.max_connections) == (600_000, 9)
    assert with_options(CONFIG, {"log.retention.hours": "2"}).log.retention_ms == 2 * 3_600_000
    assert replace(with_options(CONFIG, {}), options={}) == CONFIG


@pytest.mark.parametrize(
    ("name", "value"),
    [("no.such.option", "1"), ("num.partitions", "many"), ("num.partitions", "0"), ("default.replication.factor", "3")],
)
def test_wrong_options_at_the_start_are_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        with_options(CONFIG, {name: value})


def test_all_refused_options_are_in_one_message() -> None:
    options = {
        "num.partitions": "many",
        "no.such": "1",
        "nor.this": "1",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.internal.ssl.keystore.location": "k",
        "zookeeper.set.acl": "true",
        "socket.send.buffer.bytes": "1",
    }
    with pytest.raises(ConfigError) as caught:
        with_options(CONFIG, options)
    said = str(caught.value)
    assert said.startswith(
        "Unknown broker config names: no.such, nor.this; options of Apache Kafka that this broker does"
    )
    assert "sasl.enabled.mechanisms (use sasl_users= or --sasl-users), " in said
    assert "listener.name.internal.ssl.keystore.location (use tls_files=, or --tls-cert and --tls-key), " in said
    assert "zookeeper.set.acl (Kafka 4.4 does not have it either), socket.send.buffer.bytes; " in said
    assert "num.partitions" in said


def test_no_option_is_both_absent_and_there() -> None:
    assert [name for name in OPTIONS if is_absent(name)] == []


def test_the_two_names_of_the_node_id_must_agree() -> None:
    with pytest.raises(ConfigError, match=r"node\.id=1 and broker\.id=2 must be the same"):
        with_options(CONFIG, {"node.id": "1", "broker.id": "2"})


def test_a_secret_key_may_be_in_a_variable_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_KEY", "canary-1")
    (tmp_path / "key").write_text("canary-2\n")
    name = "delegation.token.secret.key"
    assert with_options(CONFIG, {name: "env:TOKEN_KEY"}).tokens.secret_key == "canary-1"
    assert with_options(CONFIG, {name: f"file:{tmp_path}/key"}).tokens.secret_key == "canary-2"
    with pytest.raises(ConfigError, match="env:NAME of a variable that is set") as caught:
        with_options(CONFIG, {name: "env:NO_SUCH_VARIABLE"})
    assert "NO_SUCH" not in str(caught.value)


def test_damaged_settings_are_refused(tmp_path: Path) -> None:
    box = BrokerWithoutSockets(tmp_path)
    alter(box, BROKER, "0", ("group.max.size", SET, "7"))
    box.broker.close()
    (tmp_path / "data" / "settings.json").write_text('{"version": 0, "sections": {"quotas": {}}}')
    with pytest.raises(ValueError, match=r"settings\.json is damaged"):
        BrokerWithoutSockets(tmp_path)


def test_subscriptions_of_metrics_are_bounded(box: BrokerWithoutSockets, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is tried on each client that asks."""
    monkeypatch.setattr(config_resources, "MAX_SUBSCRIPTIONS", 2)
    for name in ("one", "two", "one"):
        assert alter(box, METRICS, name, ("metrics", SET, "a.")) == 0
    assert alter(box, METRICS, "three", ("metrics", SET, "a.")) == ErrorCode.INVALID_CONFIG
    assert alter(box, METRICS, "one", ("metrics", DELETE, None)) == 0
    assert alter(box, METRICS, "three", ("metrics", SET, ",".join("a" * 201))) == ErrorCode.INVALID_CONFIG
    assert alter(box, METRICS, "three", ("metrics", SET, "a.")) == 0


def test_every_option_says_what_it_means_where_clients_want_it(box: BrokerWithoutSockets) -> None:
    replace_all(box, BROKER, "", {"log.retention.ms": "7"})
    resources = [
        describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name)
        for kind, name in ((TOPIC_TYPE, TOPIC), (BROKER, "0"), (BROKER, ""), (GROUP, "g"), (METRICS, "m"))
    ]
    for wanted in (True, False):
        request = describe_configs.DescribeConfigsRequest(resources=resources, include_documentation=wanted)
        results = box.ask(request, describe_configs.DescribeConfigsResponse, 4).results
        texts = [(entry.name, entry.documentation) for result in results for entry in result.configs]
        assert len(texts) > 100
        assert [name for name, text in texts if (text is not None) is not wanted] == []


def test_a_topic_is_created_with_all_options_that_are_described(tmp_path: Path) -> None:
    given = with_options(BrokerConfig(data_dir=""), {"log.preallocate": "true", "log.retention.ms": "77"})
    box = BrokerWithoutSockets(tmp_path, log=given.log, options=given.options)
    wanted = CreatableTopic(
        name="made",
        num_partitions=1,
        replication_factor=1,
        configs=[CreatableTopicConfig(name="segment.ms", value="88"), CreatableTopicConfig(name="flush.ms", value="9")],
    )
    (made,) = box.ask(CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse, 7).topics
    entries = described(box, TOPIC_TYPE, "made")
    assert made.configs is not None
    assert {entry.name: entry.value for entry in made.configs} == {name: entry.value for name, entry in entries.items()}
    assert {"preallocate": "true", "retention.ms": "77", "segment.ms": "88", "flush.ms": "9"}.items() <= {
        entry.name: entry.value for entry in made.configs
    }.items()


@pytest.mark.parametrize(
    ("name", "value"), [("log.cleaner.backoff.ms", 15_001), ("max.connections", 7), ("max.connections.per.ip", 3)]
)
def test_options_that_kafka_changes_while_it_runs_are_changed(box: BrokerWithoutSockets, name: str, value: int) -> None:
    changes = []
    box.broker.on_options = lambda: changes.append(name)
    assert alter(box, BROKER, "0", (name, SET, str(value))) == 0
    config = box.broker.config
    used = {
        "log.cleaner.backoff.ms": config.log_cleaner_backoff_ms,
        "max.connections": config.limits.max_connections,
        "max.connections.per.ip": config.limits.max_connections_per_ip,
    }
    assert used[name] == value
    assert changes == [name]
