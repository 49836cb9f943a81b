"""The reader of each format.

Those that need pyarrow are imported when they are asked for: most of a small load of lines is imports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kafkaprod.loader.errors import LoadError
from kafkaprod.loader.inputs import Source
from kafkaprod.loader.plan import AVRO, JSON, RAW, RowPlan
from kafkaprod.loader.rows import RowBlock
from kafkaprod.loader.text import read_array, read_lines

_ROWS_OF_TEXT: Final = {"lines": read_lines, "jsonl": read_lines, "json": read_array}
_DEFAULT_VALUE: Final = {"csv": JSON, "tsv": JSON, "parquet": JSON, "arrow": JSON}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read.

    Attributes:
        plan: What becomes of rows; its value is "" for the format's default.
        separator: Between fields of CSV; None: what the format has.
        column_types: Of CSV.
        text_columns: Take other columns of CSV as text.
        column_names: Of CSV without a first line of names.
    """

    plan: RowPlan
    separator: str | None = None
    column_types: Mapping[str, str] = field(default_factory=dict)
    text_columns: bool = False
    column_names: list[str] | None = None


def read_rows(source: Source, options: ReadOptions, row: int = 0, offset: int = 0) -> Iterator[RowBlock]:
    """Blocks of an input's rows, in order, from a row on, which begins at byte `offset` of its text.

    Raises:
        LoadError: The input is not what it seems, damaged, or lacks a column.
        OSError: It cannot be read.
    """
    plan = replace(options.plan, value=options.plan.value or _DEFAULT_VALUE.get(source.format, RAW))
    if source.format in _ROWS_OF_TEXT:
        return _ROWS_OF_TEXT[source.format](source, _text_plan(source, plan), row, offset)
    if source.format in ("csv", "tsv"):
        from kafkaprod.loader.csv_rows import CsvReader

        separator = options.separator or ("\t" if source.format == "tsv" else ",")
        reader = CsvReader(source, plan, separator, options.column_types, options.text_columns, options.column_names)
        return reader.blocks(row, offset)
    if plan.value == RAW:
        raise LoadError(f"{source.name}: rows of a {source.format} file have no raw form; say --value json or a column")
    from kafkaprod.loader import tables

    return (tables.read_parquet if source.format == "parquet" else tables.read_arrow)(source, plan, row, offset)


def _text_plan(source: Source, plan: RowPlan) -> RowPlan:
    if plan.value == AVRO:
        raise LoadError(f"{source.name}: --value avro needs typed columns: CSV, Parquet or Arrow")
    if source.format == "lines":
        if plan.fields:
            raise LoadError(
                f"{source.name}: lines have no columns such as {plan.fields[0]!r}; say --format jsonl or csv"
            )
        if plan.value == JSON:
            raise LoadError(f"{source.name}: lines are forwarded as they are; for JSON lines say --format jsonl")
        return plan
    return replace(plan, value=RAW if plan.value == JSON else plan.value, skips_blank_rows=source.format == "jsonl")
