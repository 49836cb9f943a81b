"""A folder is read as a table, as pyarrow.dataset, Spark, duckdb and polars read it."""

from __future__ import annotations

import json
import os
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from kafkaprod.loader.finding.folders import unsent_columns
from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats.readers import ReadOptions, check_columns, read_rows
from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.tables.row_plan import RowPlan, Template


def rows_of(*names: str, options: ReadOptions | None = None) -> list[Any]:
    found: list[Any] = []
    for source in find_sources(names):
        for block in read_rows(source, options or ReadOptions(RowPlan(""))):
            assert block.value is not None
            found += [json.loads(block.value[i] or b"") for i in range(block.row_count)]
    return found


def put(path: Path, number: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pa.table({"x": [number]}), path)


def test_hidden_and_temporary_files_are_left_out_at_every_level(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet")
    for name in ("_temporary/0/task_1/b.parquet", ".ipynb_checkpoints/c.parquet", "sub/.git/d.parquet", "_e.parquet"):
        put(tmp_path / name, 2)
    (tmp_path / "_SUCCESS").touch()
    assert rows_of(str(tmp_path)) == pyarrow.dataset.dataset(tmp_path).to_table().to_pylist() == [{"x": 1}]
    (tmp_path / "_e.parquet").unlink()  # which the pattern names
    assert rows_of(f"{tmp_path}/**/*.parquet") == [{"x": 1}]


def test_columns_of_folder_names_are_those_that_pyarrow_finds(tmp_path: Path) -> None:
    put(tmp_path / "year=2023" / "region=eu%20west" / "a.parquet")
    put(tmp_path / "year=2024" / "region=__HIVE_DEFAULT_PARTITION__" / "a.parquet", 2)
    expected = [{"x": 1, "year": 2023, "region": "eu west"}, {"x": 2, "year": 2024, "region": None}]
    assert pyarrow.dataset.dataset(tmp_path, partitioning="hive").to_table().to_pylist() == expected
    assert rows_of(str(tmp_path)) == expected
    assert rows_of(f"{tmp_path}/*/*/*.parquet") == expected
    texts = find_sources([str(tmp_path)], column_types={"year": "text"})
    assert dict(texts[0].folder_columns)["year"] == "2023"


def test_two_folders_of_one_column_around_each_other_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "year=2023" / "year=2024" / "a.parquet")
    with pytest.raises(LoadRefusedError, match=r"a\.parquet is in two folders of column 'year'"):
        find_sources([str(tmp_path)])
    assert rows_of(str(tmp_path / "year=2023")) == [{"x": 1, "year": 2024}]


def test_a_column_of_folder_names_can_be_a_key(tmp_path: Path) -> None:
    for name, text in (("a.csv", "x\n1\n"), ("a.jsonl", '{"x":1}\n'), ("a.txt", "1\n")):
        directory = tmp_path / name / "region=eu"
        directory.mkdir(parents=True)
        (directory / name).write_text(text)
        (source,) = find_sources([str(tmp_path / name)])
        (block,) = read_rows(source, ReadOptions(RowPlan("", key=Template.of_column("region"))))
        assert block.key is not None
        assert block.key[0] == b"eu"


def test_columns_that_rows_sent_unchanged_lose_are_named(tmp_path: Path) -> None:
    for name, text in (("a.csv", "x\n1\n"), ("a.jsonl", '{"x":1}\n')):
        directory = tmp_path / name / "day=1" / "region=eu"
        directory.mkdir(parents=True)
        (directory / name).write_text(text)
    assert unsent_columns(find_sources([str(tmp_path / "a.csv")]), []) == []
    sources = find_sources([str(tmp_path / "a.jsonl")])
    assert unsent_columns(sources, []) == ["day", "region"]
    assert unsent_columns(sources, ["region"]) == ["day"]


def test_folders_of_different_columns_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet")
    put(tmp_path / "year=2024" / "a.parquet")
    with pytest.raises(LoadRefusedError, match="folders of different columns, none and year"):
        find_sources([str(tmp_path)])


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("sub/_delta_log/0.json", "a Delta table"),
        (".hoodie/hoodie.properties", "a Hudi table"),
        ("metadata/v1.metadata.json", "an Iceberg table"),
        ("_spark_metadata/0", "the output of a Spark stream"),
    ],
)
def test_a_table_with_a_log_is_named_and_refused(tmp_path: Path, log: str, kind: str) -> None:
    put(tmp_path / "data" / "a.parquet")
    (tmp_path / log).parent.mkdir(parents=True)
    (tmp_path / log).touch()
    with pytest.raises(LoadRefusedError, match=f"is {kind}"):
        find_sources([str(tmp_path)])


def test_a_delta_table_names_the_package_that_reads_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a.parquet")
    (tmp_path / "_delta_log").mkdir()
    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.setitem(sys.modules, "deltalake.exceptions", None)
    with pytest.raises(LoadRefusedError, match=r"pip install 'kafkaprod\[delta\]'"):
        find_sources([str(tmp_path)])


def test_hidden_members_of_archives_are_left_out_and_workbooks_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "mac.zip", "w") as archive:
        archive.writestr("data.csv", "x\n1\n")
        archive.writestr("__MACOSX/._data.csv", b"\0\5\26\7")
        archive.writestr(".DS_Store", b"\0")
    assert rows_of(str(tmp_path / "mac.zip")) == [{"x": "1"}]
    with zipfile.ZipFile(tmp_path / "book.xlsx", "w") as archive:
        archive.writestr("[Content_Types].xml", "")
    with pytest.raises(LoadRefusedError, match="a document of Excel or Word"):
        find_sources([str(tmp_path / "book.xlsx")])


@pytest.mark.parametrize("name", [b"k=\xe4", b"\xe4=1", b"k=%E4"])
def test_a_column_whose_name_or_value_is_no_text_is_refused(name: bytes, tmp_path: Path) -> None:
    folder = os.path.join(os.fsencode(tmp_path), name)
    os.mkdir(folder)
    Path(os.fsdecode(folder), "a.csv").write_text("a\n1\n")
    with pytest.raises(LoadRefusedError, match=r"has a name that is not UTF-8: rename it"):
        find_sources([str(tmp_path)])


def rows_below(folder: Path, name: str, **options: Any) -> list[bytes | None]:
    path = folder / name
    path.mkdir(parents=True)
    (path / "a.csv").write_text("x\n1\n")
    found: list[bytes | None] = []
    types = options.get("column_types", {})
    for source in find_sources([str(folder)], column_types=types):
        copy = pickle.loads(pickle.dumps(source))  # as a task of Spark has it
        check_columns(copy, ReadOptions(RowPlan(""), **options))
        for block in read_rows(copy, ReadOptions(RowPlan(""), **options)):
            assert block.value is not None
            found += [block.value[i] for i in range(block.row_count)]
    return found


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("y=2024", "float", "2024.0"),
        ("y=007", "int", "7"),
        ("y=007", "text", '"007"'),
        ("y=2024-02-29", "date", '"2024-02-29"'),
        ("y=2024-02-29", "timestamp", '"2024-02-29T00:00:00.000"'),
        ("y=1.5", "decimal128(38,2)", "1.50"),
        ("y=true", "bool", "true"),
        ("y=__HIVE_DEFAULT_PARTITION__", "int", "null"),
    ],
)
def test_a_column_of_folders_has_the_type_that_the_user_gave_it(
    tmp_path: Path, name: str, kind: str, text: str
) -> None:
    (row,) = rows_below(tmp_path, name, column_types={"y": kind})
    assert row is not None
    assert row.decode() == f'{{"x":"1","y":{text}}}'


def test_a_folder_whose_value_does_not_have_the_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadRefusedError, match=r"y cannot be cast to int: .*; its folder says y=abc"):
        rows_below(tmp_path, "y=abc", column_types={"y": "int"})


def test_a_pipe_in_a_folder_or_a_pattern_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n")
    os.mkfifo(tmp_path / "b.txt")
    for name in (str(tmp_path), str(tmp_path / "*.txt")):
        with pytest.raises(LoadRefusedError, match=r"b.txt is neither a file nor a folder"):
            find_sources([name])


def test_the_type_counts_for_keys_of_lines_too(tmp_path: Path) -> None:
    (tmp_path / "y=007").mkdir()
    (tmp_path / "y=007" / "a.txt").write_text("1\n")
    (source,) = find_sources([str(tmp_path)], column_types={"y": "int"})
    (block,) = read_rows(source, ReadOptions(RowPlan("", key=Template.of_column("y"))))
    assert block.key is not None
    assert block.key[0] == b"7"
