"""What `kafkaprod doctor --spark` says of secrets that Spark would show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkaprod.admin.checkup import Level
from kafkaprod.cli.doctor_redaction import ADVISED, examine_redaction, look_at_redaction, read_redaction, secret_names

USUAL = ["(?i)secret|password|token|access[.]?key", "(?i)url"]
SHOWN = (
    *("ssl.key.pem", "ssl.keystore.key", "sasl.jaas.config", "sasl.oauthbearer.config"),
    *("sasl.oauthbearer.assertion.private.key.pem", "sasl.oauthbearer.assertion.private.key.passphrase"),
)
"""Secrets that Spark does not hide by itself."""


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of Spark's settings, which is not there yet."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path / "spark-defaults.conf"


@pytest.mark.parametrize("name", SHOWN)
def test_a_secret_that_spark_would_show_is_a_warning_with_a_remedy(name: str) -> None:
    for spelling in (name, name.replace(".", "_")):
        (finding,) = look_at_redaction({spelling: "text", "linger.ms": "5", "sasl.password": "text"})
        assert finding.level is Level.WARNING
        assert finding.text.endswith(f"show kafka.{name}")
        assert "text" not in finding.text + finding.remedy
        assert ADVISED in finding.remedy


def test_what_registries_want_is_looked_at_too() -> None:
    (finding,) = look_at_redaction({"schema.registry.basic.auth.user.info": "a:b"})
    assert finding.text.endswith("show schema.registry.basic.auth.user.info")


@pytest.mark.parametrize("value", ["env:KEY", "file:/run/secrets/key"])
def test_a_place_is_no_secret(value: str) -> None:
    assert look_at_redaction(dict.fromkeys(secret_names(), value)) == []


def test_the_advised_pattern_hides_every_secret(settings: Path) -> None:
    settings.write_text(f"spark.master local\nspark.redaction.regex {ADVISED.replace(':', chr(92) + ':')}\n")
    assert read_redaction() == [ADVISED, USUAL[1]]
    assert look_at_redaction(dict.fromkeys(secret_names(), "text")) == []


def test_the_page_advises_the_same() -> None:
    assert f"`{ADVISED}`" in Path("docs/spark.md").read_text()


def test_names_that_are_shown_are_those_that_spark_does_not_know() -> None:
    (finding,) = examine_redaction(dict.fromkeys(secret_names(), "text"), USUAL)
    assert set(re.findall(r"kafka\.([\w.]+)", finding.text)) == set(SHOWN)


def test_a_pattern_or_file_that_is_not_understood_is_a_warning(settings: Path) -> None:
    assert [finding.level for finding in examine_redaction({}, ["(?<x"])] == [Level.WARNING]
    settings.write_text("spark.redaction.regex a\nspark.redaction.regex b\n")
    assert [finding.level for finding in look_at_redaction({})] == [Level.WARNING]
