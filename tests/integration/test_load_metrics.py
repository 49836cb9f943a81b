"""`kafkaprod load --metrics-port` and `--metrics-file`: a load as Prometheus sees it."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.kafka.ports import free_ports
from tests.support.loader.load_rig import LoadRig


@pytest.fixture(params=["manifest", "transactions"])
def rig(embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str, request: pytest.FixtureRequest) -> LoadRig:
    transactional_id = topic_name if request.param == "transactions" else None
    rig = LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name, transactional_id)
    rig.create(1)
    return rig


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(f'{{"id": {number}}}\n' for number in range(2000)), encoding="utf-8")
    return path


def values(text: str, topic: str) -> dict[str, float]:
    """Return the metrics of the load, and those of its producer without further labels."""
    found = re.findall(r"^(\w+)\{(\w+)=\"([^\"]+)\"\} (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, label, owner, value in found if label == "client_id" or owner == topic}


def test_the_file_has_the_end_of_the_load(rig: LoadRig, lines: Path, tmp_path: Path) -> None:
    file = tmp_path / "load.prom"
    with lines.open("a", encoding="utf-8") as more:
        more.write("no JSON\n")
    arguments = ["--format", "jsonl", "--key", "id", "--on-error", "skip", "--metrics-file", str(file), str(lines)]
    done = rig.run(*arguments)
    assert done.code == 3, done.err
    seen = values(file.read_text(encoding="utf-8"), rig.topic)
    assert seen["kafkaprod_load_records_total"] == len(rig.values()) == 2000
    assert seen["kafkaprod_load_bad_rows_total"] == 1
    assert seen["kafkaprod_load_bytes_total"] > 2000 * 9
    assert seen["kafkaprod_load_retried_records"] == 0
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("load.prom.")]


def test_the_port_serves_load_and_producer_while_it_runs(rig: LoadRig, lines: Path) -> None:
    (port,) = free_ports(1)
    command = [word for word in rig.command("--metrics-port", str(port), "--rate", "200", str(lines)) if word != "-q"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        seen: dict[str, float] = {}
        deadline_s = time.monotonic() + 60
        while not all(map(seen.get, ("kafka_producer_record_send_total", "kafkaprod_load_records_total"))):
            assert process.poll() is None
            assert time.monotonic() < deadline_s
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer,
            ):
                seen = values(answer.read().decode(), rig.topic)
        assert 0 < seen["kafkaprod_load_records_total"] < 2000
        assert 0 < seen["kafkaprod_load_done_ratio"] <= 1
        with pytest.raises(OSError), socket.create_connection(("127.0.0.2", port), timeout=10):
            pass  # 0.0.0.0 would accept it
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143


@pytest.mark.parametrize("rig", ["manifest"], indirect=True)
def test_what_cannot_be_used_is_refused_before_anything_is_sent(rig: LoadRig, lines: Path, tmp_path: Path) -> None:
    taken = rig.bootstrap.rpartition(":")[2]
    done = rig.run("--metrics-port", taken, str(lines))
    assert done.code == 2
    assert f"--metrics-port {taken} cannot be used: " in done.err
    done = rig.run("--metrics-port", "9400", "--metrics-host", "no such host", str(lines))
    assert done.code == 2
    assert "--metrics-port 9400 --metrics-host no such host cannot be used: " in done.err
    missing = tmp_path / "missing" / "load.prom"
    done = rig.run("--metrics-file", str(missing), str(lines))
    assert done.code == 2
    assert f"--metrics-file {missing} cannot be used: " in done.err
    assert rig.values() == []
