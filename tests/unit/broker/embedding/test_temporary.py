"""Where temporary directories are."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaprod import Producer
from kafkaprod.broker import EmbeddedCluster
from kafkaprod.broker.embedding.temporary import name_temporary


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
