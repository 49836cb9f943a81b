"""ORC files are read as Parquet is, and parts of joined files are not taken for a whole one."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from kafkaprod.loader.formats import arrow_files
from kafkaprod.loader.formats.readers import ReadOptions
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.tables.row_plan import RowPlan
from tests.support.loader.reading import values_of


def orc(path: Path, table: pa.Table) -> Path:
    pyarrow.orc.write_table(table, path)
    return path


def test_orc_has_the_rows_of_parquet(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([1, None], pa.int8()),
            "s": ["é", None],
            "t": pa.array([datetime.datetime(2024, 2, 29, 1, 2, 3, 456_789), None], pa.timestamp("us")),
            "d": pa.array([datetime.date(2024, 2, 29), None]),
            "l": [[{"q": 1}], None],
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert values_of(orc(tmp_path / "a.orc", table)) == values_of(tmp_path / "a.parquet")


@pytest.mark.parametrize("kind", ["orc", "parquet"])
def test_a_dot_in_a_name_is_no_way_into_a_struct(tmp_path: Path, kind: str) -> None:
    table = pa.table({"a": [{"b": 1, "c": 2}], "a.b": [3]})
    path = tmp_path / f"a.{kind}"
    orc(path, table) if kind == "orc" else pyarrow.parquet.write_table(table, path)
    assert values_of(path, ReadOptions(RowPlan(""), columns=["a.b"])) == [b'{"a.b":3}']


def test_a_date_that_pyarrow_cannot_read_is_no_other_date(tmp_path: Path) -> None:
    dates = pa.array([datetime.datetime(9999, 12, 31)], pa.timestamp("us"))
    path = orc(tmp_path / "a.orc", pa.table({"until": dates, "a": [1]}))
    with pytest.raises(LoadError, match=r"has what pyarrow .* cannot read: .*out of range.* --columns"):
        values_of(path)
    assert values_of(path, ReadOptions(RowPlan(""), columns=["a"])) == [b'{"a":1}']


def test_joined_orc_files_are_refused(tmp_path: Path) -> None:
    first = orc(tmp_path / "a.orc", pa.table({"a": [1]})).read_bytes()
    second = orc(tmp_path / "b.orc", pa.table({"a": [2, 3]})).read_bytes()
    (tmp_path / "c.orc").write_bytes(first + second)
    with pytest.raises(LoadError, match="several ORC files were joined"):
        values_of(tmp_path / "c.orc")


def test_decimals_that_may_have_lost_digits_are_refused(tmp_path: Path) -> None:
    kinds = {"d": pa.decimal128(38, 6), "in": pa.list_(pa.decimal128(38, 6)), "e": pa.decimal128(10, 2)}
    path = orc(tmp_path / "a.orc", pa.table({name: pa.array([None], kind) for name, kind in kinds.items()}))
    assert len(values_of(path)) == 1
    content = bytearray(path.read_bytes())
    at = content.rindex(b"\x30")  # the version of the writer, in the last bytes
    content[at + 1] = 0  # the first one
    path.write_bytes(content)
    assert pyarrow.orc.ORCFile(path).writer_version == "ORIGINAL"
    for column in ("d", "in"):
        options = ReadOptions(RowPlan(""), columns=[column, "e"])
        with pytest.raises(LoadRefusedError, match=f"column '{column}' may have decimals of Hive 0.11"):
            values_of(path, options)
    assert values_of(path, ReadOptions(RowPlan(""), columns=["e"])) == [b'{"e":null}']


def test_a_column_of_which_only_the_storage_is_shown_is_refused_by_name_unless_it_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pa.table({"a": [1], "v": ["x"]}), path)
    monkeypatch.setattr(arrow_files, "check_parquet_footer", lambda stream, name: {"v": "VARIANT"})
    with pytest.raises(LoadRefusedError, match=r"column 'v' has Parquet's type VARIANT, .* --columns"):
        values_of(path)
    assert values_of(path, ReadOptions(RowPlan(""), columns=["a"])) == [b'{"a":1}']
