"""foreach_batch() over Spark Connect, whose tasks do not learn their stream and micro-batch."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaprod.errors import ConfigError
from kafkaprod.spark import frames
from kafkaprod.spark.streams import StreamRun

SERVERS = {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"}


class Query:
    """A stream that a session of Spark Connect knows."""

    def __init__(self, name: str) -> None:
        self.id, self.runId, self.name = f"id of {name}", f"run of {name}", name


class ConnectFrame:
    """A frame of Spark Connect: without a JVM behind it."""

    def __init__(self, *names: str) -> None:
        self.sparkSession = self.streams = self
        self.active = [Query(name) for name in names]


class ClassicFrame:
    """A frame with a JVM."""

    _jdf = None


Written = list[tuple[dict[str, Any], StreamRun | None]]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    calls: Written = []
    monkeypatch.setattr(frames, "_write", lambda df, options, stream: calls.append((dict(options), stream)))
    return calls


@pytest.mark.parametrize("name", ["write.id", "Write.ID"])
def test_each_micro_batch_is_a_write_of_its_own_and_of_the_stream(written: Written, name: str) -> None:
    write_batch = frames.foreach_batch({**SERVERS, name: "orders of today"}, delivery="transactional")
    for number in (0, 1, 1):
        write_batch(ConnectFrame("any"), number)  # type: ignore[arg-type]
    names = [options[name] for options, _ in written]
    assert names == ["orders of today-0", "orders of today-1", "orders of today-1"]
    assert {stream for _, stream in written} == {StreamRun("id of any", "run of any")}


def test_of_several_streams_the_one_with_the_name_of_the_write_id_is_meant(written: Written) -> None:
    write_batch = frames.foreach_batch(SERVERS, write_id="w", delivery="transactional")
    write_batch(ConnectFrame("v", "w"), 0)  # type: ignore[arg-type]
    assert written[0][1] == StreamRun("id of w", "run of w")


@pytest.mark.parametrize("names", [(), ("u", "v"), ("w", "w")])
def test_stream_that_cannot_be_known_is_refused_before_anything_is_sent(
    written: Written, names: tuple[str, ...]
) -> None:
    write_batch = frames.foreach_batch(SERVERS, write_id="w", delivery="transactional")
    with pytest.raises(ConfigError, match=rf"which of {len(names)} active streams .*queryName\('w'\)"):
        write_batch(ConnectFrame(*names), 0)  # type: ignore[arg-type]
    assert not written


@pytest.mark.parametrize("more", [{"delivery": "transactional"}, {"dedup.headers": "true"}])
def test_a_stream_without_a_name_is_refused_before_anything_is_sent(written: Written, more: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"over Spark Connect foreach_batch\(\) .* needs the option write.id"):
        frames.foreach_batch({**SERVERS, **more})(ConnectFrame("any"), 0)  # type: ignore[arg-type]
    assert not written


def test_at_least_once_needs_no_name(written: Written) -> None:
    frames.foreach_batch(SERVERS)(ConnectFrame(), 3)  # type: ignore[arg-type]
    assert written == [(SERVERS, None)]


def test_with_a_jvm_the_name_stays(written: Written) -> None:
    frames.foreach_batch(SERVERS, write_id="w", delivery="transactional")(ClassicFrame(), 3)  # type: ignore[arg-type]
    assert written == [({**SERVERS, "write.id": "w", "delivery": "transactional"}, None)]
