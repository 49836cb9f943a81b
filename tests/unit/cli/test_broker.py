"""The command's log: one line a second, whatever happens."""

from __future__ import annotations

import logging

import pytest

from kafkaprod.cli import broker
from kafkaprod.cli.broker import OneLineASecond
from kafkaprod.errors import ConfigError


def record(text: str, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("kafkaprod", level, __file__, 1, text, (), None)


def test_second_line_within_a_second_is_held_back_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(broker.time, "monotonic", lambda: now_s[0])
    limit = OneLineASecond()
    assert limit.filter(record("first"))
    assert [limit.filter(record("noise")) for _ in range(5)] == [False] * 5
    now_s[0] += 1.0
    later = record("later")
    assert limit.filter(later)
    assert later.getMessage() == "later (5 more lines not shown)"
    assert not limit.filter(record("noise"))


def test_critical_line_always_passes() -> None:
    limit = OneLineASecond()
    assert limit.filter(record("first"))
    assert limit.filter(record("the end", logging.CRITICAL))


def test_options_are_name_and_value() -> None:
    assert broker._parse_option("sasl.jaas=a=b") == ("sasl.jaas", "a=b")
    with pytest.raises(ConfigError, match="'x' is not NAME=VALUE"):
        broker._parse_option("x")
