"""Rows as JSON: the text of each type, and whatever is written reads back."""

import base64
import datetime
import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaprod._core.columns.arrow import ArrowStream
from kafkaprod._core.text.json_rows import JsonEncoder
from kafkaprod.errors import InvalidRecordError


def encode(table, ignore_null_fields=True, most_bytes=1 << 20):
    out = []
    for batch in ArrowStream(table):
        encoder = JsonEncoder(batch, range(len(batch.fields)), ignore_null_fields)
        first = 0
        while first < batch.row_count:
            column = encoder.encode(first, most_bytes)
            out += [column[i] for i in range(len(column))]
            first += len(column)
    return out


def one(value, kind):
    (row,) = encode(pa.table({"v": pa.array([value], kind)}))
    assert row.startswith(b'{"v":')
    return row[5:-1].decode()


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (-128, pa.int8(), "-128"),
        ((1 << 64) - 1, pa.uint64(), "18446744073709551615"),
        (-(1 << 63), pa.int64(), "-9223372036854775808"),
        (True, pa.bool_(), "true"),
        (1.5, pa.float16(), "1.5"),
        (0.1, pa.float32(), "0.1"),
        (b"\x00\xff", pa.binary(), '"AP8="'),
        (b"abc", pa.binary(3), '"YWJj"'),
        (b"a" * 13, pa.binary_view(), f'"{base64.b64encode(b"a" * 13).decode()}"'),
        ('"\\/\b\f\n\r\t\x01\x1f\x7f', pa.string(), '"\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001F\x7f"'),
        (0, pa.timestamp("us", tz="UTC"), '"1970-01-01T00:00:00.000Z"'),
        (-1, pa.timestamp("us", tz="UTC"), '"1969-12-31T23:59:59.999Z"'),
        (0, pa.timestamp("ms", tz="+05:30"), '"1970-01-01T05:30:00.000+05:30"'),
        (0, pa.timestamp("s", tz="-08:00"), '"1969-12-31T16:00:00.000-08:00"'),
        (1_234_567_891, pa.timestamp("ns"), '"1970-01-01T00:00:01.234"'),
        (datetime.date(2024, 2, 29), pa.date32(), '"2024-02-29"'),
        (datetime.date(1900, 3, 1), pa.date64(), '"1900-03-01"'),
        (datetime.time(1, 2, 3, 450000), pa.time64("us"), '"01:02:03.45"'),
        (datetime.time(23, 0), pa.time32("s"), '"23:00:00"'),
        ([1, None, 3], pa.list_(pa.int8()), "[1,null,3]"),
        ([], pa.large_list(pa.int8()), "[]"),
        ([1, 2], pa.list_view(pa.int8()), "[1,2]"),
        ([1, None], pa.list_(pa.int8(), 2), "[1,null]"),
        (
            {"a": None, "b": {"c": None}},
            pa.struct([("a", pa.int8()), ("b", pa.struct([("c", pa.int8())]))]),
            '{"b":{}}',
        ),
        ([("k", None), ("é", 2)], pa.map_(pa.string(), pa.int8()), '{"k":null,"é":2}'),
        ([(7, "x")], pa.map_(pa.int32(), pa.string()), '{"7":"x"}'),
    ],
    ids=str,
)
def test_each_type_has_its_text(value, kind, text):
    assert one(value, kind) == text


def test_nulls_are_left_out_or_written():
    table = pa.table({"a": [None, 1], "b": ["x", None], "n": pa.nulls(2)})
    assert encode(table) == [b'{"b":"x"}', b'{"a":1}']
    assert encode(table, False) == [b'{"a":null,"b":"x","n":null}', b'{"a":1,"b":null,"n":null}']
    assert encode(pa.table({"n": pa.nulls(1)})) == [b"{}"]


def test_column_names_are_escaped():
    assert encode(pa.table({'a"\n': [1]})) == [b'{"a\\"\\n":1}']


def test_a_dictionary_with_null_values_gives_null():
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["x", None]))
    assert encode(pa.table({"d": array})) == [b'{"d":"x"}', b"{}", b"{}"]


def test_bytes_that_are_not_utf8_become_replacement_characters():
    bad = [
        b"\xff",
        b"a\xc3",
        b"\xe2\x82z",
        b"\xf0\x9f\x92",
        b"\xed\xa0\x80",
        b"\xc0\xaf",
        b"\xf5\x80",
        b"ok \xe2\x82\xac \x80\x80 end",
    ]
    offsets = [0]
    for one_bad in bad:
        offsets.append(offsets[-1] + len(one_bad))
    buffers = [None, pa.py_buffer(pa.array(offsets, pa.int32()).buffers()[1]), pa.py_buffer(b"".join(bad))]
    array = pa.Array.from_buffers(pa.string(), len(bad), buffers)
    assert [json.loads(row)["s"] for row in encode(pa.table({"s": array}))] == [
        x.decode("utf-8", "replace") for x in bad
    ]


def test_types_without_a_json_form_are_named():
    for array, message in (
        (pa.array([datetime.timedelta(1)]), r"column 'x' has type duration\[us\], which has no form in JSON"),
        (pa.array([[{"y": datetime.timedelta(1)}]]), r"column 'x\.\w+\.y' has type duration\[us\]"),
        (pa.array([[(1.5, 1)]], pa.map_(pa.float64(), pa.int8())), "keys of a JSON object are .*, not double"),
    ):
        (batch,) = ArrowStream(pa.table({"x": array}))
        with pytest.raises(InvalidRecordError, match=message):
            JsonEncoder(batch, [0])


def test_rows_come_in_pieces_of_the_wanted_size():
    table = pa.table({"a": ["x" * 100] * 50})
    (batch,) = ArrowStream(table)
    encoder = JsonEncoder(batch, [0])
    assert len(encoder.encode(0, 1)) == 1
    piece = encoder.encode(7, 1000)
    assert len(piece) == 10  # 108 bytes each: the tenth reaches the limit
    assert encode(table, most_bytes=300) == encode(table)
    with pytest.raises(IndexError, match="row 50 is outside"):
        encoder.encode(50, 1)


LEAVES = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=20)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
            "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "s": st.none() | st.text(max_size=40),
            "b": st.none() | st.booleans(),
            "l": st.none() | st.lists(st.none() | st.text(max_size=5), max_size=4),
            "t": st.none()
            | st.fixed_dictionaries({"x": st.none() | st.integers(0, 9), "y": st.none() | st.text(max_size=3)}),
        }
    ),
    min_size=1,
    max_size=20,
)
SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("l", pa.list_(pa.string())),
        ("t", pa.struct([("x", pa.int8()), ("y", pa.large_string())])),
    ]
)


@settings(deadline=None)
@given(ROWS, st.integers(0, 5))
def test_what_is_written_reads_back(rows, skipped):
    table = pa.Table.from_pylist(rows, SCHEMA).slice(skipped)
    assert [json.loads(row) for row in encode(table, False)] == rows[skipped:]
