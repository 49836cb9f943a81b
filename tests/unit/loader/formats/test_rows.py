"""Blocks of rows between a reader and the producer."""

import numpy as np
import pytest

from kafkaprod._core.columns.columns import Column
from kafkaprod.loader.formats.rows import RowBlock

CONSTANT, VARYING = Column.constant(b"c"), Column.from_list([b"a", b"b"])


@pytest.mark.parametrize(
    ("headers", "row_count"),
    [
        ((("x", CONSTANT),), -1),  # the same for every row
        ((("x", VARYING),), 2),
        ((("x", CONSTANT), ("y", CONSTANT)), -1),
        ((("x", CONSTANT), ("y", VARYING)), 2),
    ],
)
def test_headers_may_be_constant_or_differ_by_row(headers: tuple[tuple[str, Column], ...], row_count: int) -> None:
    block = RowBlock(np.arange(2), VARYING, 2, headers=headers)
    columns = block.header_columns()
    assert columns is not None
    assert columns.row_count == row_count


def test_no_headers_are_none() -> None:
    assert RowBlock(np.arange(2), VARYING, 2).header_columns() is None
