"""Read inputs as a load does, without a broker."""

from __future__ import annotations

from pathlib import Path

from kafkaprod.loader.finding.inputs import find_sources
from kafkaprod.loader.formats.readers import ReadOptions, check_columns, check_readable, read_rows
from kafkaprod.tables.row_plan import RowPlan


def values_of(path: Path | str, options: ReadOptions | None = None) -> list[bytes | None]:
    """The values of all records, after the checks that a load makes before it begins; bad rows are as text."""
    options = options or ReadOptions(RowPlan(""))
    found: list[bytes | None] = []
    for source in find_sources([str(path)]):
        check_readable(source, options)
        check_columns(source, options)
        for block in read_rows(source, options):
            rows = {
                int(number): None if block.value is None else block.value[i] for i, number in enumerate(block.numbers)
            }
            rows |= {bad.row: f"bad: {bad.reason}".encode() for bad in block.bad}
            found += [rows[number] for number in sorted(rows)]
    return found
