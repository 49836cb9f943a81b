"""What a frame, a mapping of columns or a list of rows shows is what is sent: indexes, nulls, masks, large integers."""

from __future__ import annotations

import datetime
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kafkaprod.errors import InvalidRecordError, KafkaError
from kafkaprod.tables import JsonRows, TablePlan, read_batches

BIG = 2**53 + 1


def sent(data: Any) -> list[str]:
    """The values of the records of a table, as JSON."""
    values = []
    for batch in read_batches(data):
        for part in TablePlan("t", value=JsonRows(ignore_null_fields=False)).parts(batch, 0):
            values += [(value or b"").decode() for value in part.value.rows(0, len(part.value))]
    return values


@pytest.mark.parametrize(("name", "key"), [(0, "0"), ("", ""), (False, "False"), ("k", "k"), (1.5, "1.5")])
@pytest.mark.parametrize("index", [["x", "y"], range(5, 7)])
def test_pandas_index_with_any_name_is_a_column(name: Any, key: str, index: Any) -> None:
    frame = pd.DataFrame({"v": [1, 2]}, index=pd.Index(index, name=name))
    quoted = ['"x"', '"y"'] if isinstance(index, list) else ["5", "6"]
    assert sent(frame) == [f'{{"v":{v},"{key}":{value}}}' for v, value in zip((1, 2), quoted, strict=True)]
    assert frame.index.names == [name]


def test_range_of_pandas_with_a_name_is_a_column() -> None:
    frame = pd.DataFrame({"v": [1, 2, 3]}, index=pd.RangeIndex(10, 40, 10, name="id"))
    assert sent(frame) == ['{"v":1,"id":10}', '{"v":2,"id":20}', '{"v":3,"id":30}']


def test_groups_of_a_frame_without_header_keep_their_key() -> None:
    frame = pd.DataFrame([["x", 1], ["y", 2], ["x", 3]])
    assert sent(frame[0].value_counts().to_frame()) == ['{"count":2,"0":"x"}', '{"count":1,"0":"y"}']


def test_pandas_index_without_a_name_is_left_out() -> None:
    assert sent(pd.DataFrame({"v": [1]}, index=["x"])) == ['{"v":1}']
    index = pd.MultiIndex.from_tuples([("a", 1)], names=[None, None])
    assert sent(pd.DataFrame({"v": [1]}, index=index)) == ['{"v":1}']


SERIES: list[Any] = [
    pl.Series([BIG, None]),
    pd.array([BIG, None], "Int64"),
    pd.Series([BIG, None], dtype="Int64"),
    pd.Series([BIG, None], dtype="int64[pyarrow]"),
    pa.array([BIG, None]),
    pa.chunked_array([[BIG], [None]]),
    pa.array([0, BIG, None])[1:],
]


@pytest.mark.parametrize("series", SERIES, ids=lambda series: f"{type(series).__module__}.{type(series).__name__}")
def test_series_of_a_mapping_keep_their_integers_and_nulls(series: Any) -> None:
    assert sent({"id": series}) == [f'{{"id":{BIG}}}', '{"id":null}']
    mixed = {"id": series, "n": np.array([1, 2]), "t": ["a", None], "d": [datetime.date(2024, 1, 1), None]}
    assert sent(mixed) == [
        f'{{"id":{BIG},"n":1,"t":"a","d":"2024-01-01"}}',
        '{"id":null,"n":2,"t":null,"d":null}',
    ]


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, 2], kind)
        for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "?", "M8[s]", "M8[us]", "M8[D]")
    ]
    + [[1.5, 2], [b"a", None], [None, None], [True, None], [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), None]],
    ids=lambda values: str(getattr(values, "dtype", values)),
)
def test_columns_are_the_same_beside_a_series(values: Any) -> None:
    alone = [row.removesuffix("}") for row in sent({"a": values})]
    assert sent({"a": values, "b": pl.Series([1, 2])}) == [f'{row},"b":{i}}}' for i, row in enumerate(alone, 1)]


def test_series_of_texts_categories_and_zones_are_read_as_arrow() -> None:
    zoned = pd.Series(pd.to_datetime(["2024-01-01", None]).tz_localize("UTC"))
    columns = {"t": pl.Series(["a", None]), "c": pd.Series(["x", None], dtype="category"), "z": zoned}
    assert sent(columns) == ['{"t":"a","c":"x","z":"2024-01-01T00:00:00.000Z"}', '{"t":null,"c":null,"z":null}']


def test_columns_of_unequal_length_are_refused_beside_a_series() -> None:
    with pytest.raises(InvalidRecordError):
        sent({"a": [1, 2], "b": pl.Series([1])})


@pytest.mark.parametrize("numbers", [[BIG, 0.5], [0.5, -BIG], [10**400, 1.0], np.array([BIG, 0.5], object)])
def test_integer_that_no_float_has_is_refused_beside_floats(numbers: Any) -> None:
    with pytest.raises(InvalidRecordError, match=r"column 'id' holds floats and the integer -?\d+, which no float has"):
        sent({"id": numbers})
    with pytest.raises(InvalidRecordError, match="which no float has"):
        sent([{"id": number} for number in numbers])


def test_integers_that_floats_have_stand_beside_them() -> None:
    assert sent({"id": [2**53, 0.5, None]}) == ['{"id":9.007199254740992E15}', '{"id":0.5}', '{"id":null}']


@pytest.mark.parametrize("kind", ["i8", "f4", "?", "M8[s]", "M8[D]", "S3", "U3", "O"])
def test_what_is_masked_is_null(kind: str) -> None:
    values = np.ma.array(np.array([1, 0, 1], kind if kind != "O" else "i8").astype(kind), mask=[False, True, False])
    rows = sent({"a": values})
    assert rows[1] == '{"a":null}'
    assert "null" not in rows[0] + rows[2]


def test_masked_and_nat_are_both_null() -> None:
    times = np.array(["2024-01-01", "NaT", "2024-01-03"], "M8[s]")
    rows = sent({"a": np.ma.array(times, mask=[False, False, True])})
    assert rows[1:] == ['{"a":null}', '{"a":null}']
    records: Any = np.ma.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i8"), ("b", "f8")])
    records["b"][0] = np.ma.masked
    assert sent(records) == ['{"a":1,"b":null}', '{"a":3,"b":4.0}']


@pytest.mark.parametrize("shape", ["frame", "index", "series"])
def test_periods_of_pandas_are_refused_by_name(shape: str) -> None:
    periods = pd.period_range("2024-01", periods=2, freq="M")
    data: Any = {
        "frame": pd.DataFrame({"p": periods}),
        "index": pd.DataFrame({"v": [1, 2]}, index=periods.rename("p")),
        "series": {"p": pd.Series(periods)},
    }[shape]
    with pytest.raises(KafkaError, match="column 'p' holds periods of pandas"):
        sent(data)


def test_rows_without_any_column_are_refused() -> None:
    empty: list[dict[str, int]] = [{}, {}]
    for rows in (empty, iter(empty)):
        with pytest.raises(InvalidRecordError, match="none of the 2 rows has a column"):
            sent(rows)
    assert sent([{}, {"a": 1}]) == ['{"a":null}', '{"a":1}']
    assert sent([]) == []


@pytest.mark.parametrize("name", ["arrow.parquet.variant", "parquet.variant", "pandas.period"])
@pytest.mark.parametrize("nested", [False, True])
def test_extension_type_whose_storage_is_not_its_value_is_refused_where_it_is_used(name: str, nested: bool) -> None:
    storage = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    field = pa.field("v", storage, metadata={"PARQUET:field_id": "1", "ARROW:extension:name": name})
    array = pa.array([{"metadata": b"", "value": b""}], storage)
    if nested:
        array = pa.StructArray.from_arrays([array], fields=[field])
        field = pa.field("v", array.type)
    table = pa.Table.from_arrays([pa.array([1]), array], schema=pa.schema([("id", pa.int64()), field]))
    with pytest.raises(InvalidRecordError, match=r"column 'v.*' has type (variant|period of pandas)"):
        sent(table)
    assert sent(table.select(["id"])) == ['{"id":1}']


def test_variant_of_duckdb_is_refused_by_name() -> None:
    with pytest.raises(InvalidRecordError, match="column 'v' has type variant, which has no form in JSON"):
        sent(duckdb.sql("select 1 id, {'a': 1, 'b': 'x'}::variant v"))
