"""Read the rows of Parquet, Arrow and ORC files, and check their columns before anything is made or sent."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkaprod.loader.formats.arrow_ends import (
    ARROW_MAGIC,
    NotedReads,
    check_one_arrow_file,
    check_one_orc_file,
)
from kafkaprod.loader.formats.arrow_forms import changed_forms
from kafkaprod.loader.formats.arrow_rows import has_bytes, import_pyarrow, value_type_of
from kafkaprod.loader.formats.avro_files import AvroBlocks, read_avro
from kafkaprod.loader.formats.avro_types import arrow_schema
from kafkaprod.loader.formats.orc_footer import check_orc_footer
from kafkaprod.loader.formats.parquet_enums import as_texts, schema_with_enums
from kafkaprod.loader.formats.parquet_footer import check_parquet_footer
from kafkaprod.loader.formats.parquet_pages import WatchedPages, columns_of_words
from kafkaprod.loader.formats.rows import RowBlock
from kafkaprod.loader.formats.table_batches import BATCH_ROWS, blocks_of, checked_names, errors_of, readable, seekable
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError
from kafkaprod.loader.opening.opening import open_source
from kafkaprod.loader.opening.source import Source
from kafkaprod.loader.opening.table_columns import in_table, schema_in_table
from kafkaprod.tables.row_plan import AVRO, RowPlan

if TYPE_CHECKING:
    import pyarrow as pa

COLUMN_BUFFER_BYTES: Final = 1 << 20
_OLD_DECIMALS: Final = "decimals of Hive 0.11"


def read_table(source: Source, plan: RowPlan, row: int) -> Iterator[RowBlock]:
    """Read blocks of a Parquet, Arrow, ORC or Avro file from a row on. Raises LoadError, OSError."""
    return _READERS[source.format](source, plan, row)


def _read_parquet(source: Source, plan: RowPlan, row: int) -> Iterator[RowBlock]:
    """Row groups before the row are not read."""
    import_pyarrow("Parquet")
    with seekable(source) as stream:
        pages = WatchedPages(stream, source.name, plan.max_row_bytes)
        with errors_of(source):
            file, stored_forms = _parquet_file(pages, source, plan)
            schema = schema_with_enums(file)
        names = checked_names(source, plan, _schema_in_table(schema, source))
        _check_stored_forms(stored_forms, names, source)
        if source.table_columns is None and plan.value != AVRO:
            words = columns_of_words(file, {name for name in names if name not in plan.types})
            if words:
                with errors_of(source):
                    file, _ = _parquet_file(pages, source, plan, words)
                    schema = schema_with_enums(file)
        first = 0
        groups = list(range(file.num_row_groups))
        while groups and first + file.metadata.row_group(groups[0]).num_rows <= row:
            first += file.metadata.row_group(groups.pop(0)).num_rows
        pages.watch(file.metadata, groups)
        columns = None if names == schema.names else names
        if source.table_columns is not None:
            columns = [column.name for column in source.table_columns if column.field.name in names]
        batches = file.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=columns)
        batches = as_texts(batches, file.schema_arrow, schema)
        if source.table_columns is not None:
            batches = in_table(batches, source.table_columns)
        yield from blocks_of(source, plan, readable(source, batches, names), first, row)


def _parquet_file(stream: Any, source: Source, plan: RowPlan, words: Sequence[str] = ()) -> tuple[Any, dict[str, str]]:
    """Return the file, and the types of columns that pyarrow shows as what they are stored as.

    Args:
        stream: The file.
        source: The input.
        plan: What becomes of rows.
        words: Columns whose values are kept once, as in the file, and not written out for each row.
    """
    import pyarrow.parquet as pq

    stored_forms = check_parquet_footer(stream, source.name)
    # In ns, pyarrow's default, INT96 has no dates before 1677 and after 2262: other dates came without an error.
    unit = "us" if plan.value == AVRO else "ms"
    # By default pyarrow reads ahead into memory what all row groups have of the wanted columns.
    file = pq.ParquetFile(
        stream,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit=unit,
        pre_buffer=False,
        read_dictionary=list(words) or None,
        buffer_size=COLUMN_BUFFER_BYTES,
    )
    return file, stored_forms


def _check_stored_forms(stored_forms: dict[str, str], names: Sequence[str], source: Source) -> None:
    """Refuse columns that would be sent as what their values are stored as. Raises LoadRefusedError."""
    name = next((name for name in names if name in stored_forms), None)
    if name is not None:
        raise LoadRefusedError(
            f"{source.name}: column {name!r} has Parquet's type {stored_forms[name]}, of which pyarrow shows only how "
            "its values are stored: leave it out with --columns, or write it as text with what made the file"
        )


def _schema_in_table(schema: pa.Schema, source: Source) -> pa.Schema:
    return schema if source.table_columns is None else schema_in_table(schema, source.table_columns)


def check_columns(source: Source, plan: RowPlan) -> set[str]:
    """Check by its schema that the columns of a table's file have a form. A pipe is checked when it is read.

    Returns:
        What the rows have that version 0.1 wrote in another way.

    Raises:
        LoadRefusedError: A column is missing, there are two of one name, or its type has no form.
    """
    if source.pipe is not None:
        return set()
    try:
        is_file = source.format in ("parquet", "orc") or (source.format == "arrow" and _is_arrow_file(source))
        with (seekable if is_file else open_source)(source) as stream, errors_of(source):
            schema, found, stored_forms = _schema_of(stream, source, plan, is_file=is_file)
            names = schema.names
        names = checked_names(source, plan, schema)
        _check_stored_forms(stored_forms, names, source)
        if _OLD_DECIMALS in found:
            _check_decimals(schema, names, source.name)
    except LoadRefusedError:
        raise
    except LoadError:  # damaged: whoever reads it says so, behind the rows of the inputs before it
        return set()
    if source.format in ("orc", "avro"):  # which version 0.1 did not read
        return set()
    if plan.key is not None or plan.headers:
        found |= {
            "text of keys" for name in plan.fields if name in names and not _has_old_text(schema.field(name).type)
        }
    return found | changed_forms(schema, names)


def _schema_of(
    stream: Any, source: Source, plan: RowPlan, *, is_file: bool
) -> tuple[pa.Schema, set[str], dict[str, str]]:
    import pyarrow as pa

    if source.format == "parquet":
        file, stored_forms = _parquet_file(stream, source, plan)
        schema = schema_with_enums(file)
        found = _int96_of(file) | (set() if schema.equals(file.schema_arrow) else {"ENUM"})
        return _schema_in_table(schema, source), found, stored_forms
    if source.format == "orc":
        orc = _orc_file(stream, source.name)
        return orc.schema, _old_decimals_of(orc), {}
    if source.format == "avro":
        return arrow_schema(AvroBlocks(stream, source.name, plan.max_row_bytes).schema, source.name), set(), {}
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(stream).schema, set(), {}


def _int96_of(file: Any) -> set[str]:
    return {"INT96" for i in range(len(file.schema)) if file.schema.column(i).physical_type == "INT96"}


def _has_old_text(kind: pa.DataType) -> bool:
    """Return whether the text of a key is what it was in version 0.1, which had pyarrow's."""
    from pyarrow import types

    kind = value_type_of(kind)
    return has_bytes(kind) or types.is_integer(kind) or types.is_boolean(kind)


def _read_arrow(source: Source, plan: RowPlan, row: int) -> Iterator[RowBlock]:
    """Read an Arrow file, stream or Feather file."""
    pyarrow = import_pyarrow("Arrow")
    is_file = _is_arrow_file(source)
    with (seekable if is_file else open_source)(source) as stream:
        with errors_of(source):
            if is_file:
                check_one_arrow_file(stream, source.name)
                file = pyarrow.ipc.open_file(stream)
                batches: Iterator[Any] = map(file.get_batch, range(file.num_record_batches))
                schema = file.schema
            else:
                noted = NotedReads(stream, source)
                reader = pyarrow.ipc.open_stream(noted)
                schema, batches = reader.schema, _whole_stream(reader, noted, source.name)
        names = checked_names(source, plan, schema)
        yield from blocks_of(source, plan, readable(source, batches, names), 0, row)


def _is_arrow_file(source: Source) -> bool:
    """Return whether it is a file of Arrow, which is read from its end, and no stream."""
    with open_source(source) as stream:
        return stream.read(len(ARROW_MAGIC)) == ARROW_MAGIC


def _whole_stream(reader: Iterator[pa.RecordBatch], noted: NotedReads, name: str) -> Iterator[pa.RecordBatch]:
    """Pass batches on; pyarrow takes the end of the bytes for the end of the stream, which has a mark of its own."""
    row_count = 0
    for batch in reader:
        row_count += batch.num_rows
        yield batch
    noted.check_end(name, row_count)


def _read_orc(source: Source, plan: RowPlan, row: int) -> Iterator[RowBlock]:
    import_pyarrow("ORC")
    with seekable(source) as stream:
        with errors_of(source):
            file = _orc_file(stream, source.name)
            check_one_orc_file(file, stream.seek(0, io.SEEK_END), source.name)
            schema = file.schema
        names = checked_names(source, plan, schema)
        if _old_decimals_of(file):
            _check_decimals(schema, names, source.name)
        yield from blocks_of(source, plan, readable(source, _stripes(file, names, source.name), names), 0, row)


def _orc_file(stream: Any, name: str) -> Any:
    import pyarrow.orc

    check_orc_footer(stream, name)
    return pyarrow.orc.ORCFile(stream)


def _old_decimals_of(file: Any) -> set[str]:
    return {_OLD_DECIMALS} if file.writer_version == "ORIGINAL" else set()


def _check_decimals(schema: pa.Schema, names: Sequence[str], source: str) -> None:
    """Refuse decimals that may have lost digits.

    Files of Hive 0.11 say no precision, and each value has a scale of its own; pyarrow cuts them all to six digits. It
    shows such a column as one of decimals of 38 digits, which writers before Hive 0.14 (HIVE-8732) seldom made.
    """
    for name in names:
        if "decimal128(38, 6)" in str(schema.field(schema.get_field_index(name)).type):
            raise LoadRefusedError(
                f"{source}: column {name!r} may have decimals of Hive 0.11, which pyarrow cuts to six digits behind "
                "the point: leave it out with --columns, or have Hive or Spark write the file again"
            )


def _stripes(file: Any, names: list[str], name: str) -> Iterator[pa.RecordBatch]:
    """Read the stripes, all of which must have the rows that the footer counts."""
    # pyarrow takes a dot in a name for the way into a struct, and reads another column.
    is_plain = bool(names) and not any("." in each for each in file.schema.names)
    row_count = 0
    for number in range(file.nstripes):
        batch = file.read_stripe(number, columns=names if is_plain else None)
        row_count += batch.num_rows
        yield batch
    if row_count != file.nrows:
        raise LoadError(f"{name} is damaged: its stripes have {row_count:,} rows, and its footer counts {file.nrows:,}")


def _read_avro(source: Source, plan: RowPlan, row: int) -> Iterator[RowBlock]:
    import_pyarrow("Avro")
    with open_source(source) as stream:
        with errors_of(source):
            file = AvroBlocks(stream, source.name, plan.max_row_bytes)
            schema = arrow_schema(file.schema, source.name)
        names = checked_names(source, plan, schema)
        batches = read_avro(file, schema, names, row)
        while True:
            with errors_of(source):
                found = next(batches, None)
            if found is None:
                return
            first, batch = found
            yield from blocks_of(source, plan, readable(source, iter((batch,)), names), first, row)


_READERS: Final = {"parquet": _read_parquet, "arrow": _read_arrow, "orc": _read_orc, "avro": _read_avro}
