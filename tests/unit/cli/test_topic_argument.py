"""Commands of one topic take it as their first argument; `tail --from` starts at a time; questions wait 5 s."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.cli import producer_arguments
from kafkaprod.cli.main import build_parser, main


def test_produce_and_tail_take_the_topic_as_first_argument(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"one\ntwo\n")))
        assert main(["produce", "orders", "-b", broker.bootstrap_servers]) == 0
        assert main(["tail", "orders", "-b", broker.bootstrap_servers]) == 0
    assert capsys.readouterr().out == "0:0\tone\n0:1\ttwo\n"


@pytest.mark.parametrize(
    ("time", "first"),
    [("0", 0), ("1970-01-01T00:00:02+00:00", 1), ("2001", 2), ("1970-01-01 00:00:03Z", 2), ("3001", 3)],
)
def test_tail_starts_at_the_first_record_from_a_time_on(
    time: str, first: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
            for second in (1, 2, 3):
                producer.send("orders", b"%d" % second, timestamp_ms=second * 1000).result(10)
        assert main(["tail", "orders", "--from", time, "-b", broker.bootstrap_servers]) == 0
    shown = [int(line.partition("\t")[2]) for line in capsys.readouterr().out.splitlines()]
    assert shown == [1, 2, 3][first:]


@pytest.mark.parametrize(
    ("line", "waited_ms"),
    [
        ("topics list", 5000),
        ("topics describe t", 5000),
        ("topics list --connect-timeout 9", 9000),
        ("topics list -X max.block.ms=7000", None),
        ("topics create t", None),
        ("tail t", None),
    ],
)
def test_a_question_about_topics_waits_five_seconds_for_a_broker(
    line: str, waited_ms: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_arguments, "ClusterClient", lambda config, connect_timeout_ms: connect_timeout_ms)
    command = line.split()
    options = build_parser(command[:1]).parse_args([*command, "-b", "127.0.0.1:1"])
    assert producer_arguments.open_cluster(options, producer_arguments.read_options(options)) == waited_ms
