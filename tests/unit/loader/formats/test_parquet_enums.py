"""ENUM columns of Parquet are texts, wherever they are in a row."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats.readers import ReadOptions, check_columns
from kafkaprod.tables.row_plan import RowPlan
from tests.support.loader.reading import values_of

TEXT, ENUM = b"\x25\x00\x4c\x1c\x00\x00", b"\x25\x08\x4c\x4c\x00\x00"  # both types of an element of the schema


def enum_file(path: Path, column: Any) -> Path:
    """Write a file whose texts are ENUM."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"bytes": [b"a"], "x": column, "number": [1]}), sink, store_schema=False)
    assert TEXT in sink.getvalue()
    path.write_bytes(sink.getvalue().replace(TEXT, ENUM))
    return path


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (pa.array(["red"]), b'"red"'),
        (pa.array([None], pa.string()), b"null"),
        (pa.array([["red", "blue"]]), b'["red","blue"]'),
        (pa.array([{"a": b"r", "b": [{"c": "red"}]}]), b'{"a":"cg==","b":[{"c":"red"}]}'),
        (pa.array([[("red", b"r")]], pa.map_(pa.string(), pa.binary())), b'{"red":"cg=="}'),
    ],
    ids=["text", "null", "list", "struct", "map"],
)
def test_an_enum_is_a_text(tmp_path: Path, column: Any, value: bytes) -> None:
    path = enum_file(tmp_path / "a.parquet", column)
    assert values_of(path) == [b'{"bytes":"YQ==","x":' + value + b',"number":1}']
    assert values_of(path, ReadOptions(RowPlan(""), columns=["x"])) == [b'{"x":' + value + b"}"]


def test_a_load_of_an_earlier_version_that_wrote_its_bytes_is_not_continued(tmp_path: Path) -> None:
    (source,) = find_sources([str(enum_file(tmp_path / "a.parquet", pa.array(["red"])))])
    assert check_columns(source, ReadOptions(RowPlan(""))) == {"ENUM"}
