"""Choose the reader of each format.

Readers that need pyarrow are imported when they are used: imports take most of the time of a small load of lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from kafkaprod.loader.formats.json_texts import elements_start, read_array, read_documents
from kafkaprod.loader.formats.limits import shortages_named
from kafkaprod.loader.formats.rows import RowBlock
from kafkaprod.loader.formats.text import NEWLINE, check_first_line, read_lines, text_start
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError, missing_package
from kafkaprod.loader.opening.source import BINARY_FORMATS, Source
from kafkaprod.tables.row_plan import AVRO, JSON, RAW, RowPlan

if TYPE_CHECKING:
    from kafkaprod.loader.formats.csv_rows import CsvOptions

_ROWS_OF_TEXT: Final = {"lines": read_lines, "jsonl": read_lines, "json": read_array, "documents": read_documents}
_TABLES: Final = ("csv", "tsv", *BINARY_FORMATS)
SEPARATOR_LINE: Final = "sep= line"  # of CSV, which version 0.1 sent as a row


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Describes how to read inputs.

    Attributes:
        plan: What becomes of rows; its value is "" for the format's default.
        separator: Between fields of CSV; None: the format's own.
        quote: Around fields of CSV; None: nowhere.
        column_types: The types of columns; others are text in CSV, and what they are in the file elsewhere.
        infer_types: Other CSV columns may be numbers or bools, by their first values.
        columns: The columns of tables to write, those of folders too; None: all.
        column_names: The names of all columns of CSV, whose first line is a row then; None: the first line has them.
        nulls: Texts besides the empty one that stand for null in CSV columns that are not text.
        skip_lines: Lines above the column names of CSV, or its first row, that are left out.
        comment: Begins lines of CSV that are left out; empty: there are none.
        escape: Stands before a quote, or itself, in a quoted field of CSV; empty: there is none.
        elements: The field of a JSON object whose array has the rows; empty: the whole file is the array.
    """

    plan: RowPlan
    separator: str | None = None
    quote: str | None = '"'
    column_types: Mapping[str, str] = field(default_factory=dict)
    infer_types: bool = False
    columns: list[str] | None = None
    column_names: list[str] | None = None
    nulls: tuple[str, ...] = ()
    skip_lines: int = 0
    comment: str = ""
    escape: str = ""
    elements: str = ""


def check_readable(source: Source, options: ReadOptions) -> None:
    """Check, before anything is opened or made, that the rows can be read in this form.

    Raises:
        LoadRefusedError: A package is not installed, or rows of the format do not have the form.
    """
    plan = _plan_of(source, options)
    if source.format in _ROWS_OF_TEXT:
        return
    if source.format in ("csv", "tsv"):
        if plan.value == RAW and not plan.needs_fields:
            return
    elif plan.value == RAW:
        raise LoadRefusedError(
            f"{source.name}: rows of a {source.format} file have no raw form; use --value json or a column"
        )
    from kafkaprod.loader.formats.arrow_rows import import_pyarrow

    import_pyarrow(source.format)
    if source.format == "avro" and find_spec("fastavro") is None:
        raise missing_package("fastavro", "Avro", "avro")


def check_columns(source: Source, options: ReadOptions) -> set[str]:
    """Check by the schema of a table's file, before anything is made or sent, that its rows have a form.

    Returns:
        What the rows have that version 0.1 wrote in another way: a load of it cannot be continued.

    Raises:
        LoadRefusedError: A column is missing, there are two of one name, or its type has no form.
        OSError: The input cannot be read.
    """
    plan = _plan_of(source, options)
    if source.format in _ROWS_OF_TEXT:
        _check_text(source, _text_plan(source, plan), options)
    if source.format not in BINARY_FORMATS:
        return _changed_texts(source, options, plan) if source.format in ("csv", "tsv") else set()
    from kafkaprod.loader.formats.arrow_files import check_columns as check

    return check(source, plan)


def _check_text(source: Source, plan: RowPlan, options: ReadOptions) -> None:
    """Refuse a file that is not what its format says before a topic is made for it, by its beginning."""
    if source.pipe is not None:
        return
    try:
        if source.format == "json":
            elements_start(source, plan, options.elements)
        elif source.format == "jsonl":
            check_first_line(source)
        elif plan.delimiter == NEWLINE:
            text_start(source)
    except LoadRefusedError:
        raise
    except LoadError:  # whoever reads it says so, behind the rows of the inputs before it
        return


def _changed_texts(source: Source, options: ReadOptions, plan: RowPlan) -> set[str]:
    has_types = bool(options.column_types) or options.infer_types
    found = {"text of keys"} if has_types and (plan.key is not None or plan.headers) else set[str]()
    if source.pipe is not None:
        return found
    from kafkaprod.loader.formats.csv_rows import CsvReader

    try:
        has_separator_line = CsvReader(source, plan, csv_options(source, options)).check()
    except LoadRefusedError:
        raise
    except LoadError:  # whoever reads it says so, behind the rows of the inputs before it
        return found
    return found | {SEPARATOR_LINE} if has_separator_line else found


def _plan_of(source: Source, options: ReadOptions) -> RowPlan:
    value = options.plan.value or (JSON if source.format in _TABLES else RAW)
    columns = None if options.columns is None else tuple(options.columns)
    if source.format not in BINARY_FORMATS:
        return replace(options.plan, value=value, columns=columns)
    return replace(options.plan, value=value, columns=columns, types=options.column_types)


def read_rows(source: Source, options: ReadOptions, row: int = 0, offset: int = 0) -> Iterator[RowBlock]:
    """Read blocks of an input's rows, in order, from a row on, which begins at byte `offset` of its text.

    Raises:
        LoadError: The input is not what it seems, damaged, or lacks a column.
        OSError: It cannot be read.
    """
    check_readable(source, options)
    return _guarded(_blocks(source, _plan_of(source, options), options, row, offset), source)


def _guarded(blocks: Iterator[RowBlock], source: Source) -> Iterator[RowBlock]:
    while True:
        with shortages_named(source.name):
            block = next(blocks, None)
        if block is None:
            return
        yield block


def _blocks(source: Source, plan: RowPlan, options: ReadOptions, row: int, offset: int) -> Iterator[RowBlock]:
    if source.format in _ROWS_OF_TEXT:
        plan = _text_plan(source, plan)
        if source.format == "json":
            return read_array(source, plan, row, offset, options.elements)
        return _ROWS_OF_TEXT[source.format](source, plan, row, offset)
    if source.format in ("csv", "tsv"):
        from kafkaprod.loader.formats.csv_rows import CsvReader

        return CsvReader(source, plan, csv_options(source, options)).blocks(row, offset)
    from kafkaprod.loader.formats.arrow_files import read_table

    return read_table(source, plan, row)


def csv_options(source: Source, options: ReadOptions) -> CsvOptions:
    """Return how a CSV or TSV input is written."""
    from kafkaprod.loader.formats.csv_rows import CsvOptions

    return CsvOptions(
        separator=options.separator or ("\t" if source.format == "tsv" else ","),
        is_separator_given=options.separator is not None,
        quote=options.quote,
        escape=options.escape,
        types=dict(options.column_types),
        infers_types=options.infer_types,
        names=options.column_names,
        nulls=["", *options.nulls],
        skip_lines=options.skip_lines,
        comment=options.comment.encode(),
    )


def _text_plan(source: Source, plan: RowPlan) -> RowPlan:
    if plan.value == AVRO:
        raise LoadRefusedError(f"{source.name}: --value avro needs typed columns: CSV, Parquet, Arrow, ORC or Avro")
    if source.format == "lines":
        other = next((name for name in plan.fields if name not in dict(source.folder_columns)), None)
        if other is not None:
            raise LoadRefusedError(f"{source.name}: lines have no columns such as {other!r}; use --format jsonl or csv")
        if plan.value == JSON:
            raise LoadRefusedError(f"{source.name}: lines are forwarded as they are; for JSON lines use --format jsonl")
        return plan
    return replace(plan, value=RAW if plan.value == JSON else plan.value, skips_blank_rows=source.format == "jsonl")
