"""Columns: every layout gives back its rows, every wrong shape is named."""

import struct
from typing import Any

import numpy as np
import pytest

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod.errors import ArgumentTypeError, InvalidRecordError
from tests.support.core.column_layouts import as_list, as_offsets, as_views

VALUES = [b"a", b"", None, b"x" * 12, b"y" * 13, b"z" * 5000, None, b"end"]


TEXT: Any = "ab"  # not bytes
FIVE: Any = 5


def rows(column):
    return [column[i] for i in range(len(column))]


LAYOUTS = [as_list, as_offsets, lambda values: as_offsets(values, "q"), as_views]


@pytest.mark.parametrize("layout", LAYOUTS, ids=["list", "offsets32", "offsets64", "views"])
@pytest.mark.parametrize(
    "values", [VALUES, [], [None], [b""], [b"v"] * 100], ids=["mixed", "none", "null", "empty", "many"]
)
def test_every_layout_gives_its_rows_back(layout, values):
    column = layout(values)
    assert column.row_count == len(column) == len(values)
    assert rows(column) == values


def test_fixed_width_rows():
    column = Column.from_fixed(b"aabbcc", 2, bytes([0b101]))
    assert rows(column) == [b"aa", None, b"cc"]


def test_slices_begin_anywhere():
    offsets = np.array([0, 1, 3, 6, 10], dtype=np.int32)
    assert rows(Column.from_offsets(offsets, b"abbcccdddd", start=1, row_count=2)) == [b"bb", b"ccc"]
    assert rows(Column.from_offsets(offsets, b"abbcccdddd", bytes([0b1011]), start=1)) == [b"bb", None, b"dddd"]


def test_columns_without_length():
    for column in (Column.nulls(), Column.constant(b"same"), Column.constant(None)):
        assert column.row_count == -1
        with pytest.raises(TypeError, match="no length"):
            len(column)
    assert Column.constant(b"same")[99] == b"same"
    assert Column.nulls()[5] is None


def test_list_takes_any_buffer():
    assert rows(Column.from_list([bytearray(b"a"), memoryview(b"xbx")[1:2], np.frombuffer(b"c", "u1"), b""])) == [
        b"a",
        b"b",
        b"c",
        b"",
    ]


def test_row_outside_the_column_is_an_index_error():
    column = Column.from_list([b"a"])
    for row in (-1, 1):
        with pytest.raises(IndexError, match=f"row {row} is outside 0..0"):
            column[row]


def test_list_keeps_its_rows_alive():
    values = [bytes(bytearray(b"alive" * 100)) for _ in range(100)]
    column = Column.from_list(values)
    values.clear()
    assert all(row == b"alive" * 100 for row in rows(column))


def test_held_buffers_are_let_go_with_the_column():
    data = bytearray(b"abc")
    column = Column.from_list([data])
    with pytest.raises(BufferError):
        data.append(1)
    del column
    data.append(1)


OFFSETS = np.array([0, 1, 2], dtype=np.int32)


@pytest.mark.parametrize("call", [lambda rows: rows.slice(5, 2**63 - 1), lambda rows: rows.slice(2**63 - 1, 1)])
def test_slice_of_more_rows_than_there_are_numbers_is_refused(call):
    for rows in (Column.from_list([b"x"] * 10), Headers.from_python([[("h", b"1")]] * 10)):
        with pytest.raises(InvalidRecordError, match=r"are outside the .* 10"):
            call(rows)
    assert len(Column.from_list([b"x"] * 10).slice(10, 0)) == 0


class Turncoat:
    """A number that is what it should be when it is checked, and another one if it is asked again."""

    def __init__(self, first):
        self.answers = [first, 2**40]

    def __index__(self):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def __lt__(self, other):
        return False

    __gt__ = __lt__

    def __add__(self, other):
        return 0

    __radd__ = __rsub__ = __sub__ = __add__


def test_numbers_of_a_column_are_converted_once():
    start: Any = Turncoat(1)
    count: Any = Turncoat(1)
    assert rows(Column.from_offsets(OFFSETS, b"ab", start=start, row_count=count)) == [b"b"]


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        *((kind, damage) for kind in ("i4", "i8") for damage in (2**31 - 1, -(2**31), -5, 1)),
        ("i8", -(2**63)),
        ("i8", 2**63 - 1),
    ],
)
def test_offsets_changed_after_the_check_never_point_outside(kind, damage):
    offsets = np.array([0, 2, 4, 6], kind)
    column = Column.from_offsets(offsets, b"aabbcc")
    offsets[2] = damage
    assert all(row is None or row in b"aabbcc" for row in rows(column))
    offsets[:] = [2**31 - 1] * 4
    assert rows(column)[0] is None or rows(column)[0] == b""


def test_views_changed_after_the_check_never_point_outside():
    views = np.frombuffer(struct.pack("=i4sii", 20, b"aaaa", 0, 3), "i4").copy()
    column = Column.from_views(views.view(np.uint8), [b"a" * 30])
    for place, damage in ((0, 21), (0, -1), (2, 1), (2, -1), (3, 11), (3, -1)):
        views[:] = np.frombuffer(struct.pack("=i4sii", 20, b"aaaa", 0, 3), "i4")
        views[place] = damage
        assert rows(column) == [None]


def test_mask_of_bool_is_a_validity_with_one_item_per_row():
    offsets = np.arange(10, dtype=np.int64)
    for mask in (np.ones(9, np.bool_), np.array([True, False, True] * 3)):
        expected = [b"abcdefghi"[i : i + 1] if mask[i] else None for i in range(9)]
        assert rows(Column.from_offsets(offsets, b"abcdefghi", mask)) == expected
        assert rows(Column.from_fixed(b"abcdefghi", 1, mask, start=4)) == expected[4:]
    bitmap = np.packbits(np.array([True, False, True] * 3), bitorder="little")
    assert rows(Column.from_offsets(offsets, b"abcdefghi", bitmap)) == expected


@pytest.mark.parametrize("kind", ["f8", "f4", ">i4", "i2", "M8[ms]", "V8"])
def test_offsets_of_other_types_are_refused_by_name(kind):
    with pytest.raises(InvalidRecordError, match=r"key\.offsets must be"):
        Column.from_offsets(np.zeros(3, kind), b"abc", name="key")


@pytest.mark.parametrize("kind", ["i4", "i8", "f4", "i2"])
def test_validity_of_other_types_is_refused_by_name(kind):
    with pytest.raises(InvalidRecordError, match=r"key\.validity must be an Arrow bitmap .* or an array of bool"):
        Column.from_offsets(OFFSETS, b"ab", np.ones(9, kind), name="key")


@pytest.mark.parametrize("values", [b"abc", bytearray(b"abc"), memoryview(b"abc"), "abc"])
def test_single_object_in_place_of_a_list_is_refused(values):
    with pytest.raises(InvalidRecordError, match="values must be a list with one item per record, not a single"):
        Column.from_list(values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Column.from_list([b"a", TEXT], name="value"), r"value\[1\] must be bytes-like or None, not str"),
        (
            lambda: Column.from_list([b"a", memoryview(b"abcd")[::2]], name="value"),
            r"value\[1\] must be a contiguous buffer",
        ),
        (
            lambda: Column.from_offsets(FIVE, b"ab", name="key"),
            "key.offsets must support the buffer protocol, not int",
        ),
        (lambda: Column.from_offsets(OFFSETS, TEXT, name="key"), "key.data must support the buffer protocol, not str"),
        (
            lambda: Column.from_offsets(OFFSETS.astype(np.int16), b"ab", name="key"),
            "key.offsets must be int32 or int64, not items of 2 bytes",
        ),
        (lambda: Column.from_offsets(np.array([0, 2, 1], "i4"), b"ab", name="key"), r"key: row 1 has offsets 2\.\.1"),
        (
            lambda: Column.from_offsets(np.array([0, 1, 3], "i4"), b"ab", name="key"),
            r"key: row 1 has offsets 1\.\.3.* past the 2 bytes",
        ),
        (
            lambda: Column.from_offsets(np.array([0, 1, 3], "i8"), b"ab", name="key"),
            r"key: row 1 has offsets 1\.\.3.* past the 2 bytes",
        ),
        (lambda: Column.from_offsets(np.array([-1, 1], "i4"), b"ab", name="key"), r"key: row 0 has offsets -1\.\.1"),
        (lambda: Column.from_offsets(np.array([0, 2**62], "i8"), b"ab", name="key"), "key: row 0 has offsets"),
        (
            lambda: Column.from_offsets(OFFSETS, b"ab", start=1, row_count=2, name="key"),
            r"key: 2 rows from row 1 on are outside the 2 rows given",
        ),
        (lambda: Column.from_offsets(OFFSETS, b"ab", start=-1, name="key"), r"start=-1 is outside"),
        (lambda: Column.from_offsets(OFFSETS, b"ab", row_count=-1, name="key"), "row_count=-1 is outside"),
        (
            lambda: Column.from_offsets(np.array([], "i4"), b"", name="key"),
            "key: 0 rows from row 0 on are outside the 0 rows given",
        ),
        (
            lambda: Column.from_offsets(OFFSETS, b"ab", np.ones(1, np.bool_), name="key"),
            "key.validity of 1 rows is too short for 2 rows",
        ),
        (
            lambda: Column.from_offsets(OFFSETS, b"ab", b"", name="key"),
            "key.validity of 0 bytes is too short for 2 rows",
        ),
        (lambda: Column.from_offsets(OFFSETS[::2], b"ab", name="key"), "key.offsets must be a contiguous buffer"),
        (lambda: Column.from_fixed(b"abc", 0, name="key"), "key: width=0 must be at least 1 byte"),
        (
            lambda: Column.from_fixed(b"abc", 2, row_count=2, name="key"),
            r"key: 2 rows from row 0 on are outside the 1 rows given",
        ),
        (
            lambda: Column.from_views(struct.pack("<iiii", 20, 0, 0, 0), [b"x" * 19], name="key"),
            "key: row 0 has a view of 20 bytes at 0 of buffer 0",
        ),
        (
            lambda: Column.from_views(struct.pack("<iiii", 20, 0, 1, 0), [b"x" * 20], name="key"),
            "key: row 0 has a view",
        ),
        (
            lambda: Column.from_views(struct.pack("<iiii", 20, 0, -1, 0), [b"x" * 20], name="key"),
            "key: row 0 has a view",
        ),
        (
            lambda: Column.from_views(struct.pack("<iiii", 20, 0, 0, -1), [b"x" * 30], name="key"),
            "key: row 0 has a view",
        ),
        (
            lambda: Column.from_views(struct.pack("<iiii", -1, 0, 0, 0), [b"x"], name="key"),
            "key: row 0 has a view of -1 bytes",
        ),
        (
            lambda: Column.from_views(struct.pack("<iiii", 2**31 - 1, 0, 0, 2**31 - 1), [b"x"], name="key"),
            "key: row 0 has a view",
        ),
        (lambda: Column.constant(TEXT), "constant must support the buffer protocol, not str"),
    ],
)
def test_wrong_shape_is_named(make, message):
    with pytest.raises(InvalidRecordError, match=message):
        make()


def test_view_under_a_null_is_not_looked_at():
    column = Column.from_views(struct.pack("<iiii", 2**30, 0, 99, 0), [], bytes([0]))
    assert rows(column) == [None]


# Headers

KEYS, HEADER_VALUES = Column.from_list([b"a", b"b", b"c"]), Column.from_list([b"1", None, b""])


def test_headers_for_every_row_alike_have_no_length():
    for headers in (None, [], [("h", b"x"), ("h", None)], {"h": b"x"}):
        assert Headers.from_python(headers).row_count == -1


def test_headers_per_row():
    assert Headers.from_python([[("h", b"x")], {"i": None}, None, []]).row_count == 4


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([("h", 5)], r"headers of row 0: headers\[0\] value must be bytes-like"),
        ([[("h", b"")], [("h", b""), ("i", 5)]], r"headers of row 1: headers\[1\] value must be bytes-like"),
        ([[("h", b"")], 5], r"headers of row 1: headers must be \(str, bytes\) pairs, not int"),
        ([[(5, b"")]], r"headers of row 0: headers\[0\] key must be str, not int"),
    ],
)
def test_wrong_header_is_named_with_its_row(headers, message):
    with pytest.raises(ArgumentTypeError, match=message):
        Headers.from_python(headers)


@pytest.mark.parametrize("code", ["i4", "i8"])
def test_headers_from_columns(code):
    assert Headers.from_columns(np.array([0, 2, 2, 3], code), KEYS, HEADER_VALUES).row_count == 3


@pytest.mark.parametrize(
    ("offsets", "keys", "values", "message"),
    [
        ([0, 4], KEYS, HEADER_VALUES, r"headers.offsets\[1\]=4 runs backwards or past 3 pairs"),
        ([0, 2, 1], KEYS, HEADER_VALUES, r"headers.offsets\[2\]=1 runs backwards"),
        ([-1, 1], KEYS, HEADER_VALUES, r"headers.offsets\[0\]=-1 runs backwards"),
        ([0, 1], KEYS, Column.from_list([b"1"]), "headers have 3 keys but 1 values"),
        ([0, 1], Column.from_list([None]), Column.from_list([b"1"]), "the key of pair 0 is null"),
    ],
)
def test_wrong_header_columns_are_named(offsets, keys, values, message):
    with pytest.raises(InvalidRecordError, match=message):
        Headers.from_columns(np.array(offsets, "i4"), keys, values)


def test_too_few_header_offsets_are_refused():
    with pytest.raises(InvalidRecordError, match=r"headers.offsets of 2 items are too few for 2 rows"):
        Headers.from_columns(np.array([0, 1], "i4"), KEYS, HEADER_VALUES, 2)


@pytest.mark.parametrize(
    ("thing", "shown"),
    [
        (Column.from_list([b"secret", None, b""]), "<Column of 3 rows, of 6 bytes at most>"),
        (Column.from_list([b"secret"]), "<Column of 1 row, of 6 bytes at most>"),
        (Column.from_list([]), "<Column of 0 rows, of 0 bytes at most>"),
        (Column.from_offsets(np.array([0, 2, 5], dtype=np.int32), b"12345"), "<Column of 2 rows, of 3 bytes at most>"),
        (Column.from_fixed(b"12345678", 4), "<Column of 2 rows, of 4 bytes at most>"),
        (Column.constant(b"secret"), "<Column of the same 6 bytes in every row>"),
        (Column.constant(None), "<Column of null in every row>"),
        (Column.nulls(), "<Column of null in every row>"),
        (Headers.from_python([("a", b"secret")]), "<Headers of every record alike>"),
        (Headers.from_python([[("a", b"secret")], None]), "<Headers of 2 records>"),
    ],
)
def test_a_column_shows_its_size_and_no_data(thing: object, shown: str) -> None:
    assert repr(thing) == shown
