"""`kafkaprod spool` and the adoption of left slots: what a dead program has left is seen, checked, printed and sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker
from kafkaprod.broker.embedding.faults import reply_with
from kafkaprod.cli.main import main
from kafkaprod.engine.adoption import Adoption
from kafkaprod.spool.inspection import read_slots
from tests.support.broker.fixtures_broker import wait_until

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


def test_a_slot_that_nobody_takes_is_sent_by_a_producer_beside_it(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="kafkaprod.spool")
    spool, servers = tmp_path / "spool", broker.bootstrap_servers
    leave(broker, spool, b"a", b"b")
    (spool / "slot-00").rename(spool / "slot-05")  # the next producer takes a lower one
    with monkeypatch.context() as patch:
        patch.setattr(Adoption.__init__, "__defaults__", (0.05,))
        with Producer(bootstrap_servers=servers, spool_dir=spool) as producer:
            wait_until(lambda: len(values(broker)) == 2, "the left records")
            producer.send("orders", b"c", partition=0).result(LIMIT_S)
    assert sorted(value or b"" for value in values(broker)) == [b"a", b"b", b"c"]
    assert "2 records in the slot" in caplog.text
    with Producer(bootstrap_servers=servers, spool_dir=spool, spool_adopt=False) as producer:
        assert not [thread for thread in threading.enumerate() if thread.name.endswith("-adoption")]
    (slot,) = [each for each in read_slots(str(spool)) if each.content().name == "slot-05"]
    assert (slot.content().record_count, slot.content().is_in_use) == (0, False)


def test_a_slot_of_which_nothing_can_be_sent_is_left_for_people(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spool = tmp_path / "spool"
    leave(broker, spool, b"a")
    (spool / "slot-00").rename(spool / "slot-05")
    broker.faults.on("PRODUCE", reply_with("NOT_ENOUGH_REPLICAS"))
    options: dict[str, object] = {"delivery_timeout_ms": 200, "request_timeout_ms": 100, "linger_ms": 1}
    monkeypatch.setattr(Adoption.__init__, "__defaults__", (0.05,))
    with Producer(options, bootstrap_servers=broker.bootstrap_servers, spool_dir=spool):
        wait_until(
            lambda: "slot-05' is left, as nothing of it could be sent: it has 1 record" in caplog.text, "the warning"
        )
    assert values(broker) == []
