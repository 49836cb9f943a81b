"""Rows written from columns have the bytes that fastavro writes for the same rows, for random schemas and values."""

from __future__ import annotations

import datetime
import io
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaprod._core.columns.arrow import ArrowBatch, ArrowStream
from kafkaprod._core.columns.columns import Column
from kafkaprod.errors import SerializationError
from kafkaprod.tables.avro import AvroEncoder

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1), timezones=st.just(datetime.UTC))
FLOATS = st.floats(width=32, allow_nan=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)

# An Avro type, the Arrow type of its column, and values.
LEAVES: list[tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = [
    ("boolean", pa.bool_(), st.booleans()),
    ("int", pa.int32(), INT32),
    ("int", pa.int8(), st.integers(-128, 127)),
    ("long", pa.int64(), INT64),
    ("long", pa.uint32(), st.integers(0, 2**32 - 1)),
    ("long", pa.uint64(), st.integers(0, 2**63 - 1)),
    ("float", pa.float32(), FLOATS),
    ("double", pa.float64(), st.floats(allow_nan=False)),
    ("double", pa.float32(), FLOATS),
    ("double", pa.int32(), INT32),
    ("bytes", pa.binary(), st.binary(max_size=20)),
    ("bytes", pa.large_binary(), st.binary(max_size=20)),
    ("string", pa.string(), TEXT),
    ("string", pa.large_string(), TEXT),
    ("string", pa.string_view(), TEXT),
    ("string", pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "bc", ""])),
    ({"type": "fixed", "name": "F", "size": 3}, pa.binary(3), st.binary(min_size=3, max_size=3)),
    ({"type": "int", "logicalType": "date"}, pa.date32(), st.dates()),
    ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC"), TIMES),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        pa.timestamp("ms", "UTC"),
        TIMES.map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000)),
    ),
]


@st.composite
def typed(draw: st.DrawFn, names: list[int], depth: int = 0) -> tuple[Any, pa.DataType, st.SearchStrategy[Any]]:
    """A type and its values."""
    choice = draw(st.integers(0, 9))
    avro: Any
    if choice == 0 and depth < 2:
        inner, arrow, values = draw(typed(names, depth + 1))
        avro, arrow, values = {"type": "array", "items": inner}, pa.list_(arrow), st.lists(values, max_size=3)
    elif choice == 1 and depth < 2:
        parts = draw(st.lists(typed(names, depth + 1), min_size=1, max_size=3))
        names.append(0)
        fields = [{"name": f"c{i}", "type": part[0]} for i, part in enumerate(parts)]
        avro = {"type": "record", "name": f"R{len(names)}", "fields": fields}
        arrow = pa.struct([(f"c{i}", part[1]) for i, part in enumerate(parts)])
        values = st.fixed_dictionaries({f"c{i}": part[2] for i, part in enumerate(parts)})
    else:
        avro, arrow, values = draw(st.sampled_from(LEAVES))
        if isinstance(avro, dict) and avro["type"] == "fixed":
            names.append(0)
            avro = {**avro, "name": f"F{len(names)}"}
    union = draw(st.sampled_from([None, None, 0, 1]))
    if union is not None:
        avro = ["null", avro] if union == 0 else [avro, "null"]
        values = st.none() | values
    return avro, arrow, values


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, Any], pa.Table]:
    width, count = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    fields, arrays = [], {}
    used: list[int] = []
    for i in range(width):
        avro, arrow, values = draw(typed(used))
        fields.append({"name": f"f{i}", "type": avro})
        rows = [draw(values) for _ in range(count)]
        arrays[f"f{i}"] = pa.array(rows, arrow)
    return {"type": "record", "name": "Row", "fields": fields}, pa.table(arrays)


def rows_of(column: Column) -> list[bytes | None]:
    return [column[i] for i in range(len(column))]


def batch_of(table: Any) -> ArrowBatch:
    return next(iter(ArrowStream(table)))


def by_fastavro(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


@settings(max_examples=60, deadline=None)
@given(tables())
def test_bytes_equal_fastavros(case: tuple[dict[str, Any], pa.Table]) -> None:
    schema, table = case
    table = table.combine_chunks()
    encoder = AvroEncoder(schema, None)
    indexes = list(range(table.num_columns))
    batch = batch_of(table)
    column = encoder.encode_compiled(batch, indexes, 0, table.num_rows)
    assert column is not None
    assert rows_of(column) == [by_fastavro(schema, row) for row in batch.to_pylist(indexes, 0, table.num_rows)]


def encoder_of(**fields: Any) -> AvroEncoder:
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return AvroEncoder({"type": "record", "name": "Row", "fields": named}, 7)


def compiled(encoder: AvroEncoder, **columns: Any) -> list[bytes | None] | None:
    table = pa.table(columns)
    column = encoder.encode_compiled(batch_of(table), list(range(table.num_columns)), 0, table.num_rows)
    return None if column is None else rows_of(column)


def test_the_wire_header_stands_before_each_row() -> None:
    assert compiled(encoder_of(a="long"), a=[1, -1]) == [b"\0\0\0\0\7\2", b"\0\0\0\0\7\1"]


def test_a_schema_takes_its_columns_by_name() -> None:
    assert compiled(encoder_of(b="long", a="string"), a=["x"], b=[3]) == [b"\0\0\0\0\7\6\2x"]


def test_columns_that_are_no_fields_are_left_to_the_check_of_the_schema() -> None:
    assert compiled(encoder_of(b="long", a="string"), a=["x"], c=[5], b=[3]) is None


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("int", [2**31]),
        ("int", [-(2**31) - 1]),
        ("long", [None]),
        ("string", ["a", None]),
        ("float", [1e300]),
        ("float", [2**24 + 1]),
        ("double", [2**53 + 1]),
        ("string", pa.array([b"\xff"], pa.binary()).view(pa.string())),
        ("long", pa.array([2**63], pa.uint64())),
        ({"type": "fixed", "name": "F", "size": 2}, [b"abc"]),
        ({"type": "array", "items": "int"}, [[None]]),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.array([2**60], pa.timestamp("s", "UTC"))),
    ],
)
def test_a_row_that_does_not_fit_is_left_to_the_check_of_the_schema(kind: Any, column: Any) -> None:
    assert compiled(encoder_of(a=kind), a=column) is None


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ({"type": "enum", "name": "E", "symbols": ["a"]}, ["a"]),
        ({"type": "map", "values": "int"}, pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))),
        (["null", "int", "string"], [1]),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.array([1], pa.timestamp("us", "UTC"))),
        ("string", [b"x"]),
        ("int", ["x"]),
        ("boolean", [1]),
    ],
)
def test_what_is_not_covered_is_left_to_fastavro(kind: Any, column: Any) -> None:
    assert compiled(encoder_of(a=kind), a=column) is None


def test_a_default_is_written_for_a_column_that_is_not_there() -> None:
    schema = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 5}],
    }
    batch = batch_of(pa.table({"a": [1]}))
    assert rows_of(AvroEncoder(schema, None).encode(batch, [0], 0, 1)) == [b"\x02\x0a"]


def test_the_row_that_does_not_fit_is_named() -> None:
    batch = batch_of(pa.table({"a": pa.array([1, None], pa.int64())}))
    with pytest.raises(SerializationError, match="row 1 does not fit the Avro schema"):
        encoder_of(a="long").encode(batch, [0], 0, 2)


def test_slices_and_repeated_calls_write_their_own_rows() -> None:
    table = pa.table({"a": pa.array(range(100), pa.int32()), "b": [str(i) for i in range(100)]}).slice(10, 50)
    batch, encoder = batch_of(table), encoder_of(a="int", b="string")
    whole = rows_of(encoder.encode(batch, [0, 1], 0, 50))
    starts = range(0, 50, 7)
    pieces = [row for i in starts for row in rows_of(encoder.encode(batch, [0, 1], i, min(i + 7, 50)))]
    assert whole == pieces
    assert len(set(whole)) == 50
