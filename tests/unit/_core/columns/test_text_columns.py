"""Templates, numbers, times and interleaved columns, each against the same thing written in Python."""

from __future__ import annotations

import gc
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaprod._core.columns.columns import Column
from kafkaprod._core.columns.text_columns import (
    TEXT_NULL,
    TEXT_NUMBER,
    TEXT_OTHER,
    TEXT_TIME,
    fill_template,
    interleave,
    parse_numbers,
)
from kafkaprod.errors import InvalidRecordError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CELLS = st.none() | st.binary(max_size=20)


def parsed(texts: list[bytes | None], *, has_times: bool = True) -> list[tuple[int, int]]:
    """(number, status) of each text."""
    numbers, statuses = np.full(len(texts), 77, dtype=np.int64), np.full(len(texts), 77, dtype=np.uint8)
    parse_numbers(Column.from_list(texts), numbers.data, statuses.data, has_times)
    return list(zip(numbers.tolist(), statuses.tolist(), strict=True))


@given(st.lists(st.tuples(CELLS, CELLS), max_size=20), st.tuples(*[st.binary(max_size=5)] * 3))
def test_a_template_is_filled_as_python_would(rows: list[tuple[bytes | None, bytes | None]], texts: tuple[bytes, ...]):
    columns = [Column.from_list([row[i] for row in rows]) for i in range(2)]
    filled = fill_template(list(texts), columns, len(rows))
    expected = [None if a is None or b is None else texts[0] + a + texts[1] + b + texts[2] for a, b in rows]
    assert [filled[i] for i in range(len(rows))] == expected


def test_a_template_takes_columns_without_a_length() -> None:
    filled = fill_template([b"<", b"-", b">"], [Column.constant(b"x"), Column.from_list([b"1", b"2", b"3"])], 3)
    assert [filled[i] for i in range(3)] == [b"<x-1>", b"<x-2>", b"<x-3>"]


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=20))
def test_columns_are_interleaved_row_by_row(rows: list[tuple[bytes | None, ...]]) -> None:
    column = interleave([Column.from_list([row[i] for row in rows]) for i in range(3)], len(rows))
    assert [column[i] for i in range(len(column))] == [cell for row in rows for cell in row]


@given(st.lists(st.none() | st.binary(max_size=22) | st.integers(-(10**20), 10**20).map(lambda n: b"%d" % n)))
def test_what_is_taken_for_a_number_is_what_python_reads(texts: list[bytes | None]) -> None:
    for text, (number, status) in zip(texts, parsed(texts, has_times=False), strict=True):
        assert (status == TEXT_NULL) == (text is None)
        if status == TEXT_NUMBER:
            assert text is not None
            assert number == int(text)
        elif text is not None and len(text) < 18:
            assert not text.removeprefix(b"-").isdigit()


@given(
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),
    st.none() | st.integers(-1439, 1439),
    st.sampled_from("T "),
    st.sampled_from(["auto", "minutes", "seconds", "milliseconds", "microseconds"]),
)
def test_times_are_those_of_python(when: datetime, offset: int | None, separator: str, precision: str) -> None:
    zone = UTC if offset is None else timezone(timedelta(minutes=offset))
    text = when.replace(tzinfo=None if offset is None else zone).isoformat(separator, precision)
    expected = (datetime.fromisoformat(text).replace(tzinfo=zone) - EPOCH) // timedelta(milliseconds=1)
    assert parsed([text.encode()]) == [(expected, TEXT_TIME)]


def test_a_date_and_utc_are_times() -> None:
    day = 86_400_000
    assert parsed([b"1970-01-02", b"1970-01-02T00:00:00Z", b"1970-01-02 00:00:00.0019999999+00:00"]) == [
        (day, TEXT_TIME),
        (day, TEXT_TIME),
        (day + 1, TEXT_TIME),
    ]


OTHERS = """
    - + 1.5 1_0 2020-13-01 2020-02-30 2021-02-29 2020-01-01T24:00 0000-01-01 2020-01-01T10 2020-01-01T10:00:60
    2020-01-01T10:00:00. 2020-01-01T10:00:00+1 2020-01-01T10:00:00+24:00 2020-01-01T10:00:0 2020-01-01T10:00:00Zx
    1111111111111111111 2020-01-01x
"""


@pytest.mark.parametrize("text", [b"", b" 1", *OTHERS.encode().split()])
def test_other_texts_are_left_to_python(text: bytes) -> None:
    assert parsed([text])[0][1] == TEXT_OTHER


def test_columns_that_are_too_short_are_refused() -> None:
    short = Column.from_list([b"a"])
    with pytest.raises(InvalidRecordError, match="1 rows, 2 are needed"):
        fill_template([b"", b""], [short], 2)
    with pytest.raises(InvalidRecordError, match="one more is needed"):
        fill_template([b""], [short], 1)
    with pytest.raises(InvalidRecordError, match="1 rows, 2 are needed"):
        interleave([short], 2)
    with pytest.raises(InvalidRecordError, match="0 columns"):
        interleave([], 2)
    with pytest.raises(InvalidRecordError, match="negative"):
        interleave([short], -1)
    with pytest.raises(InvalidRecordError, match="1 rows and 2 statuses for 2 numbers"):
        parse_numbers(short, np.zeros(2, dtype=np.int64).data, np.zeros(2, dtype=np.uint8).data)


@pytest.mark.parametrize("row_count", [2**58, 2**61, 2**61 - 1, 2**62, 2**63 - 1])
@pytest.mark.parametrize("column_count", [1, 2, 4, 16])
def test_rows_beyond_all_memory_are_refused_before_anything_is_written(row_count: int, column_count: int) -> None:
    columns = [Column.constant(b"c")] * column_count  # as many rows as are asked for
    with pytest.raises(MemoryError):
        fill_template([b"t"] * (column_count + 1), columns, row_count)
    with pytest.raises(MemoryError):
        interleave(columns, row_count)


def test_a_caller_may_clear_the_lists_it_gave() -> None:
    columns = [Column.from_list([b"%d" % index for index in range(1000)]) for _ in range(2)]
    both = interleave(columns, 1000)
    columns.clear()
    gc.collect()
    assert [both[row] for row in range(4)] == [b"0", b"0", b"1", b"1"]
