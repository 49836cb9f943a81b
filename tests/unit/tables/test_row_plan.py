"""A RowPlan over columns: what rows become, and why some have no record."""

from __future__ import annotations

import numpy as np
import pytest

from kafkaprod._core.columns.columns import Column
from kafkaprod.tables.row_plan import ByteRows, Mapped, RowPlan, Template


def mapped(plan: RowPlan, rows: int, **columns: list[bytes | None]) -> tuple[Mapped, dict[int, str]]:
    """(what the rows become, reasons)."""
    reasons: dict[int, str] = {}
    texts = {name: Column.from_list(values) for name, values in columns.items()}
    return plan.map(ByteRows(texts, rows), None, reasons), reasons


def cells(column: Column | None, count: int) -> list[bytes | None]:
    """The first rows of a column."""
    assert column is not None
    return [column[i] for i in range(count)]


def test_keys_and_headers_are_filled_from_columns() -> None:
    plan = RowPlan("a", Template.parse("{a}-{b}"), (("h", Template.of_column("b")), ("c", Template.parse("same"))))
    rows, reasons = mapped(plan, 2, a=[b"1", b"2"], b=[b"x", None])
    assert not reasons
    assert cells(rows.value, 2) == [b"1", b"2"]
    assert cells(rows.key, 2) == [b"1-x", None]
    assert [(name, cells(column, 2)) for name, column in rows.headers] == [("h", [b"x", None]), ("c", [b"same"] * 2)]


def test_a_time_of_text_is_cut_to_its_millisecond() -> None:
    # As a float of seconds times 1000, some of them would be one less.
    rows, reasons = mapped(RowPlan("a", timestamp="a"), 1000, a=[b"2024-06-01T00:00:00.%03d" % i for i in range(1000)])
    assert not reasons
    assert rows.timestamps is not None
    assert (np.diff(rows.timestamps) == 1).all()


@pytest.mark.parametrize(
    ("unit", "text", "expected"),
    [
        ("s", b"1700000000", 1_700_000_000_000),
        ("s", b"1700000000.5", 1_700_000_000_500),
        ("us", b"1700000000123456", 1_700_000_000_123),
        ("ns", b"1700000000123456789", 1_700_000_000_123),
    ],
)
def test_numbers_of_time_have_a_unit(unit: str, text: bytes, expected: int) -> None:
    rows, reasons = mapped(RowPlan("a", timestamp="a", timestamp_unit=unit), 1, a=[text])
    assert rows.timestamps is not None
    assert (reasons, rows.timestamps.tolist()) == ({}, [expected])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"soon", "is not a timestamp"),
        (None, "is not a timestamp"),
        (b"1969-12-31", "is before 1970"),
        (b"5", "before 1973 in ms"),
        (b"99999999999999", "after 2286 in ms"),
    ],
)
def test_rows_without_a_time_are_named(text: bytes | None, why: str) -> None:
    _, reasons = mapped(RowPlan("a", timestamp="a"), 2, a=[b"2020-01-01", text])
    assert list(reasons) == [1]
    assert why in reasons[1]


def test_partitions_are_numbers_and_null_leaves_the_choice() -> None:
    rows, reasons = mapped(RowPlan("a", partition="a"), 6, a=[b"3", None, b" 4", b"x", b"4294967296", b"9" * 30])
    assert rows.partitions is not None
    assert rows.partitions[:3].tolist() == [3, -1, 4]
    assert sorted(reasons) == [3, 4, 5]
    assert "is not a partition number" in reasons[5]


def test_rows_that_are_left_out_anyhow_have_no_reasons() -> None:
    reasons: dict[int, str] = {}
    columns = ByteRows({"a": Column.from_list([b"x", b"y"])}, 2)
    RowPlan("a", timestamp="a", partition="a").map(columns, None, reasons, np.array([False, False]))
    assert not reasons
