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
