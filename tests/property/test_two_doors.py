"""A table is the same records by `send_table` and by `kafkaprod load`: value and key of each row, or a refusal."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaprod.errors import InvalidRecordError
from kafkaprod.loader.formats.arrow_forms import check_forms
from kafkaprod.loader.formats.arrow_rows import ArrowRows
from kafkaprod.loader.opening.errors import LoadRefusedError
from kafkaprod.tables import JsonRows, TablePlan, read_batches

UUIDS = st.uuids().map(lambda value: value.bytes)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
DAYS = st.dates(datetime.date(1600, 1, 1), datetime.date(2400, 1, 1))
TIMES = st.datetimes(datetime.datetime(1600, 1, 1), datetime.datetime(2400, 1, 1))
LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXT),
    (pa.large_string(), TEXT),
    (pa.string_view(), TEXT),
    (pa.binary(), st.binary(max_size=8)),
    (pa.binary(16), st.binary(min_size=16, max_size=16)),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "bc"])),
    (pa.decimal128(10, 3), st.decimals(-999999, 999999, places=3)),
    (pa.timestamp("us"), TIMES),
    (pa.timestamp("ms", "UTC"), TIMES.map(lambda time: time.replace(microsecond=0, tzinfo=datetime.UTC))),
    (pa.date32(), DAYS),
    (pa.time64("us"), st.times()),
    (pa.uuid(), UUIDS),
    (pa.bool8(), st.integers(-128, 127)),
]


def stored(kind: Any) -> pa.DataType:
    """The type without extensions: pyarrow makes no nested arrays of these from values."""
    if hasattr(kind, "storage_type"):
        return kind.storage_type
    if pa.types.is_list(kind):
        return pa.list_(stored(kind.value_type))
    return pa.struct([(field.name, stored(field.type)) for field in kind]) if pa.types.is_struct(kind) else kind


def as_type(array: Any, kind: Any) -> Any:
    """An array of a stored type as one of the type."""
    if hasattr(kind, "storage_type"):
        return pa.ExtensionArray.from_storage(kind, array)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, as_type(array.values, kind.value_type), mask=array.is_null())
    if pa.types.is_struct(kind):
        children = [as_type(array.field(i), field.type) for i, field in enumerate(kind)]
        return pa.StructArray.from_arrays(children, [field.name for field in kind], mask=array.is_null())
    return array


def array_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    return as_type(pa.array(values, stored(kind)), kind)


@st.composite
def typed(draw: st.DrawFn, depth: int = 0) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """A type and its values, without nulls at the top."""
    shape = draw(st.integers(0, 9)) if depth < 2 else 9
    if shape == 0:
        inner, values = draw(typed(depth + 1))
        return pa.list_(inner), st.lists(st.none() | values, max_size=3)
    if shape == 1:
        parts = draw(st.lists(typed(depth + 1), min_size=1, max_size=3))
        kind = pa.struct([(f"f{i}", part[0]) for i, part in enumerate(parts)])
        return kind, st.fixed_dictionaries({f"f{i}": st.none() | part[1] for i, part in enumerate(parts)})
    if shape == 2:
        inner, values = draw(st.sampled_from([leaf for leaf in LEAVES if not hasattr(leaf[0], "storage_type")]))
        return pa.map_(pa.string(), inner), st.lists(st.tuples(TEXT, st.none() | values), max_size=3)
    return draw(st.sampled_from(LEAVES))


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    count = draw(st.integers(1, 5))
    columns = {}
    for i in range(draw(st.integers(1, 4))):
        kind, values = draw(typed())
        columns[f"c{i}"] = array_of([draw(st.none() | values) for _ in range(count)], kind)
    first = draw(st.integers(0, count - 1))
    return pa.record_batch(columns).slice(first)


def sent(batch: pa.RecordBatch, key: str | None = None) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of each record by `send_table`."""
    plan = TablePlan("t", value=JsonRows(ignore_null_fields=False), key=key)
    records: list[tuple[bytes | None, bytes | None]] = []
    for each in read_batches(batch):
        for part in plan.parts(each, 0):
            keys = [None] * len(part.value) if part.key is None else part.key.rows(0, len(part.value))
            records += zip(keys, part.value.rows(0, len(part.value)), strict=True)
    return records


def loaded(batch: pa.RecordBatch, key: str | None = None) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of each record by a load of a file with the batch."""
    check_forms(batch.schema, batch.schema.names, "file")
    rows = ArrowRows(batch)
    values = rows.json()
    keys = [None] * batch.num_rows if key is None else rows.text(key).rows(0, batch.num_rows)
    return list(zip(keys, values.rows(0, batch.num_rows), strict=True))


@settings(max_examples=300, deadline=None)
@given(batches())
def test_both_doors_make_the_same_values_and_keys(batch: pa.RecordBatch) -> None:
    assert sent(batch) == loaded(batch)
    for name in batch.schema.names:
        try:
            keyed = sent(batch, name)
        except InvalidRecordError:
            continue  # only text, bytes and UUIDs are keys of send_table
        assert keyed == loaded(batch, name)


def test_uuids_and_bool8_are_what_people_write() -> None:
    one = uuid.UUID("189f9591-975a-4c82-8d8b-1f5fdd00b32c")
    ids = pa.array([one.bytes, None], pa.uuid())
    batch = pa.record_batch(
        {"id": ids, "is": pa.array([1, None], pa.bool8()), "in": array_of([[one.bytes], []], pa.list_(pa.uuid()))}
    )
    values = [
        b'{"id":"189f9591-975a-4c82-8d8b-1f5fdd00b32c","is":true,"in":["189f9591-975a-4c82-8d8b-1f5fdd00b32c"]}',
        b'{"id":null,"is":null,"in":[]}',
    ]
    assert sent(batch, "id") == loaded(batch, "id") == [(str(one).encode(), values[0]), (None, values[1])]
    assert sent(batch.slice(1), "id") == [(None, values[1])]


REFUSED: dict[str, pa.Array] = {
    "a struct with a field twice": pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
    "the same in a list": pa.ListArray.from_arrays(
        [0, 1], pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    ),
    "duration": pa.array([1], pa.duration("s")),
    "decimal256 of more digits": pa.array([decimal.Decimal(1)], pa.decimal256(60, 0)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_both_doors_refuse_what_has_no_form(name: str) -> None:
    batch = pa.record_batch({"c": REFUSED[name]})
    with pytest.raises(InvalidRecordError, match="column 'c"):
        sent(batch)
    with pytest.raises(LoadRefusedError, match="column 'c"):
        loaded(batch)
