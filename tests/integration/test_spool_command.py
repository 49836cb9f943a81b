"""`kafkaprod spool` and the adoption of left slots: what a dead program has left is seen, checked, printed and sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.cli.main import main

LIMIT_S = 60


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 2}) as broker:
        yield broker


def leave(broker: EmbeddedBroker, directory: Path, *values: bytes) -> None:
    """Leave records in a slot of a spool, as a program that was ended in an outage."""
    options: dict[str, object] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "spool_dir": directory,
        "batch_size": 0,
    }
    producer = Producer(options)
    producer.send("orders", b"first", partition=1).result(LIMIT_S)
    broker.kill()
    for value in values:
        producer.send("orders", value, key=b"k", partition=0, headers=[("h", b"1")])
    producer.close(0)
    broker.restore()


def values(broker: EmbeddedBroker) -> list[bytes | None]:
    return [record.value for record in broker.records("orders") if record.partition == 0]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["spool", *arguments])
    return code, capsys.readouterr().out


def test_status_says_what_is_left_where_and_who_has_it(
    broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = str(tmp_path / "spool")
    leave(broker, tmp_path / "spool", b"a", b"b")
    code, text = said(capsys, "status", spool)
    assert code == 0
    assert "slot-00 left: 2 records, " in text
    assert "producer id " in text
    assert "\n  orders: 2 records\n" in text
    broker.kill()
    with Producer(bootstrap_servers=broker.bootstrap_servers, spool_dir=spool) as producer:
        (slot,) = json.loads(said(capsys, "status", spool, "--json")[1])
        assert (slot["is_in_use"], slot["record_count"], slot["topics"]) == (True, 2, {"orders": 2})
        broker.restore()
        producer.flush(LIMIT_S)
    assert "slot-00 free: 0 records" in said(capsys, "status", spool)[1]


def test_what_is_left_is_printed_and_stays(
    broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool, file = str(tmp_path / "spool"), tmp_path / "left.jsonl"
    leave(broker, tmp_path / "spool", b"a", b"\xff")
    assert said(capsys, "export", spool, "-t", "orders", "--output", str(file)) == (0, "")
    first, second = map(json.loads, file.read_text().splitlines())
    assert (first["topic"], first["partition"], first["key"], first["value"]) == ("orders", 0, "k", "a")
    assert first["headers"] == [{"name": "h", "value": "1"}]
    assert second["value_base64"] == "/w=="
    assert said(capsys, "export", spool, "-t", "other") == (0, "")
    assert main(["spool", "export", spool, "--output", str(file)]) == 2  # it is there
    assert "2 records" in said(capsys, "status", spool)[1]


def test_damage_is_found(broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spool = str(tmp_path / "spool")
    leave(broker, tmp_path / "spool", b"a", b"unique", b"c")
    assert said(capsys, "verify", spool) == (0, "slot-00: whole, 3 records left\n")
    path = max((tmp_path / "spool").rglob("*.log"), key=lambda path: b"unique" in path.read_bytes())
    path.write_bytes(path.read_bytes().replace(b"unique", b"uniquE"))
    code, text = said(capsys, "verify", spool)
    assert code == 1
    assert text == f"slot-00: damaged: {path.name}; 1 record cannot be read any more, 2 left\n"
    assert json.loads(said(capsys, "verify", spool, "--json")[1])[0]["lost"] == 1


def test_what_is_left_is_sent_by_the_command_but_for_that_of_running_programs(
    broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool, servers = str(tmp_path / "spool"), broker.bootstrap_servers
    leave(broker, tmp_path / "spool", b"a", b"b")
    broker.kill()
    with Producer(bootstrap_servers=servers, spool_dir=spool):
        leave_in_use = said(capsys, "drain", spool, "-b", servers)
        assert leave_in_use == (75, "slot-00: in use, its producer sends 2 records\n")
        broker.restore()
    assert values(broker) == [b"a", b"b"]
    leave(broker, tmp_path / "spool", b"c")
    broker.kill()
    code, text = said(capsys, "drain", spool, "-b", servers, "--patience", "0.3", "--json")
    assert (code, json.loads(text)[0]["left"]) == (1, 1)
    broker.restore()
    assert said(capsys, "drain", spool, "-b", servers) == (0, "slot-00: 1 of 1 record sent, 0 left\n")
    assert said(capsys, "drain", spool, "-b", servers) == (0, "nothing is left\n")
    assert values(broker) == [b"a", b"b", b"c"]


def test_a_place_that_is_no_spool_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spool", "status", str(tmp_path / "none")]) == 2
    assert "there is no spool" in capsys.readouterr().err
