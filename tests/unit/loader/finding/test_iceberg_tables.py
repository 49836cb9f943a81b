"""Iceberg tables are read as the files of one snapshot, with the columns that the table has."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, StringType

from kafkaprod.loader.finding import iceberg_tables
from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.finding.paths import Listing
from kafkaprod.loader.formats.readers import ReadOptions, check_columns, read_rows
from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.tables.row_plan import RowPlan, Template
from tests.support.loader.iceberg_folder import new_table

COLUMNS = pa.schema([("id", pa.int64()), ("city", pa.string()), ("n", pa.int32()), ("share", pa.float32())])
ROWS = [{"id": 1, "city": "a", "n": 5, "share": 0.1}, {"id": 2, "city": None, "n": None, "share": 1.5}]


def make(folder: Path) -> Table:
    """A table of two snapshots: two rows, and then a third in place of the first one."""
    table = new_table(folder, COLUMNS)
    table.append(pa.Table.from_pylist(ROWS, COLUMNS))
    table.append(pa.Table.from_pylist([{"id": 3, "city": "c", "n": 7, "share": 2.0}], COLUMNS))
    table.delete("id = 1")
    return table


def rows_of(folder: Path, table_version: int | None = None, **plan: Any) -> list[dict[str, Any]]:
    options = ReadOptions(RowPlan("", **plan))
    found: list[dict[str, Any]] = []
    for source in find_sources([str(folder)], table_version=table_version):
        check_columns(source, options)
        for block in read_rows(source, options):
            assert block.value is not None
            found += [json.loads(block.value[i] or b"") for i in range(block.row_count)]
    return sorted(found, key=lambda row: int(row["id"]))


def test_rows_are_those_of_the_newest_snapshot_or_of_the_one_named(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    assert [row["id"] for row in rows_of(tmp_path / "t")] == [2, 3]
    for snapshot in table.snapshots():
        expected = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
        found = rows_of(tmp_path / "t", table_version=snapshot.snapshot_id)
        assert [row["id"] for row in found] == sorted(row["id"] for row in expected)
    assert {source.table_version for source in find_sources([str(tmp_path / "t")])} == {
        table.metadata.current_snapshot_id
    }


def test_columns_are_found_by_their_ids(tmp_path: Path) -> None:
    """Renamed, added, dropped and added again, moved and widened ones: each is what the table says."""
    table = make(tmp_path / "t")
    with table.update_schema() as update:
        update.rename_column("city", "town")
        update.add_column("note", StringType())
        update.delete_column("n")
        update.update_column("share", DoubleType())
    with table.update_schema() as update:
        update.add_column("n", LongType())
        update.move_first("town")
    assert rows_of(tmp_path / "t") == [
        {"id": 2, "town": None, "share": 1.5, "note": None, "n": None},
        {"id": 3, "town": "c", "share": 2.0, "note": None, "n": None},
    ]
    assert rows_of(tmp_path / "t", key=Template.of_column("town")) == rows_of(tmp_path / "t")
    first = table.snapshots()[0].snapshot_id
    assert rows_of(tmp_path / "t", table_version=first) == [
        {"id": 1, "city": "a", "n": 5, "share": 0.1},
        {"id": 2, "city": None, "n": None, "share": 1.5},
    ]
    table.append(pa.table({"id": [4], "town": ["d"], "share": [0.1], "note": ["x"], "n": [1 << 40]}))
    assert rows_of(tmp_path / "t")[-1] == {"id": 4, "town": "d", "share": 0.1, "note": "x", "n": 1 << 40}


def test_another_schema_without_another_snapshot_is_another_load(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    (before, *_), first = find_sources([str(tmp_path / "t")]), table.metadata.current_snapshot_id
    with table.update_schema() as update:
        update.rename_column("city", "town")
    (after, *_) = find_sources([str(tmp_path / "t")])
    assert before.table_version == after.table_version == first
    assert before.table_columns != after.table_columns


def test_a_column_changed_inside_is_refused(tmp_path: Path) -> None:
    inner = pa.struct([("x", pa.int64()), ("y", pa.string())])
    table = new_table(tmp_path / "t", pa.schema([("id", pa.int64()), ("s", inner), ("l", pa.list_(inner))]))
    table.append(pa.table({"id": [1], "s": [{"x": 1, "y": "a"}], "l": [[{"x": 1, "y": "a"}]]}))
    assert rows_of(tmp_path / "t") == [{"id": 1, "s": {"x": 1, "y": "a"}, "l": [{"x": 1, "y": "a"}]}]
    with table.update_schema() as update:
        update.rename_column("l.element.x", "z")
    with pytest.raises(LoadRefusedError, match="other fields inside of column 'l' than its Iceberg table"):
        find_sources([str(tmp_path / "t")])


def test_values_have_the_types_of_the_table_also_where_the_file_lacks_the_column(tmp_path: Path) -> None:
    """As files that came from Hive do: what the table is partitioned by is only in its metadata."""
    at = datetime(2024, 1, 1, 1, 2, 3, 456_789)
    columns = {
        "number": pa.array([5], pa.int32()),
        "single": pa.array([0.1], pa.float32()),
        "price": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
        "instant": pa.array([at.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "time": pa.array([at], pa.timestamp("us")),
        "flag": pa.array([False]),
        "day": pa.array([date(1960, 1, 1)]),
        "text": pa.array(["a/b c%25=ü"]),
        "bytes": pa.array([b"\0\xff"]),
    }
    for name, column in columns.items():
        rows = pa.table({"id": pa.array([1]), "p": column})
        spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="p"))
        new_table(tmp_path / name, rows.schema, spec).append(rows)
        expected = rows_of(tmp_path / name)
        (file,) = (tmp_path / name / "data").rglob("*.parquet")
        pq.write_table(pq.read_table(file, partitioning=None).drop_columns(["p"]), file)
        assert rows_of(tmp_path / name) == expected
        assert expected[0].keys() == {"id", "p"}


def test_doubles_that_only_the_metadata_has_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "p": [0.1]})
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="p"))
    new_table(tmp_path / "t", rows.schema, spec).append(rows)
    assert rows_of(tmp_path / "t") == [{"id": 1, "p": 0.1}]
    (file,) = (tmp_path / "t" / "data").rglob("*.parquet")
    pq.write_table(pq.read_table(file, partitioning=None).drop_columns(["p"]), file)
    with pytest.raises(LoadRefusedError, match="pyiceberg reads them as floats"):
        find_sources([str(tmp_path / "t")])


def test_files_without_ids_are_mapped_by_name(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", COLUMNS)
    (tmp_path / "t" / "data").mkdir()
    file = tmp_path / "t" / "data" / "a.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS, COLUMNS), file)
    table.add_files([str(file)])
    with table.update_schema() as update:
        update.rename_column("city", "town")
    assert [row["town"] for row in rows_of(tmp_path / "t")] == ["a", None]
    with table.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    with pytest.raises(LoadRefusedError, match="its columns have no ids"):
        find_sources([str(tmp_path / "t")])


def test_a_table_that_was_moved_is_read(tmp_path: Path) -> None:
    make(tmp_path / "t")
    shutil.move(tmp_path / "t", tmp_path / "a table%20#?=1")
    assert [row["id"] for row in rows_of(tmp_path / "a table%20#?=1")] == [2, 3]


def test_the_newest_metadata_is_that_of_the_hint_or_of_the_highest_number(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    folder = tmp_path / "t" / "metadata"
    for _ in range(8):  # v10 is behind v9
        with table.transaction() as change:
            change.set_properties(x="y")
    table.delete("id = 3")
    assert [row["id"] for row in rows_of(tmp_path / "t")] == [2]
    (folder / "version-hint.text").write_text("2\n")
    assert [row["id"] for row in rows_of(tmp_path / "t")] == [1, 2]
    (folder / "version-hint.text").write_text("99")
    with pytest.raises(LoadRefusedError, match="says '99', and no file of metadata has this version"):
        find_sources([str(tmp_path / "t")])
    (folder / "version-hint.text").unlink()
    (folder / "00013-other.metadata.json").write_text((folder / "v3.metadata.json").read_text())
    last = max(folder.glob("v*.metadata.json"), key=lambda path: int(path.name[1:].partition(".")[0]))
    last.rename(folder / "00013-one.metadata.json")
    with pytest.raises(LoadRefusedError, match="which of its files of metadata is the newest only its catalog knows"):
        find_sources([str(tmp_path / "t")])
    (folder / "version-hint.text").write_text("00013-one.metadata.json")
    assert [row["id"] for row in rows_of(tmp_path / "t")] == [2]


@pytest.mark.parametrize("link", ["data", "metadata"])
def test_files_outside_of_the_folder_are_refused(tmp_path: Path, link: str) -> None:
    make(tmp_path / "t")
    shutil.move(tmp_path / "t" / link, tmp_path / "elsewhere")
    (tmp_path / "t" / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LoadRefusedError, match="with files outside of its folder"):
        find_sources([str(tmp_path / "t")])


def test_a_copy_does_not_read_the_files_of_the_table_that_it_is_a_copy_of(tmp_path: Path) -> None:
    make(tmp_path / "t")
    shutil.copytree(tmp_path / "t" / "metadata", tmp_path / "copy" / "metadata")
    assert rows_of(tmp_path / "t")
    with pytest.raises(LoadRefusedError, match="which is not there"):
        find_sources([str(tmp_path / "copy")])


def test_metadata_is_read_up_to_a_limit_and_never_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "t")
    folder = tmp_path / "t" / "metadata"
    os.mkfifo(folder / "version-hint.text.pipe")
    (folder / "version-hint.text.pipe").rename(folder / "version-hint.text")
    with pytest.raises(LoadRefusedError, match=r"version-hint.text is no file of metadata: it is no regular file"):
        find_sources([str(tmp_path / "t")])
    (folder / "version-hint.text").unlink()
    newest = max(folder.glob("v*.json"), key=lambda path: path.name)
    newest.rename(folder / f"{newest.name}.gz")
    (folder / f"{newest.name}.gz").write_bytes(gzip.compress(b" " * 2_000_000))
    monkeypatch.setattr(iceberg_tables, "MOST_METADATA_BYTES", 1_000_000)
    with pytest.raises(LoadRefusedError, match="has more than 1,000,000 bytes when it is decompressed"):
        find_sources([str(tmp_path / "t")])


def test_what_is_no_whole_table_is_refused(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    with pytest.raises(LoadRefusedError, match=r"without snapshot 9; its last: \d+"):
        find_sources([str(tmp_path / "t")], table_version=9)
    file = Path(next(iter(table.scan().plan_files())).file.file_path)
    kept = file.read_bytes()
    pq.write_table(pa.table({"id": [1, 2, 3]}), file)
    with pytest.raises(LoadRefusedError, match="it has 3 rows, and the table knows 1"):
        find_sources([str(tmp_path / "t")])
    file.unlink()
    with pytest.raises(LoadRefusedError, match="which is not there"):
        find_sources([str(tmp_path / "t")])
    file.write_bytes(kept)
    newest = max((tmp_path / "t" / "metadata").glob("v*.json"), key=lambda path: path.name)
    newest.write_text("{")
    with pytest.raises(LoadRefusedError, match=r"that pyiceberg .* cannot read"):
        find_sources([str(tmp_path / "t")])


def test_files_with_deleted_rows_are_refused(tmp_path: Path) -> None:
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.table import FileScanTask

    from kafkaprod.loader.finding.iceberg_tables import _check_task

    table = make(tmp_path / "t")
    (task, *_) = table.scan().plan_files()
    for kind, words in ((FileFormat.PARQUET, "position delete files"), (FileFormat.PUFFIN, "deletion vectors")):
        deletes = DataFile.from_args(content=DataFileContent.POSITION_DELETES, file_format=kind, file_path="x")
        with pytest.raises(LoadRefusedError, match=rf"files with deleted rows \({words}\)"):
            _check_task(str(tmp_path / "t"), FileScanTask(task.file, delete_files={deletes}))


def test_a_table_below_the_folder_that_is_named_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "t")
    with pytest.raises(LoadRefusedError, match="name this folder itself"):
        find_sources([str(tmp_path)])


def test_what_comes_meanwhile_is_of_another_snapshot(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    listing = Listing.of([str(tmp_path / "t")])
    table.append(pa.Table.from_pylist(ROWS, COLUMNS))
    listing.check()


def test_a_part_of_a_table_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "t")
    for part in (tmp_path / "t" / "data", tmp_path / "t" / "data" / "*.parquet"):
        with pytest.raises(LoadRefusedError, match="is an Iceberg table: name this folder itself"):
            find_sources([str(part)])
