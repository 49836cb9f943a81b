"""Where temporary directories are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedBroker, EmbeddedCluster
from kafkaprod.broker.embedding.temporary import name_temporary, sweep


@pytest.fixture
def long_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A TMPDIR in which the path of a socket would be too long."""
    directory = tmp_path / ("d" * 100)
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr("tempfile.tempdir", None)
    return directory


def test_a_path_that_may_not_be_long_is_in_tmp(long_directory: Path) -> None:
    assert name_temporary("kafkaprod-").startswith(str(long_directory))
    assert name_temporary("kafkaprod-", most_bytes=80).startswith("/tmp/kafkaprod-")
    assert name_temporary("kafkaprod-", most_bytes=1_000).startswith(str(long_directory))


def test_a_cluster_starts_where_temporary_paths_are_long(long_directory: Path) -> None:
    with EmbeddedCluster(brokers=1, topics={"orders": 1}) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert producer.send("orders", b"1").result(60).offset == 0
        data_dir = Path(cluster.data_dir)
    assert not data_dir.parent.exists()


_OWNER = """
import sys
from kafkaprod.broker.embedding.temporary import make_temporary
make_temporary(sys.argv[1])
print("made", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_owner_left_is_removed_and_what_others_use_is_not(tmp_path: Path) -> None:
    left, earlier, foreign = tmp_path / "kafkaprod-broker-1", tmp_path / "kafkaprod-broker-2", tmp_path / "other-3"
    for directory in (earlier, foreign):
        directory.mkdir()
    (foreign / ".owner").touch()
    link = tmp_path / "kafkaprod-link"
    link.symlink_to(foreign)
    command = [sys.executable, "-c", _OWNER, str(left)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"made\n"
        (left / "data").mkdir()
        sweep({str(tmp_path)})
        assert left.exists()
        owner.kill()
        owner.wait()
    sweep({str(tmp_path), str(tmp_path / "not-there")})
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kafkaprod-broker-2", "kafkaprod-link", "other-3"]


def test_a_stopped_broker_keeps_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", b"1").result(60)
        broker.stop()
        sweep({str(tmp_path)})
        broker.start()
        assert [record.value for record in broker.records("orders")] == [b"1"]
    assert list(tmp_path.iterdir()) == []
