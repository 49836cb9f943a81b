"""A task that is computed again: whether its rows are those that were written."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafkaprod.spark.options import CONTENT, COUNT, NONE, TransactionOptions
from kafkaprod.spark.replay import ReplayError, RowCount, check_rows
from kafkaprod.spark.write_marks import WriteMark

ROWS = [pa.record_batch({"v": [1, 2]}), pa.record_batch({"v": [3]})]
OTHER_ORDER = [pa.record_batch({"v": [3, 1, 2]})]
OTHER_ROWS = [pa.record_batch({"v": [1, 2, 4]})]
FEWER = [pa.record_batch({"v": [1, 2]})]


def options(verify: str) -> TransactionOptions:
    return TransactionOptions("p", "marks", 1000, verify)


def mark(verify: str) -> WriteMark:
    count = RowCount(options(verify))
    assert list(count.watch(ROWS)) == ROWS
    return WriteMark(7, count.rows, count.checksum, 0, "run", "write", "stream")


@pytest.mark.parametrize(
    ("verify", "rows", "is_same"),
    [
        (CONTENT, ROWS, True),
        (CONTENT, OTHER_ORDER, True),
        (CONTENT, OTHER_ROWS, False),
        (CONTENT, FEWER, False),
        (COUNT, OTHER_ROWS, True),
        (COUNT, FEWER, False),
        (NONE, FEWER, True),
    ],
)
def test_repeated_task_is_compared_as_its_option_says(verify: str, rows: list[pa.RecordBatch], is_same: bool) -> None:
    if is_same:
        check_rows(options(verify), mark(verify), rows, "task 3")
    else:
        with pytest.raises(ReplayError, match="task 3 has"):
            check_rows(options(verify), mark(verify), rows, "task 3")
