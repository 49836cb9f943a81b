"""A value that does not fit its Avro schema is an error with row and field: it is never cut, wrapped or rounded."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import math
import uuid
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kafkaprod._core.columns.arrow import ArrowBatch, ArrowStream
from kafkaprod.errors import SerializationError
from kafkaprod.tables.avro import AvroEncoder

D = decimal.Decimal
DATE = {"type": "int", "logicalType": "date"}
UUID = {"type": "string", "logicalType": "uuid"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
LOCAL_MILLIS = {"type": "long", "logicalType": "local-timestamp-millis"}
TIME_MILLIS = {"type": "int", "logicalType": "time-millis"}
TIME_MICROS = {"type": "long", "logicalType": "time-micros"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}


def schema_of(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def batch_of(array: pa.Array, name: str = "a") -> ArrowBatch:
    return next(iter(ArrowStream(pa.table({name: array}).combine_chunks())))


def encode(kind: Any, array: pa.Array) -> list[Any]:
    """Encode a column, and read it again."""
    schema = schema_of(a=kind)
    column = AvroEncoder(schema, None).encode(batch_of(array), [0], 0, len(array))
    rows = (io.BytesIO(value or b"") for value in column.rows(0, len(column)))
    return [fastavro.schemaless_reader(row, fastavro.parse_schema(schema), None)["a"] for row in rows]  # type: ignore


def variants(kind: Any) -> Iterator[Any]:
    """A type alone, in a union with null, and in one of three, which fastavro alone writes."""
    yield kind
    yield ["null", kind]
    yield ["null", kind, {"type": "map", "values": "null"}]


UNFIT: list[tuple[Any, pa.Array]] = [
    ("int", pa.array([2**31])),
    ("int", pa.array([-(2**31) - 1])),
    ("int", pa.array([2**40])),
    ("long", pa.array([2**63], pa.uint64())),
    ("long", pa.array([1.5])),
    ("long", pa.array([2.0])),
    ("int", pa.array([-1.9], pa.float32())),
    ("long", pa.array([D("1.5")])),
    ("long", pa.array([True])),
    ("float", pa.array([1e300])),
    ("float", pa.array([2**24 + 1])),
    ("double", pa.array([2**53 + 1])),
    ("double", pa.array([2**63 + 1025], pa.uint64())),
    ("double", pa.array([D(2**53 + 1)], pa.decimal128(20, 0))),
    ("double", pa.array([True])),
    ("boolean", pa.array([2], pa.int8())),
    ("boolean", pa.array([1], pa.int8())),
    ("string", pa.array([b"x"])),
    ("bytes", pa.array(["x"])),
    (ENUM, pa.array(["C"])),
    (FIXED, pa.array([b"abc"])),
    (MONEY, pa.array([D("123.45")])),
    (MONEY, pa.array([D("100")])),
    (MONEY, pa.array([D("0.123")])),
    (DATE, pa.array([datetime.datetime(2024, 1, 1, 5)])),
    (MILLIS, pa.array([1_500_001], pa.timestamp("us"))),
    (MILLIS, pa.array([1_500_001], pa.timestamp("us", "UTC"))),
    (MICROS, pa.array([1_500_001], pa.timestamp("ns", "UTC"))),
    (LOCAL_MILLIS, pa.array([1_500_001], pa.timestamp("us"))),
    (TIME_MILLIS, pa.array([1_500_001], pa.time64("us"))),
    (TIME_MICROS, pa.array([1_500_001], pa.time64("ns"))),
    ({"type": "array", "items": "int"}, pa.array([[1, 2**31]])),
    ({"type": "map", "values": "int"}, pa.array([[("k", 2**31)]], pa.map_(pa.string(), pa.int64()))),
]


@pytest.mark.parametrize(("kind", "array"), UNFIT, ids=lambda part: str(getattr(part, "type", part))[:40])
def test_value_that_does_not_fit_is_an_error_with_row_and_field(kind: Any, array: pa.Array) -> None:
    for variant in variants(kind):
        with pytest.raises(SerializationError, match=r"^row 0 does not fit the Avro schema: field 'a"):
            encode(variant, array)


FIT: list[tuple[Any, pa.Array, Any]] = [
    ("int", pa.array([2**31 - 1]), 2**31 - 1),
    ("int", pa.array([-(2**31)]), -(2**31)),
    ("long", pa.array([2**63 - 1], pa.uint64()), 2**63 - 1),
    ("long", pa.array([D("2.00")]), 2),
    ("float", pa.array([2**24]), 2.0**24),
    ("float", pa.array([0.1]), pytest.approx(0.1, rel=1e-7)),
    ("double", pa.array([2**53]), 2.0**53),
    ("double", pa.array([-(2**63)]), -(2.0**63)),
    ("double", pa.array([D("0.1")]), 0.1),
    ("double", pa.array([math.inf]), math.inf),
    ("float", pa.array([-math.inf]), -math.inf),
    (UUID, pa.array([uuid.UUID(int=7).bytes], pa.uuid()), uuid.UUID(int=7)),
    (UUID, pa.array([str(uuid.UUID(int=7))]), uuid.UUID(int=7)),
    (MONEY, pa.array([D("12.3")]), D("12.30")),
    (ENUM, pa.array(["B"]), "B"),
    (MILLIS, pa.array([1_500_000], pa.timestamp("us")), datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, datetime.UTC)),
    (MICROS, pa.array([1_500_000], pa.timestamp("ns")), datetime.datetime(1970, 1, 1, 0, 0, 0, 1500, datetime.UTC)),
    (TIME_MILLIS, pa.array([1_500_000], pa.time64("us")), datetime.time(0, 0, 1, 500_000)),
    (MILLIS, pa.array([1500], pa.timestamp("ms")), datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, datetime.UTC)),
]


@pytest.mark.parametrize(("kind", "array", "value"), FIT, ids=lambda part: str(getattr(part, "type", part))[:40])
def test_value_that_fits_is_read_as_it_was(
    monkeypatch: pytest.MonkeyPatch, kind: Any, array: pa.Array, value: Any
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    for variant in variants(kind):
        assert encode(variant, array) == [value]


def test_float_of_a_union_is_written_as_the_double_beside_it() -> None:
    for union in (["float", "double"], ["double", "float"], ["null", "float", "double", "string"]):
        assert encode(union, pa.array([0.1])) == [0.1]
    with pytest.raises(SerializationError, match="is not exact as float"):
        encode(["float", "long"], pa.array([2**53 + 1]))


@pytest.mark.parametrize(
    ("columns", "fields", "words"),
    [
        (["ID"], {"id": "long"}, "column 'ID' is no field of the schema, which has id"),
        (["id", "x"], {"id": "long"}, "column 'x' is no field of the schema, which has id"),
        (["id"], {"id": "long", "b": ["null", "long"]}, "there is no column 'b', and the schema has no default"),
    ],
)
def test_columns_and_fields_go_together_by_name(columns: list[str], fields: dict[str, Any], words: str) -> None:
    batch = next(iter(ArrowStream(pa.table({name: [1] for name in columns}))))
    with pytest.raises(SerializationError, match=f"^row 0 does not fit the Avro schema: {words}"):
        AvroEncoder(schema_of(**fields), None).encode(batch, list(range(len(columns))), 0, 1)


def test_field_of_a_struct_without_a_field_of_the_record_is_an_error_too() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "long"}]}
    with pytest.raises(SerializationError, match=r"column 'a\.y' is no field of the schema, which has x"):
        encode(inner, pa.array([{"x": 1, "y": 2}]))


def test_field_with_a_default_needs_no_column() -> None:
    schema = schema_of(id="long")
    schema["fields"].append({"name": "b", "type": ["null", "long"], "default": None})
    column = AvroEncoder(json.dumps(schema), None).encode(batch_of(pa.array([1]), "id"), [0], 0, 1)
    assert list(column.rows(0, 1)) == [b"\x02\x00"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_that_is_not_utf8_is_an_error(kind: pa.DataType) -> None:
    for data in (b"\xff", b"plain text and then \xc3", b"\xed\xa0\x80", b"12345678\x80"):
        array = pa.array([data], pa.binary()).view(pa.string())
        with pytest.raises(SerializationError, match=r"row 0 .* field 'a' holds text that is not UTF-8"):
            encode("string", array if kind == pa.string() else array.cast(kind))
    for text in ("", "ASCII of more than eight bytes", "\u20ac" * 5, "12345678\U0001f600"):
        assert encode("string", pa.array([text], kind)) == [text]


def test_time_beyond_the_year_9999_is_an_error_with_row_and_field() -> None:
    times = pa.array([0, 253_402_300_800_000_000], pa.timestamp("us"))
    with pytest.raises(SerializationError, match=r"row 1 .* field 'a' holds a time that Python cannot hold"):
        encode({"type": "long", "logicalType": "timestamp-millis"}, times)
