"""Iceberg tables by the command line: which snapshot is loaded, and which continues an earlier load."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.loader.iceberg_folder import new_table
from tests.support.loader.load_rig import LoadRig


@pytest.fixture
def rig(embedded_broker: EmbeddedBroker, tmp_path: Path, topic_name: str) -> LoadRig:
    return LoadRig(embedded_broker.bootstrap_servers, tmp_path / "state", topic_name)


def test_a_snapshot_is_chosen_and_a_load_of_it_is_continued_by_its_id(rig: LoadRig, tmp_path: Path) -> None:
    name = tmp_path / "orders"
    table = new_table(name, pa.schema([("id", pa.int64())]))
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    chosen = str(table.snapshots()[1].snapshot_id)
    assert rig.run(str(name), "--create-topic", "1", "--table-version", chosen).code == 0
    assert sorted(rig.values()) == [b'{"id":0}', b'{"id":1}']
    newer = rig.run(str(name), "--resume")
    assert newer.code == 2
    assert f"Use --table-version {chosen} to continue, or --restart" in newer.err
    assert rig.run(str(name), "--resume", "--table-version", chosen).code == 0
    missing = rig.run(str(name), "--resume", "--table-version", "9")
    assert missing.code == 2
    assert "is an Iceberg table without snapshot 9" in missing.err
    assert len(rig.values()) == 2


def test_a_load_is_not_continued_where_the_table_has_other_columns(rig: LoadRig, tmp_path: Path) -> None:
    name = tmp_path / "orders"
    table = new_table(name, pa.schema([("id", pa.int64()), ("city", pa.string())]))
    table.append(pa.table({"id": [1], "city": ["a"]}))
    assert rig.run(str(name), "--create-topic", "1").code == 0
    with table.update_schema() as update:
        update.rename_column("city", "town")
    renamed = rig.run(str(name), "--resume")
    assert renamed.code == 2
    assert "columns of the table was city string,id int64, now id int64,town string" in renamed.err
    with table.update_schema() as update:
        update.rename_column("town", "city")
    assert rig.run(str(name), "--resume").code == 0
    with table.update_schema() as update:
        update.add_column("note", StringType())
    assert "columns of folders' names was not given, now note" in rig.run(str(name), "--resume").err
