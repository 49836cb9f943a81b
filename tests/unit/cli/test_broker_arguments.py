"""The arguments of the commands that run brokers."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from kafkaprod.cli import broker_arguments
from kafkaprod.errors import ConfigError


def parsed(*words: str) -> Namespace:
    parser = ArgumentParser()
    broker_arguments.add_arguments(parser)
    return parser.parse_args(words)


def test_options_are_name_and_value() -> None:
    assert broker_arguments.kafka_options(parsed("-o", "sasl.jaas=a=b", "-o", "x=")) == {"sasl.jaas": "a=b", "x": ""}
    with pytest.raises(ConfigError, match="'x' is not NAME=VALUE"):
        broker_arguments.kafka_options(parsed("-o", "x"))


def test_tls_needs_a_certificate_and_a_key() -> None:
    assert broker_arguments.tls_files(parsed()) is None
    files = ("--tls-cert", "c", "--tls-key", "k")
    assert broker_arguments.tls_files(parsed(*files)) == ("c", "k")
    assert broker_arguments.tls_files(parsed(*files, "--tls-client-ca", "a")) == ("c", "k", "a")
    with pytest.raises(ConfigError, match="both --tls-cert and --tls-key"):
        broker_arguments.tls_files(parsed("--tls-client-ca", "a"))


def test_users_are_lines_of_a_file(tmp_path: Path) -> None:
    assert broker_arguments.users(parsed()) == {}
    file = tmp_path / "users.txt"
    file.write_text("# those who may log in\n\nann:her:secret\n")
    assert broker_arguments.users(parsed("--sasl-users", str(file))) == {"ann": "her:secret"}
    file.write_text("ann\n")
    with pytest.raises(ConfigError, match=r"line 1 of .* is not USER:PASSWORD"):
        broker_arguments.users(parsed("--sasl-users", str(file)))
    file.write_text("")
    with pytest.raises(ConfigError, match="names no user"):
        broker_arguments.users(parsed("--sasl-users", str(file)))


def test_options_of_a_file_and_of_the_environment_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nlog.retention.hours=2\nlog.dirs=/tmp/kraft-combined-logs\nno.such=1\n")
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "4")
    monkeypatch.setenv("KAFKA_MESSAGE_MAX_BYTES", "5")
    monkeypatch.setenv("KAFKA_SSL_KEYSTORE_PASSWORD", "canary")
    monkeypatch.setenv("KAFKA_HEAP_OPTS", "-Xmx1g")
    words = ("--properties", str(file), "--kafka-environment", "-o", "message.max.bytes=6")
    assert broker_arguments.kafka_options(parsed(*words)) == {
        "num.partitions": "4",
        "log.retention.hours": "2",
        "no.such": "1",  # refused when it is applied
        "message.max.bytes": "6",
    }
    said = capsys.readouterr().err
    assert "log.dirs (use data_dir= and log_dirs=, or --data-dir and --log-dir)" in said
    assert "ssl.keystore.password (use tls_files=, or --tls-cert and --tls-key)" in said
    assert "canary" not in said
    assert broker_arguments.kafka_options(parsed()) == {}


def test_variables_are_options_by_the_rule_of_kafkas_image() -> None:
    found = broker_arguments.environment_options(
        {"KAFKA_A_B": "1", "KAFKA_C__D___E": "2", "HOME": "3", "KAFKA_HOME": "4"}
    )
    assert found == {"a.b": "1", "c_d-e": "2"}
