"""Types that the engine does not know are rewritten, or refused by the schema before a row is read."""

from __future__ import annotations

import base64
import datetime
import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats.readers import ReadOptions, check_columns, read_rows
from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.tables.row_plan import RowPlan, Template

ID = "189f9591-975a-4c82-8d8b-1f5fdd00b32c"


def records(path: Path, options: ReadOptions) -> list[tuple[bytes | None, bytes | None]]:
    found: list[tuple[bytes | None, bytes | None]] = []
    for source in find_sources([str(path)]):
        for block in read_rows(source, options):
            assert block.value is not None
            keys = [None] * block.row_count if block.key is None else [block.key[i] for i in range(block.row_count)]
            found += [(keys[i], block.value[i]) for i in range(block.row_count)]
    return found


def arrow_file(path: Path, table: pa.Table) -> Path:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return path


def keyed(name: str) -> ReadOptions:
    return ReadOptions(RowPlan("", key=Template.of_column(name)))


def test_int96_has_the_dates_of_all_years(tmp_path: Path) -> None:
    dates = [datetime.datetime(9999, 12, 31), datetime.datetime(1000, 1, 1), datetime.datetime(2024, 1, 1)]
    table = pa.table({"until": pa.array(dates, pa.timestamp("us"))})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
    assert [value for _, value in records(tmp_path / "x.parquet", ReadOptions(RowPlan("")))] == [
        b'{"until":"9999-12-31T00:00:00.000"}',
        b'{"until":"1000-01-01T00:00:00.000"}',
        b'{"until":"2024-01-01T00:00:00.000"}',
    ]
    (source,) = find_sources([str(tmp_path / "x.parquet")])
    assert check_columns(source, ReadOptions(RowPlan(""))) == {"INT96"}


UNION = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([1], pa.duration("s")), "duration[s]"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "month_day_nano_interval"),
        (UNION, "sparse_union"),
        (pa.array([[1]], pa.list_(pa.duration("s"))), "duration[s]"),
        (pa.array([1], pa.decimal256(60)), "decimal256(60, 0)"),
    ],
)
def test_a_type_without_a_form_is_refused_by_the_schema_and_can_be_left_out(
    tmp_path: Path, column: pa.Array, kind: str
) -> None:
    path = arrow_file(tmp_path / "x.arrow", pa.table({"bad": column, "a": [1]}))
    (source,) = find_sources([str(path)])
    with pytest.raises(LoadRefusedError) as refused:
        check_columns(source, ReadOptions(RowPlan("")))
    is_castable = pa.types.is_duration(column.type) or pa.types.is_decimal256(column.type)
    for part in (str(path), "'bad", kind, "--columns a", "--column-type bad=" if is_castable else "cast it first"):
        assert part in str(refused.value)
    assert records(path, ReadOptions(RowPlan(""), columns=["a"])) == [(None, b'{"a":1}')]


# Streams without rows whose column has the type, which pyarrow cannot write.
MONTHS = (
    b"/////4AAAAAIAAAAAAAAAJz///8EAAEABAAAALT///8UAAAADAAAAAQAAAAAAAAAAAAAAAEAAAAEAAAA4P///xAAAAABCwAABAAA"
    b"APT///8DAAAAYmFkAAQABAAMABAABAAIAAkADAAMABAAAAAEAAgADAAKAAwABAAGAAgAAAAAAAAAAAAAAP////8AAAAA"
)
DAYS = (
    b"/////4AAAAAIAAAAAAAAAJL///8EAAEABAAAAKr///8YAAAAEAAAAAQAAAAAAAAAAAAAAAAAAAABAAAABAAAANr///8UAAAAAQsA"
    b"AAQAAADw////AQAAAAMAAABiYWQABgAGAAQADAAQAAQACAAJAAwADAAQAAAABAAIAAwACgAMAAQABgAIAP////8AAAAA"
)


@pytest.mark.parametrize(("data", "kind"), [(MONTHS, "month_interval"), (DAYS, "day_time_interval")])
def test_intervals_that_pyarrow_has_no_arrays_of_are_refused(tmp_path: Path, data: bytes, kind: str) -> None:
    (tmp_path / "a.arrows").write_bytes(base64.b64decode(data))
    (source,) = find_sources([str(tmp_path / "a.arrows")])
    with pytest.raises(LoadRefusedError, match=f"column 'bad' has type {kind}, which has no form in JSON"):
        check_columns(source, ReadOptions(RowPlan("")))
    with pytest.raises(LoadRefusedError, match=f"column 'bad' of type {kind} cannot be cast to text"):
        check_columns(source, ReadOptions(RowPlan(""), column_types={"bad": "text"}))


def test_other_codings_of_known_types_have_their_values(tmp_path: Path) -> None:
    ends = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", None]))
    table = pa.table(
        {
            "r": ends,
            "d": pa.array([None, Decimal("1.50"), Decimal("2.25")], pa.decimal256(20, 2)),
            "u": pa.array([uuid.UUID(ID).bytes, None, uuid.UUID(ID).bytes], pa.uuid()),
            "l": pa.ListArray.from_arrays(
                pa.array([0, None, 1, 1], pa.int32()), pa.array([uuid.UUID(ID).bytes], pa.uuid())
            ),
        }
    )
    path = arrow_file(tmp_path / "x.arrow", table)
    assert records(path, keyed("u")) == [
        (ID.encode(), f'{{"r":"x","d":null,"u":"{ID}","l":["{ID}"]}}'.encode()),
        (None, b'{"r":"x","d":1.50,"u":null,"l":null}'),
        (ID.encode(), f'{{"r":null,"d":2.25,"u":"{ID}","l":[]}}'.encode()),
    ]


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        (pa.array([1.0, 1e20, float("nan"), None]), [b"1.0", b"1.0E20", b"NaN", None]),
        (pa.array([0, None], pa.timestamp("us")), [b"1970-01-01T00:00:00.000", None]),
        (pa.array([True, None]), [b"true", None]),
        (pa.array([[1, 2], None]), [b"[1,2]", None]),
    ],
)
def test_the_text_of_a_key_is_that_of_the_value(tmp_path: Path, column: pa.Array, keys: list[bytes | None]) -> None:
    path = arrow_file(tmp_path / "x.arrow", pa.table({"é": column}))
    assert [key for key, _ in records(path, keyed("é"))] == keys


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "b"])
    path = arrow_file(tmp_path / "x.arrow", table)
    with pytest.raises(LoadRefusedError, match=r"x\.arrow has two columns 'a'"):
        records(path, ReadOptions(RowPlan("")))
    assert records(path, ReadOptions(RowPlan(""), columns=["b"])) == [(None, b'{"b":3}')]


def test_types_that_are_nested_deeply_are_looked_at_once(tmp_path: Path) -> None:
    array = pa.array([1])
    for _ in range(45):
        array = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), array)
    path = arrow_file(tmp_path / "a.arrow", pa.table({"a": array}))
    (source,) = find_sources([str(path)])
    assert check_columns(source, ReadOptions(RowPlan(""))) == set()
