"""The digest of rows: the same however they are cut into calls, another for any other rows or another order."""

import itertools
import random
from array import array

import pytest

from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.columns.row_digest import RowDigest
from kafkaprod.errors import InvalidRecordError

Row = tuple[str, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def digest_of(rows: list[Row], cuts: tuple[int, ...] = ()) -> str:
    digest = RowDigest()
    edges = [0, *cuts, len(rows)]
    for first, end in itertools.pairwise(edges):
        part = rows[first:end]
        for topic in dict.fromkeys(row[0] for row in part):  # a call has one topic
            assert len({row[0] for row in part}) == 1, topic
        if part:
            digest.add(
                part[0][0],
                Column.from_list([row[1] for row in part]),
                Column.from_list([row[2] for row in part]),
                Headers.from_python([list(row[3]) for row in part]),
                len(part),
            )
    assert digest.rows == len(rows)
    return digest.text()


def some_rows(count: int, seed: int = 1) -> list[Row]:
    generator = random.Random(seed)
    return [
        (
            "t",
            None if generator.random() < 0.1 else generator.randbytes(generator.randrange(40)),
            None if generator.random() < 0.3 else generator.randbytes(generator.randrange(9)),
            tuple((f"h{number}", generator.randbytes(3)) for number in range(generator.randrange(3))),
        )
        for _ in range(count)
    ]


def test_cuts_make_no_difference():
    rows = some_rows(2_000)
    whole = digest_of(rows)
    generator = random.Random(2)
    for _ in range(20):
        assert digest_of(rows, tuple(sorted(generator.sample(range(1, 2_000), 5)))) == whole
    assert len(whole) == 32


def test_columns_of_one_value_are_rows():
    digest = RowDigest()
    digest.add("t", Column.constant(b"v"), None, Headers.from_python([("a", b"1")]), 3)
    assert digest.text() == digest_of([("t", b"v", None, (("a", b"1"),))] * 3)


CHANGES = {
    "a row is missing": lambda rows: rows[:-1],
    "a row is twice": lambda rows: [*rows, rows[-1]],
    "two rows change places": lambda rows: [rows[1], rows[0], *rows[2:]],
    "a byte moves from value to key": lambda rows: [("t", b"ab", b"c", ()), *rows[1:]],
    "a byte moves to the next value": lambda rows: [("t", b"a", b"bc", ()), ("t", b"xyz", b"k", ()), *rows[2:]],
    "a null is empty": lambda rows: [*rows[:2], ("t", b"", b"n", ()), *rows[3:]],
    "a key is null": lambda rows: [("t", b"abc", None, ()), *rows[1:]],
    "another topic": lambda rows: [("u", *row[1:]) for row in rows],
    "another header": lambda rows: [*rows[:3], ("t", b"h", None, (("a", b"2"), ("b", None))), *rows[4:]],
    "headers change places": lambda rows: [*rows[:3], ("t", b"h", None, (("b", None), ("a", b"1"))), *rows[4:]],
    "a header moves to the next row": lambda rows: [
        *rows[:3],
        ("t", b"h", None, (("a", b"1"),)),
        ("t", b"z", None, (("b", None),)),
    ],
}
ROWS: list[Row] = [
    ("t", b"abc", b"", ()),
    ("t", b"yz", b"k", ()),
    ("t", None, b"n", ()),
    ("t", b"h", None, (("a", b"1"), ("b", None))),
    ("t", b"z", None, ()),
]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_other_rows_have_another_digest(change):
    assert digest_of(change(list(ROWS))) != digest_of(ROWS)


def test_columns_with_fewer_rows_are_refused():
    with pytest.raises(InvalidRecordError, match="1 rows, where 2 are due"):
        RowDigest().add("t", Column.from_list([b"a"]), None, Headers.from_python(None), 2)
    with pytest.raises(InvalidRecordError, match="where -1 are due"):
        RowDigest().add("t", Column.constant(b"a"), None, Headers.from_python(None), -1)


def placed(rows: list[tuple[int, int]], cuts: tuple[int, ...] = ()) -> str:
    digest = RowDigest()
    for first, end in itertools.pairwise([0, *cuts, len(rows)]):
        columns = zip(*rows[first:end], strict=True)
        times, partitions = (memoryview(array(code, each)) for code, each in zip("qi", columns, strict=True))
        digest.add_places(times, partitions, -1, end - first)
        digest.add("t", Column.constant(b"v"), None, Headers.from_python(None), end - first)
    return digest.text()


def test_timestamps_and_partitions_count_where_they_are_given():
    rows = [(5, 1), (-1, -1), (7, -1), (-1, 0)]
    whole = placed(rows)
    assert whole == placed(rows, (1,)) == placed(rows, (2, 3))
    others = {placed([*rows[:row], other, *rows[row + 1 :]]) for row in range(4) for other in ((6, 1), (5, 2), (-1, 3))}
    assert whole not in others
    assert placed([(-1, -1)] * 2) == digest_of([("t", b"v", None, ())] * 2)
    digest = RowDigest()
    digest.add_places(None, None, 2, 1)
    assert len(digest.text()) == 40
    with pytest.raises(InvalidRecordError, match="2 timestamps or partitions, where 1 are due"):
        digest.add_places(memoryview(array("q", [1, 2])), None, -1, 1)
