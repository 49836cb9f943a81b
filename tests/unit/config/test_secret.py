"""Secrets may be named by place: an environment variable or a file; messages never show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaprod.config import ProducerConfig
from kafkaprod.errors import ConfigError

LOGIN = {
    "bootstrap.servers": "a",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.plain.username": "u",
}


def password(value: str) -> str:
    config = ProducerConfig.from_options({**LOGIN, "sasl_plain_password": value})
    assert config.sasl_plain_password is not None
    return config.sasl_plain_password.reveal()


def test_a_secret_is_read_from_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "env:canary")
    assert password("env:KAFKA_PASSWORD") == "env:canary"  # what a variable holds is not looked up again


def test_a_secret_is_read_from_a_file_without_its_last_line_end(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("canary\n\n", encoding="utf-8")
    assert password(f"file:{path}") == "canary\n"


def test_other_texts_are_the_secret() -> None:
    assert password("plain:env:x") == "plain:env:x"


@pytest.mark.parametrize("place", ["env:KAFKAPROD_NOT_SET", "file:/does/not/exist"])
def test_a_place_without_a_secret_is_refused(place: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl_plain_password.*env:NAME of a variable that is set, or file:PATH"):
        password(place)
