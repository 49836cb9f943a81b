"""A cast gives the value that was meant, or a bad row."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkaprod.loader.formats.arrow_casts import type_named
from kafkaprod.loader.formats.readers import ReadOptions
from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.tables.row_plan import RowPlan, Template
from tests.support.loader.reading import values_of


def arrow(path: Path, column: Any) -> Path:
    table = pa.table({"x": column})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return path


def cast_to(kind: str) -> ReadOptions:
    return ReadOptions(RowPlan(""), column_types={"x": kind})


@pytest.mark.parametrize(
    ("column", "kind", "texts"),
    [
        (pa.array([1, None], pa.duration("s")), "int", ["1", "null"]),
        (pa.array([Decimal(10) ** 50], pa.decimal256(60)), "text", [f'"1{"0" * 50}"']),
        (pa.array([Decimal(10) ** 50], pa.decimal256(60)), "float", ["1.0E50"]),
        (pa.array([1.0, 1e20]), "text", ['"1.0"', '"1.0E20"']),
        (pa.array([0], pa.timestamp("us")), "text", ['"1970-01-01T00:00:00.000"']),
        (pa.array([b"\x01" * 16], pa.uuid()), "text", ['"01010101-0101-0101-0101-010101010101"']),
        (pa.array([True, False]), "int", ["1", "0"]),
        (pa.array(["1", "2"]).dictionary_encode(), "int", ["1", "2"]),
        (pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array(["7"])), "int", ["7", "7"]),
        (pa.array(["2024-02-29"]), "date", ['"2024-02-29"']),
        (pa.array([[1, 2], None]), "text", ['"[1,2]"', "null"]),
    ],
)
def test_a_column_is_cast(tmp_path: Path, column: Any, kind: str, texts: list[str]) -> None:
    assert values_of(arrow(tmp_path / "a.arrow", column), cast_to(kind)) == [
        f'{{"x":{text}}}'.encode() for text in texts
    ]


@pytest.mark.parametrize(
    ("column", "kind"),
    [(pa.array(["1", "soon", "3"]), "int"), (pa.array([1, 1 << 40, 3]), "int32"), (pa.array([1.0, 1.5, 3.0]), "int")],
)
def test_a_value_that_does_not_fit_is_a_bad_row(tmp_path: Path, column: Any, kind: str) -> None:
    first, bad, last = values_of(arrow(tmp_path / "a.arrow", column), cast_to(kind))
    assert (first, last) == (b'{"x":1}', b'{"x":3}')
    assert bad is not None
    assert bad.startswith(f"bad: x cannot be cast to {kind}: ".encode())


def test_what_can_never_be_cast_is_refused_by_the_schema(tmp_path: Path) -> None:
    path = arrow(tmp_path / "a.arrow", pa.array([(1, 2, 3)], pa.month_day_nano_interval()))
    with pytest.raises(LoadRefusedError, match="column 'x' of type month_day_nano_interval cannot be cast to text"):
        values_of(path, cast_to("text"))
    with pytest.raises(LoadRefusedError, match="'frog' is no type"):
        values_of(path, cast_to("frog"))
    with pytest.raises(LoadRefusedError, match="has no column 'y'; it has: x"):
        values_of(path, ReadOptions(RowPlan(""), column_types={"y": "int"}))


def test_a_key_has_the_text_of_the_value_after_the_cast(tmp_path: Path) -> None:
    path = arrow(tmp_path / "a.arrow", pa.array([5], pa.duration("s")))
    options = ReadOptions(RowPlan("x", key=Template.of_column("x")), column_types={"x": "int"})
    assert values_of(path, options) == [b"5"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("decimal128(38,2)", pa.decimal128(38, 2)),
        ("decimal128(9, 0)", pa.decimal128(9, 0)),
        ("decimal256(60, 5)", pa.decimal256(60, 5)),
        ("timestamp[ms, tz=UTC]", pa.timestamp("ms", "UTC")),
        ("timestamp[ns, tz=+01:00]", pa.timestamp("ns", "+01:00")),
        ("fixed_size_binary[16]", pa.binary(16)),
        ("int", pa.int64()),
        ("duration[s]", pa.duration("s")),
    ],
)
def test_names_are_those_that_arrow_writes(name: str, kind: pa.DataType) -> None:
    assert type_named(name) == kind


@pytest.mark.parametrize("name", ["decimal128(39,2)", "decimal128(x)", "timestamp[h, tz=UTC]", "number", ""])
def test_other_names_are_refused_with_some_that_are_known(name: str) -> None:
    with pytest.raises(LoadRefusedError, match=r"is no type; try text, int, .*decimal128"):
        type_named(name)


def test_csv_has_decimals_and_instants(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1.5,2024-01-01T00:00:00Z\n1.555,2024-01-01T02:00:00+02:00\n")
    options = ReadOptions(RowPlan(""), column_types={"a": "decimal128(38,2)", "b": "timestamp[ms, tz=UTC]"})
    first, second = values_of(tmp_path / "a.csv", options)
    assert first == b'{"a":1.50,"b":"2024-01-01T00:00:00.000Z"}'
    assert second is not None
    assert second.startswith(b"bad: ")
