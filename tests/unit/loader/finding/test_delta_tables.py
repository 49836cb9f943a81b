"""Delta tables are read as the files of one version of their log."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.finding.paths import Listing
from kafkaprod.loader.formats.readers import ReadOptions, read_rows
from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.tables.row_plan import RowPlan

ROWS = [
    {"id": 1, "city": "a b", "day": date(2024, 1, 1), "is_new": True},
    {"id": 2, "city": "ü=1/2%", "day": None, "is_new": False},
    {"id": 3, "city": "007", "day": date(2024, 1, 2), "is_new": None},
]


def make(directory: Path) -> str:
    """A table of three rows, each in a file of its own, then with two versions more: a column, and a deleted row."""
    name = str(directory / "orders")
    write_deltalake(name, pa.Table.from_pylist(ROWS), partition_by=["city", "day", "is_new"])
    more = pa.table({"id": [4], "city": ["a b"], "day": [date(2024, 1, 1)], "is_new": [True], "price": [1.5]})
    write_deltalake(name, more, mode="append", schema_mode="merge")
    DeltaTable(name).delete("id = 3")
    return name


def rows_of(name: str, table_version: int | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for source in find_sources([name], table_version=table_version):
        for block in read_rows(source, ReadOptions(RowPlan(""))):
            assert block.value is not None
            found += [json.loads(block.value[i] or b"") for i in range(block.row_count)]
    return found


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, date) else value for name, value in row.items()}


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["id"]))


def test_rows_are_those_of_the_newest_version_or_of_the_one_named(tmp_path: Path) -> None:
    name = make(tmp_path)
    for version in (None, 0, 1):
        expected = DeltaTable(name, version=version).to_pyarrow_table().to_pylist()
        sources = find_sources([name], table_version=version)
        assert {source.table_version for source in sources} == {2 if version is None else version}
        assert by_id(rows_of(name, table_version=version)) == by_id([as_json(row) for row in expected])


def test_values_of_folders_have_the_types_of_the_table(tmp_path: Path) -> None:
    """What a row becomes does not depend on which columns the table is partitioned by."""
    at = datetime(2024, 1, 1, 1, 2, 3, 456_789)
    columns = {
        "number": pa.array([5], pa.int32()),
        "share": pa.array([1.5]),
        "single": pa.array([0.1], pa.float32()),
        "price": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
        "instant": pa.array([at.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "time": pa.array([at], pa.timestamp("us")),
        "flag": pa.array([False]),
        "day": pa.array([date(1960, 1, 1)]),
        "text": pa.array(["a/b c%25=ü"]),
    }
    for name, column in columns.items():
        table = pa.table({"id": [1], "p": column})
        write_deltalake(str(tmp_path / name), table, partition_by=["p"])
        write_deltalake(str(tmp_path / f"{name} inside"), table)
        assert rows_of(str(tmp_path / name)) == rows_of(str(tmp_path / f"{name} inside"))


def test_times_that_spark_writes_as_int96_are_instants(tmp_path: Path) -> None:
    name = str(tmp_path / "orders")
    at = pa.array([datetime(1650, 1, 2, 3, 4, 5, 678_000, UTC)], pa.timestamp("us", "UTC"))
    nested = pa.array([{"x": 1, "at": at[0].as_py()}], pa.struct({"x": pa.int64(), "at": at.type}))
    lists = pa.array([[at[0].as_py()]], pa.list_(at.type))
    maps = pa.array([[("k", at[0].as_py())]], pa.map_(pa.string(), at.type))
    table = pa.table({"id": [1], "at": at, "nested": nested, "lists": lists, "maps": maps})
    write_deltalake(name, table)
    expected = rows_of(name)
    (file,) = Path(name).glob("*.parquet")
    pyarrow.parquet.write_table(table, file, use_deprecated_int96_timestamps=True)
    assert str(pyarrow.parquet.ParquetFile(file).schema).count("int96") == 4
    assert rows_of(name) == expected
    assert expected[0]["at"] == "1650-01-02T03:04:05.678Z"
    (chosen,) = find_sources([name])
    (block,) = read_rows(chosen, ReadOptions(RowPlan(""), columns=["lists"]))
    assert block.value is not None
    assert block.value[0] == b'{"lists":["1650-01-02T03:04:05.678Z"]}'


def test_a_binary_column_of_folders_is_refused(tmp_path: Path) -> None:
    name = str(tmp_path / "orders")
    write_deltalake(name, pa.table({"id": [1], "p": [b"\0"]}), partition_by=["p"])
    with pytest.raises(LoadRefusedError, match="a binary partition column, 'p'"):
        find_sources([name])


def test_what_comes_meanwhile_is_of_another_version(tmp_path: Path) -> None:
    name = make(tmp_path)
    listing = Listing.of([name])
    write_deltalake(name, pa.Table.from_pylist(ROWS[:1]), mode="append", schema_mode="merge")
    listing.check()


@pytest.mark.parametrize("mode", ["id", "name"])
def test_columns_with_other_names_in_the_files_are_refused(tmp_path: Path, mode: str) -> None:
    name = str(tmp_path / "orders")
    write_deltalake(name, pa.table({"id": [1]}))
    change_metadata(name, {"delta.columnMapping.mode": mode})
    with pytest.raises(LoadRefusedError, match=rf"other names in its files \(delta\.columnMapping\.mode={mode}\)"):
        find_sources([name])


def change_metadata(name: str, configuration: dict[str, str]) -> None:
    """Add a version that Spark could have written."""
    first = (Path(name) / "_delta_log" / f"{0:020}.json").read_text()
    metadata = next(json.loads(line) for line in first.splitlines() if "metaData" in line)
    schema = json.loads(metadata["metaData"]["schemaString"])
    for number, column in enumerate(schema["fields"]):
        column["metadata"] = {"delta.columnMapping.id": number + 1, "delta.columnMapping.physicalName": f"col-{number}"}
    metadata["metaData"] |= {"configuration": configuration, "schemaString": json.dumps(schema)}
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    write_version(name, 1, [protocol, metadata])


def write_version(name: str, version: int, actions: list[dict[str, Any]]) -> None:
    lines = "".join(json.dumps(action) + "\n" for action in actions)
    (Path(name) / "_delta_log" / f"{version:020}.json").write_text(lines)


def test_files_with_deleted_rows_are_refused(tmp_path: Path) -> None:
    name = str(tmp_path / "orders")
    write_deltalake(name, pa.table({"id": list(range(30))}))
    (file,) = Path(name).glob("*.parquet")
    features = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    # Rows 3, 4, 7, 11, 18 and 29: the example of Delta's specification.
    vector: dict[str, Any] = {
        "storageType": "i",
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    }
    vector |= {"sizeInBytes": 44, "cardinality": 6}
    add = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size, "modificationTime": 0}
    add["stats"] = json.dumps({"numRecords": 30})
    remove = {"path": file.name, "dataChange": True, "deletionTimestamp": 1, "partitionValues": {}}
    actions = [{"remove": remove}, {"add": add | {"dataChange": True, "deletionVector": vector}}]
    write_version(name, 1, [{"protocol": protocol}, *actions])
    with pytest.raises(LoadRefusedError, match="deleted rows"):
        find_sources([name])
    assert len(rows_of(name, table_version=0)) == 30


def test_a_version_that_is_not_there_and_a_damaged_log_are_refused(tmp_path: Path) -> None:
    name = make(tmp_path)
    with pytest.raises(LoadRefusedError, match="not a whole Delta table of version 9"):
        find_sources([name], table_version=9)
    for file in (Path(name) / "_delta_log").iterdir():
        file.write_text("{")
    with pytest.raises(LoadRefusedError, match="not a whole Delta table: "):
        find_sources([name])


def test_how_the_library_came_to_an_error_is_not_shown(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_bytes(b"[" * 100)
    with pytest.raises(LoadRefusedError, match=r"is not a whole Delta table: .*Json error") as refused:
        find_sources([str(tmp_path)])
    assert "<unknown>" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_version_whose_files_were_removed_is_refused(tmp_path: Path) -> None:
    name = make(tmp_path)
    table = DeltaTable(name)
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert len(rows_of(name)) == 3
    with pytest.raises(LoadRefusedError, match=r"version 0 has .*, which is not there\. VACUUM"):
        find_sources([name], table_version=0)


def test_files_outside_of_the_folder_are_refused(tmp_path: Path) -> None:
    name = str(tmp_path / "orders")
    write_deltalake(name, pa.table({"id": [1]}))
    add = {"path": "file:///other/part-0.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0}
    write_version(name, 1, [{"add": add | {"dataChange": True}}])
    with pytest.raises(LoadRefusedError, match=r"files outside of its folder, file:///other/part-0\.parquet first"):
        find_sources([name])


@pytest.mark.parametrize("path", ["../pay.parquet", "%2e%2e/pay.parquet", "..%2Fpay.parquet", "link/pay.parquet"])
def test_files_are_not_found_outside_by_dots_or_links(tmp_path: Path, path: str) -> None:
    pa.parquet.write_table(pa.table({"id": [7]}), tmp_path / "pay.parquet")
    name = str(tmp_path / "orders")
    write_deltalake(name, pa.table({"id": [1]}))
    (Path(name) / "link").symlink_to(tmp_path)
    add = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    write_version(name, 1, [{"add": add}])
    with pytest.raises(LoadRefusedError, match=r"files outside of its folder, .*pay\.parquet first"):
        find_sources([name])


def test_a_table_below_the_folder_that_is_named_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(LoadRefusedError, match="name this folder itself"):
        find_sources([str(tmp_path)])


def test_a_part_of_a_table_is_refused(tmp_path: Path) -> None:
    """Its files alone have rows that were deleted; a single file is what its name says."""
    name = str(tmp_path / "orders")
    write_deltalake(name, pa.table({"id": [1, 2], "day": [1, 2]}), partition_by=["day"])
    DeltaTable(name).delete("day = 2")
    for part in (f"{name}/day=1", f"{name}/*/*.parquet", f"{name}/day=2/*"):
        with pytest.raises(LoadRefusedError, match=rf"{name} is a Delta table: name this folder itself"):
            find_sources([part])
    (file,) = Path(name).glob("day=1/*")
    assert len(rows_of(str(file))) == 1


def test_what_only_a_file_has_is_no_column_of_the_table(tmp_path: Path) -> None:
    """Spark writes `_change_type` into the files of tables with a change feed."""
    name = str(tmp_path / "orders")
    write_deltalake(name, pa.table({"id": [1], "at": pa.array([datetime(2024, 1, 1, tzinfo=UTC)])}))
    expected = rows_of(name)
    (file,) = Path(name).glob("*.parquet")
    # And some writers' times do not say that they are instants.
    at = pa.array([datetime(2024, 1, 1)], pa.timestamp("us"))
    pyarrow.parquet.write_table(pa.table({"id": [1], "_change_type": ["x"], "at": at}), file)
    assert rows_of(name) == expected == [{"id": 1, "at": "2024-01-01T00:00:00.000Z"}]
