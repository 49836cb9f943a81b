"""Delta tables by the command line: which version is loaded, and which continues an earlier load."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.loader.load_rig import LoadRig


@pytest.fixture
def rig(embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str) -> LoadRig:
    return LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name)


def test_a_version_is_chosen_and_a_load_of_it_is_continued_by_its_number(rig: LoadRig, tmp_path: Path) -> None:
    name = str(tmp_path / "orders")
    for number in range(3):
        write_deltalake(name, pa.table({"id": [number]}), mode="append")
    assert rig.run(name, "--create-topic", "1", "--table-version", "1").code == 0
    assert sorted(rig.values()) == [b'{"id":0}', b'{"id":1}']
    newer = rig.run(name, "--resume")
    assert newer.code == 2
    assert "Use --table-version 1 to continue, or --restart" in newer.err
    assert rig.run(name, "--resume", "--table-version", "1").code == 0
    missing = rig.run(name, "--resume", "--table-version", "9")
    assert missing.code == 2
    assert "not a whole Delta table of version 9" in missing.err
    assert len(rig.values()) == 2


def test_a_version_of_what_is_no_delta_table_is_refused(rig: LoadRig, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    done = rig.run(str(tmp_path / "a.jsonl"), "--create-topic", "1", "--table-version", "1")
    assert done.code == 2
    assert "--table-version is for Delta and Iceberg tables, and the input has none" in done.err
