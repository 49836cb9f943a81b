"""foreach_batch() over Spark Connect, whose tasks do not learn their stream and micro-batch."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaprod.errors import ConfigError
from kafkaprod.spark import frames

SERVERS = {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"}


class ConnectFrame:
    """A frame of Spark Connect: without a JVM behind it."""


class ClassicFrame:
    """A frame with a JVM."""

    _jdf = None


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(frames, "write", lambda df, options: calls.append(dict(options)))
    return calls


@pytest.mark.parametrize("name", ["write.id", "Write.ID"])
def test_each_micro_batch_is_a_write_of_its_own(written: list[dict[str, Any]], name: str) -> None:
    write_batch = frames.foreach_batch({**SERVERS, name: "orders of today"}, delivery="transactional")
    for number in (0, 1, 1):
        write_batch(ConnectFrame(), number)  # type: ignore[arg-type]
    assert [options[name] for options in written] == ["orders of today-0", "orders of today-1", "orders of today-1"]


@pytest.mark.parametrize("more", [{"delivery": "transactional"}, {"dedup.headers": "true"}])
def test_a_stream_without_a_name_is_refused_before_anything_is_sent(
    written: list[dict[str, Any]], more: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=r"over Spark Connect foreach_batch\(\) .* needs the option write.id"):
        frames.foreach_batch({**SERVERS, **more})(ConnectFrame(), 0)  # type: ignore[arg-type]
    assert not written


def test_at_least_once_needs_no_name(written: list[dict[str, Any]]) -> None:
    frames.foreach_batch(SERVERS)(ConnectFrame(), 3)  # type: ignore[arg-type]
    assert written == [SERVERS]


def test_with_a_jvm_the_name_stays(written: list[dict[str, Any]]) -> None:
    frames.foreach_batch(SERVERS, write_id="w", delivery="transactional")(ClassicFrame(), 3)  # type: ignore[arg-type]
    assert written == [{**SERVERS, "write.id": "w", "delivery": "transactional"}]
