"""A broker's log: one line of a kind a second, whatever clients do."""

from __future__ import annotations

import logging

import pytest

from kafkaprod.broker.server import calm_log
from kafkaprod.broker.server.calm_log import OneLineASecond


def record(text: str, level: int = logging.WARNING, *args: object) -> logging.LogRecord:
    return logging.LogRecord("kafkaprod", level, __file__, 1, text, args, None)


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(calm_log.time, "monotonic", lambda: now[0])
    return now


def test_lines_of_a_kind_within_a_second_are_held_back_and_counted(now_s: list[float]) -> None:
    limit = OneLineASecond()
    assert limit.filter(record("connection from %s closed", logging.WARNING, "a"))
    held = [limit.filter(record("connection from %s closed", logging.WARNING, host)) for host in "bcdef"]
    assert held == [False] * 5
    now_s[0] += 1.0
    later = record("connection from %s closed", logging.WARNING, "g")
    assert limit.filter(later)
    assert later.getMessage() == "connection from g closed (5 more like it not shown)"


def test_lines_of_other_kinds_pass(now_s: list[float]) -> None:
    limit = OneLineASecond()
    assert [limit.filter(record(text)) for text in ("a", "b", "a")] == [True, True, False]


def test_critical_line_always_passes(now_s: list[float]) -> None:
    limit = OneLineASecond()
    assert limit.filter(record("the end", logging.CRITICAL))
    assert limit.filter(record("the end", logging.CRITICAL))


def test_kinds_without_number_take_no_memory(now_s: list[float]) -> None:
    limit = OneLineASecond()
    assert all(limit.filter(record(f"kind {number}")) for number in range(1_000))
    assert len(limit._held) <= 100
