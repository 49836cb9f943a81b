"""Secrets may be named by place: an environment variable or a file; messages never show them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from kafkaprod.config import ProducerConfig
from kafkaprod.config.secret import LiveSecret
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


def test_a_secret_in_a_file_is_read_each_time_and_kept_while_it_cannot_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "password"
    path.write_text("first", encoding="utf-8")
    secret = LiveSecret(f"file:{path}")
    path.write_text("second\n", encoding="utf-8")
    assert (secret.reveal(), repr(secret), secret.is_live) == ("second", "[hidden]", True)
    path.unlink()
    assert secret.reveal() == "second"
    assert "cannot be read" in caplog.text
    assert "second" not in caplog.text
    path.write_bytes(b"\xff")
    assert secret.reveal() == "second"
    path.write_text("third", encoding="utf-8")
    assert secret.reveal() == "third"


def test_live_secrets_of_one_place_are_equal_and_a_copy_elsewhere_is_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "text")
    one, other = LiveSecret("env:KAFKA_PASSWORD"), LiveSecret("env:KAFKA_PASSWORD")
    assert one == other
    assert hash(one) == hash(other)
    copy = pickle.loads(pickle.dumps(one))
    monkeypatch.setenv("KAFKA_PASSWORD", "later")
    assert copy.reveal() == "text"
    assert not copy.is_live
