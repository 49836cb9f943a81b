"""Loads of objects of other machines: each row once, however the load and the server end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.loader.formats import text
from kafkaprod.loader.opening.remote import remote_file
from tests.support.loader.load_rig import LoadRig
from tests.support.loader.object_server import ObjectServer, object_server, status

ROWS = [b'{"row":%d}' % number for number in range(200_000)]
TEXT = b"\n".join(ROWS) + b"\n"
NAME = "/bucket/rows.jsonl"
SECRET = "canary5b0e"  # in the query of a signed address


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with object_server({NAME: TEXT}) as running:
        yield running


@pytest.fixture(autouse=True)
def pieces_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "PIECE_BYTES", 64 << 10)
    monkeypatch.setattr(remote_file, "MOST_BYTES", 128 << 10)


@pytest.fixture(params=[False, True], ids=["manifest", "transactions"])
def rig(request: pytest.FixtureRequest, embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str) -> LoadRig:
    transactional_id = f"load-{topic_name}" if request.param else None
    rig = LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name, transactional_id)
    rig.create(2)
    return rig


def test_a_load_that_stopped_goes_on_with_the_same_object(rig: LoadRig, server: ObjectServer, tmp_path: Path) -> None:
    address = f"{server.url(NAME)}?X-Amz-Signature={SECRET}&sig={SECRET}"
    report = tmp_path / "report.html"
    server.faults.append(
        lambda asked, reply: status(403)(asked, reply) if (asked.range or (0,))[0] > 1_000_000 else None
    )
    stopped = rig.run(address, "--report", str(report))
    assert stopped.code == 1
    assert "answers 403" in stopped.err
    server.faults.clear()
    asked_before = len(server.asked)
    again = f"{server.url(NAME)}?X-Amz-Signature=renewed{SECRET}"
    server.once(status(503, Retry_After="0"), 2)
    done = rig.run(again, "--resume", "--report", str(report), "--json")
    assert done.code == 0, done.err
    counts = json.loads(done.out)["remote"]
    assert counts["retries"] == 1
    assert counts["requests"] == len(server.asked) - asked_before
    assert rig.transactional_id is not None or "; read " in stopped.err  # of which nothing was committed
    assert sorted(rig.values()) == sorted(ROWS)
    kept = [path.read_text() for path in (report, *rig.state_dir.glob("**/*.json"))] if rig.state_dir.exists() else []
    for shown in (stopped.out, stopped.err, done.out, done.err, *kept):
        assert SECRET not in shown


def test_a_load_that_stopped_does_not_go_on_with_another_object(rig: LoadRig, server: ObjectServer) -> None:
    server.faults.append(
        lambda asked, reply: status(403)(asked, reply) if (asked.range or (0,))[0] > 1_000_000 else None
    )
    assert rig.run(server.url(NAME)).code == 1
    before = rig.values()
    server.faults.clear()
    server.objects[NAME] = TEXT.replace(b"199999", b"others")
    done = rig.run(server.url(NAME), "--resume", "--must-resume")
    assert done.code == 2
    assert rig.values() == before
