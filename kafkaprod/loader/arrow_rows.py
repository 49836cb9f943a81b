"""Turn rows of Arrow tables into columns of bytes: Parquet, Arrow files and streams, and tables of the CSV reader."""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.arrow import ArrowBatch, ArrowStream
from kafkaprod._core.columns.columns import Column
from kafkaprod._core.columns.text_columns import TEXT_NULL, TEXT_NUMBER, TEXT_TIME
from kafkaprod._core.text.json_rows import JsonEncoder
from kafkaprod.errors import SerializationError
from kafkaprod.loader.arrow_ends import NotedReads, check_one_arrow_file, check_one_parquet_file
from kafkaprod.loader.errors import LoadError, check_fields, missing_package
from kafkaprod.loader.opening import open_source
from kafkaprod.loader.parquet_footer import check_parquet_footer
from kafkaprod.loader.rows import RowBlock, make_block
from kafkaprod.loader.source import Source
from kafkaprod.tables.avro import AvroEncoder
from kafkaprod.tables.row_plan import AVRO, JSON, Reasons, RowPlan

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 16 << 20  # of a table, at a time
MOST_JSON_BYTES: Final = 1 << 30


def import_pyarrow(what: str) -> Any:
    """Return pyarrow. Raises LoadError, which names the package to install."""
    try:
        import pyarrow
    except ImportError as error:
        raise missing_package("pyarrow", what) from error
    return pyarrow


def read_parquet(source: Source, plan: RowPlan, row: int, offset: int) -> Iterator[RowBlock]:
    """Read blocks of a Parquet file from a row on; row groups before it are not read."""
    import_pyarrow("Parquet")
    import pyarrow.parquet as pq

    with _seekable(source) as stream:
        with _errors_of(source):
            check_one_parquet_file(stream, source.name)
            check_parquet_footer(stream, source.name)
            file = pq.ParquetFile(stream, page_checksum_verification=True)
            column_names = file.schema_arrow.names  # a damaged one is no text
        check_fields(plan.fields, column_names, source.name)
        first = 0
        groups = list(range(file.num_row_groups))
        while groups and first + file.metadata.row_group(groups[0]).num_rows <= row:
            first += file.metadata.row_group(groups.pop(0)).num_rows
        names = list(plan.fields) if plan.value not in (JSON, AVRO) else None
        batches = file.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=names)
        yield from _blocks(source, plan, _readable(source, batches), first, row)


def read_arrow(source: Source, plan: RowPlan, row: int, offset: int) -> Iterator[RowBlock]:
    """Read blocks of an Arrow file, stream or Feather file from a row on."""
    pyarrow = import_pyarrow("Arrow")
    with _seekable(source) as stream:
        with _errors_of(source):
            head = stream.read(6)
            stream.seek(0)
            if head == b"ARROW1":
                check_one_arrow_file(stream, source.name)
                file = pyarrow.ipc.open_file(stream)
                batches: Iterator[Any] = map(file.get_batch, range(file.num_record_batches))
                schema = file.schema
            else:
                noted = NotedReads(stream)
                reader = pyarrow.ipc.open_stream(noted)
                schema, batches = reader.schema, _whole_stream(reader, noted, source.name)
            column_names = schema.names  # a damaged one is no text
        check_fields(plan.fields, column_names, source.name)
        yield from _blocks(source, plan, _readable(source, batches), 0, row)


def _whole_stream(reader: Iterator[pa.RecordBatch], noted: NotedReads, name: str) -> Iterator[pa.RecordBatch]:
    """Pass batches on; pyarrow takes the end of the bytes for the end of the stream, which has a mark of its own."""
    row_count = 0
    for batch in reader:
        row_count += batch.num_rows
        yield batch
    noted.check_end(name, row_count)


def _readable(source: Source, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass sound batches on; errors of reading them name the input, errors of those who use them are left alone."""
    while True:
        with _errors_of(source):
            batch = next(batches, None)
            if batch is None:
                return
            batch.validate(full=True)  # else a damaged offset sends what is beside the batch in memory
        yield batch


def _blocks(
    source: Source, plan: RowPlan, batches: Iterator[pa.RecordBatch], first: int, row: int
) -> Iterator[RowBlock]:
    for batch in batches:
        step = max(min(BATCH_ROWS, batch.num_rows * BATCH_BYTES // max(batch.nbytes, 1)), 1)
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
            begin = max(row - first, 0)
            if begin < part.num_rows:
                yield table_block(source, plan, part.slice(begin), first + begin)
            first += part.num_rows


@contextlib.contextmanager
def _errors_of(source: Source) -> Iterator[None]:
    """Turn pyarrow's errors about an input into ours."""
    pyarrow = import_pyarrow(source.format)
    try:
        yield
    except LoadError:
        raise
    except (pyarrow.ArrowException, RuntimeError, ValueError, OverflowError, struct.error) as error:
        raise LoadError(f"{source.name} is not a whole {source.format} file, or damaged: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise LoadError(f"{source.name} is not a whole {source.format} file, or damaged: {error}") from error


@contextlib.contextmanager
def _seekable(source: Source) -> Iterator[Any]:
    """Open an input for reading anywhere: it is read into memory if it is compressed or a pipe."""
    with open_source(source) as stream:
        if source.compression == "none" and stream.seekable():
            yield stream
        else:
            yield io.BytesIO(stream.readall())


def table_block(
    source: Source,
    plan: RowPlan,
    batch: pa.RecordBatch,
    row: int,
    end_offset: int = 0,
    whole: Column | None = None,
) -> RowBlock:
    """Return a batch as a block of records; `row` is the number of its first row, `whole` has the rows as they are."""
    rows = ArrowRows(batch)
    reasons: Reasons = {}
    if plan.value == JSON:
        whole = rows.json()
    elif plan.value == AVRO:
        whole = rows.avro(plan, reasons)
    mapped = plan.map(rows, whole, reasons)
    shown = rows.json() if reasons and plan.value == AVRO else mapped.value
    return make_block(source.name, mapped, reasons, row, end_offset, rows.row_count, shown=shown)


class ArrowRows:
    """Has the columns of an Arrow batch.

    Args:
        batch: A pyarrow RecordBatch.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._columns: ArrowBatch = next(iter(ArrowStream(batch)))
        self.row_count: int = batch.num_rows
        self._texts: dict[str, Column] = {}

    def text(self, name: str) -> Column:
        """Return a column of text or bytes as it is, others as pyarrow's text."""
        if name not in self._texts:
            self._texts[name] = self._text(name)
        return self._texts[name]

    def _text(self, name: str) -> Column:
        import pyarrow as pa

        array = self._batch.column(name)
        kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
        if any(is_kind(kind) for is_kind in _byte_types()):
            return self._columns.byte_column(self._batch.schema.get_field_index(name))
        try:
            array = array.cast(pa.large_string())
        except pa.ArrowException as error:
            raise LoadError(f"column {name!r} of type {kind} has no text form: {error}") from error
        return next(iter(ArrowStream(pa.record_batch([array], names=[name])))).byte_column(0)

    def times(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.uint8]] | None:
        """See Rows."""
        import pyarrow as pa

        array, status = self._batch.column(name), TEXT_NUMBER
        if pa.types.is_timestamp(array.type) or pa.types.is_date(array.type):
            array, status = array.cast(pa.timestamp("ms"), safe=False), TEXT_TIME
        elif not pa.types.is_integer(array.type):
            return None
        numbers = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).copy()
        statuses = np.full(self.row_count, status, dtype=np.uint8)
        if array.null_count:
            statuses[array.is_null().to_numpy(zero_copy_only=False)] = TEXT_NULL
        return numbers, statuses

    def json(self) -> Column:
        """Return each row as a JSON object, with all its fields."""
        rows = JsonEncoder(self._columns, range(len(self._columns.fields)), False).encode(0, MOST_JSON_BYTES)
        if len(rows) < self.row_count:
            raise LoadError(f"{self.row_count} rows are more than {MOST_JSON_BYTES} bytes as JSON")
        return rows

    def avro(self, plan: RowPlan, reasons: Reasons) -> Column:
        """Return each row as an Avro record; those that do not fit the schema go into `reasons` and are null."""
        encoder = _avro_encoder(plan.avro_schema, plan.avro_schema_id)
        indexes = list(range(len(self._columns.fields)))
        column = encoder.encode_compiled(self._columns, indexes, 0, self.row_count)
        if column is not None:
            return column
        values: list[bytes | None] = []
        for place, row in enumerate(self._columns.to_pylist(indexes, 0, self.row_count)):
            try:
                values.append(encoder.encode_row(row))
            except SerializationError as error:
                reasons[place] = str(error)
                values.append(None)
        return Column.from_list(values)


@lru_cache(maxsize=1)
def _byte_types() -> tuple[Callable[[Any], bool], ...]:
    from pyarrow import types

    views = types.is_string_view, types.is_binary_view, types.is_fixed_size_binary
    return types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, *views


@lru_cache(maxsize=1)
def _avro_encoder(schema: str, schema_id: int | None) -> AvroEncoder:
    return AvroEncoder(schema, schema_id)
