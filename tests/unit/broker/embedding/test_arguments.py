"""Arguments of embedded brokers, clusters and faults: what is refused, and that the message names it."""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBroker, EmbeddedBrokerError
from kafkaprod.broker.embedding.faults import RemoteFaults, delay, half_frame, move_leader, reply_with, throttle
from kafkaprod.errors import ConfigError, IllegalStateError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode


def refused(text: str) -> Any:
    return pytest.raises(ConfigError, match=re.escape(text))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data_dir": 7}, "data_dir=7 is not a path"),
        ({"data_dir": b"x"}, "data_dir=b'x' is not a path"),
        ({"port": "9092"}, "port='9092' is not a whole number"),
        ({"port": True}, "port=True is not a whole number"),
        ({"port": 70_000}, "port=70000 is not in 0..65535"),
        ({"listeners": ["PLAINTEXT://:0"]}, "listeners=['PLAINTEXT://:0'] is not a text"),
        ({"topics": ["a"]}, "topics=['a'] is not a mapping, {\"orders\": 3} (name: partitions) for example"),
        ({"topics": {"a": "3"}}, "topics: 'a': partitions='3' is not a whole number"),
        ({"topics": {"a": 0}}, "topics: 'a': partitions=0 is not at least 1"),
        ({"auto_create_topics": "no"}, "auto_create_topics='no' is not True or False"),
        ({"num_partitions": 1.5}, "num_partitions=1.5 is not a whole number"),
        ({"flush_policy": None}, "flush_policy=None is not a text"),
        ({"retention_ms": -2}, "retention_ms=-2 is not at least -1"),
        ({"initial_rebalance_delay_ms": 0.5}, "0.5 s are 500 ms"),
        ({"transaction_version": 3}, "transaction_version=3 is not in 0..2"),
        ({"transaction_max_timeout_ms": 0}, "transaction_max_timeout_ms=0 is not at least 1"),
        ({"sasl_users": "ann:hers"}, 'sasl_users is not a mapping, {"ann": "her password"} for example'),
        ({"sasl_users": {"ann": 7}}, "sasl_users: the password of 'ann' is not a text"),
        ({"sasl_oauthbearer": 1}, "sasl_oauthbearer=1 is not True or False"),
        ({"tls_files": "s.pem"}, "tls_files='s.pem' is not a list"),
        ({"tls_files": ("s.pem",)}, "tls_files has 1 elements; expected: certificate chain and private key"),
        ({"max_versions": {"NO_SUCH": 7}}, "max_versions='NO_SUCH' is not an API"),
        ({"max_versions": {ApiKey.PRODUCE: "7"}}, "'7' is not a whole number"),
        ({"options": "a=b"}, "options='a=b' is not a mapping"),
        ({"options": {"listeners": "PLAINTEXT://:0"}}, "options: listeners is set by the argument listeners or port"),
        ({"options": {"log.dirs": "/x"}}, "options: log.dirs is set by the argument data_dir"),
        ({"options": {"num.partitions": None}}, "options: num.partitions=None is not a text, a number"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_a_broker_refuses_arguments_by_name(arguments: dict[str, Any], message: str) -> None:
    with refused(message):
        EmbeddedBroker(**arguments)


def test_no_message_shows_a_password() -> None:
    with pytest.raises(ConfigError) as refusal:
        EmbeddedBroker(sasl_users="ann:secret")  # type: ignore[arg-type]
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"brokers": 0}, "brokers=0 is not at least 1"),
        ({"brokers": "3"}, "brokers='3' is not a whole number"),
        ({"racks": "abc"}, "racks='abc' is not a list"),
        ({"racks": ["a"]}, "racks has 1 elements for 3 brokers"),
        ({"ports": [9092]}, "ports has 1 elements for 3 brokers"),
        ({"ports": [9092, 9092, 0]}, "has a port twice"),
        ({"ports": 9092}, "ports=9092 is not a list"),
        ({"topics": ["a"]}, "topics=['a'] is not a mapping"),
        ({"brokers": 2, "replication_factor": 3}, "replication_factor=3 needs as many brokers: there are 2"),
        ({"replication_factor": 0}, "replication_factor=0 is not at least 1"),
        ({"min_insync_replicas": 0}, "min_insync_replicas=0 is not at least 1"),
        ({"unclean_elections": "yes"}, "unclean_elections='yes' is not True or False"),
        ({"detection": "never"}, "detection='never' is not one of immediate, session"),
        ({"session_timeout_ms": 0.5}, "0.5 s are 500 ms"),
        ({"replica_lag_ms": 0}, "replica_lag_ms=0 is not at least 1"),
        ({"seed": "x"}, "seed='x' is not a whole number"),
        ({"data_dir": 7}, "data_dir=7 is not a path"),
        ({"tls_files": ("s.pem",)}, "tls_files has 1 elements"),
        ({"sasl_users": ["ann"]}, "sasl_users is not a mapping"),
        ({"listeners": 9092}, "listeners=9092 is not a text"),
        ({"listeners": "HTTP://:0"}, "'HTTP://:0' is not PROTOCOL://HOST:PORT"),
        ({"listeners": "SSL://:0", "ports": [1, 2, 3]}, "ports and listeners exclude each other"),
        (
            {"listeners": "SSL://:9092,PLAINTEXT://:9094"},
            "ports of 3 brokers, which follow those of the first one, meet",
        ),
        ({"listeners": "SSL://:65534"}, "end above 65535"),
        ({"options": {"listeners": "x"}}, "options: listeners is set by the argument listeners"),
        ({"options": {"broker.id": 7}}, "options: broker.id is set by the argument brokers"),
        ({"options": {"min.insync.replicas": 2}}, "options: min.insync.replicas is set by the argument min_insync"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_a_cluster_refuses_arguments_by_name(
    arguments: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with refused(message):
        EmbeddedCluster(**arguments)
    assert list(tmp_path.glob("kafkaprod-*")) == []


@pytest.mark.parametrize("ms", [0.2, -1, math.nan, math.inf, "5", True, None, 2**31])
def test_times_of_faults_are_whole_milliseconds(ms: Any) -> None:
    for make in (delay, throttle):
        with refused(f"{make.__name__}="):
            make(ms)


def test_seconds_given_for_milliseconds_are_recognized() -> None:
    with refused("delay=0.2 is not a whole number of milliseconds; 0.2 s are 200 ms"):
        delay(0.2)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [2**15, -2, "NO_SUCH", 6.0, None, True])
def test_errors_of_faults_are_codes_or_names(code: Any) -> None:
    with refused("error_code="):
        reply_with(code)
    assert reply_with("NOT_LEADER_OR_FOLLOWER") == reply_with(ErrorCode.NOT_LEADER_OR_FOLLOWER) == reply_with(6)


@pytest.mark.parametrize(
    ("api", "fault", "options", "message"),
    [
        ("NO_SUCH", delay(1), {}, "api='NO_SUCH' is not an API, ApiKey.PRODUCE for example"),
        (9_999, delay(1), {}, "api=9999 is not an API"),
        (ApiKey.PRODUCE, half_frame, {}, "is not a fault, reply_with(6) for example: write half_frame(...)"),
        (ApiKey.PRODUCE, 6, {}, "fault=6 is not a fault"),
        (ApiKey.METADATA, move_leader(), {}, "move_leader() is for PRODUCE and FETCH, not for METADATA"),
        (ApiKey.PRODUCE, delay(1), {"times": 0}, "times=0 is not at least 1"),
        (ApiKey.PRODUCE, delay(1), {"times": -1}, "times=-1 is not at least 1"),
        (ApiKey.PRODUCE, delay(1), {"times": 1.5}, "times=1.5 is not a whole number"),
        (ApiKey.PRODUCE, delay(1), {"rate": 0}, "rate=0 is not a number above 0 and at most 1"),
        (ApiKey.PRODUCE, delay(1), {"rate": 1.1}, "rate=1.1 is not a number above 0 and at most 1"),
        (ApiKey.PRODUCE, delay(1), {"rate": -0.5}, "rate=-0.5 is not a number above 0 and at most 1"),
        (ApiKey.PRODUCE, delay(1), {"rate": math.nan}, "rate=nan is not a number"),
        (ApiKey.PRODUCE, delay(1), {"rate": "0.5"}, "rate='0.5' is not a number"),
        (ApiKey.PRODUCE, delay(1), {"seed": "x"}, "seed='x' is not a whole number"),
    ],
)
def test_rules_are_checked_where_they_are_written(api: Any, fault: Any, options: dict[str, Any], message: str) -> None:
    def no_process(_: object) -> dict[str, Any]:
        raise AssertionError("the process was asked")

    with refused(message):
        RemoteFaults(no_process).on(api, fault, **options)


def test_apis_may_be_written_as_text() -> None:
    commands: list[Mapping[str, Any]] = []

    def process(command: Mapping[str, Any]) -> dict[str, Any]:
        commands.append(command)
        return {"count": 1, "rule": 1}

    faults = RemoteFaults(process)
    faults.on("InitProducerId", delay(1))
    faults.on("PRODUCE", delay(2))
    assert faults.fired_count("produce") == 1
    assert [command["api"] for command in commands] == [ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE, ApiKey.PRODUCE]


def test_a_broker_has_an_address_only_between_start_and_close() -> None:
    broker = EmbeddedBroker()
    for _ in range(2):  # also a second time
        with pytest.raises(IllegalStateError, match="not started, or is closed"):
            _ = broker.bootstrap_servers
        with broker:
            address = broker.bootstrap_servers
            broker.kill()
            assert broker.bootstrap_servers == address  # a producer may be made while it is down
        assert not os.path.exists(os.path.dirname(broker.data_dir))


def test_a_cluster_has_addresses_only_while_it_runs() -> None:
    cluster = EmbeddedCluster(brokers=1)
    for state in ("unstarted", "closed"):
        with pytest.raises(IllegalStateError, match="does not run"):
            _ = cluster.bootstrap_servers
        if state == "unstarted":
            with cluster:
                assert cluster.bootstrap_servers.startswith("127.0.0.1:")
    with pytest.raises(IllegalStateError, match="was closed: make another one"):
        cluster.start()


def test_a_used_port_is_named_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = f"127.0.0.1:{port} is in use, perhaps by another broker: use "
        with pytest.raises(EmbeddedBrokerError, match=re.escape(sentence)) as refusal:
            EmbeddedBroker(port=port).start()
        assert "\n" not in str(refusal.value)
        with pytest.raises(EmbeddedBrokerError, match=re.escape(sentence)) as refusal:
            EmbeddedCluster(brokers=1, ports=[port]).start()
        assert "\n" not in str(refusal.value)
