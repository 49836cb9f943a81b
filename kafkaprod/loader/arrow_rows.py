"""Turn rows of Arrow tables into columns of bytes: Parquet, Arrow files and streams, and tables of the CSV reader."""

from __future__ import annotations

import contextlib
import io
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.arrow import ArrowBatch, ArrowStream
from kafkaprod._core.columns.columns import Column
from kafkaprod._core.columns.row_partitions import add_sizes
from kafkaprod._core.columns.text_columns import TEXT_NULL, TEXT_NUMBER, TEXT_TIME
from kafkaprod._core.text.json_rows import JsonEncoder
from kafkaprod.errors import SerializationError
from kafkaprod.loader.arrow_ends import NotedReads, check_one_arrow_file, check_one_parquet_file
from kafkaprod.loader.arrow_forms import (
    changed_forms,
    check_forms,
    names_to_read,
    with_folder_columns,
    with_texts,
    without_codings,
)
from kafkaprod.loader.errors import LoadError, LoadRefusedError, missing_package
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
    with _seekable(source) as stream:
        with _errors_of(source):
            check_one_parquet_file(stream, source.name)
            file = _parquet_file(stream, source, plan)
        names = _checked_names(source, plan, file.schema_arrow)
        first = 0
        groups = list(range(file.num_row_groups))
        while groups and first + file.metadata.row_group(groups[0]).num_rows <= row:
            first += file.metadata.row_group(groups.pop(0)).num_rows
        columns = None if names == file.schema_arrow.names else names
        batches = file.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=columns)
        yield from _blocks(source, plan, _readable(source, batches, names), first, row)


def _parquet_file(stream: Any, source: Source, plan: RowPlan) -> Any:
    import pyarrow.parquet as pq

    check_parquet_footer(stream, source.name)
    # In ns, pyarrow's default, INT96 has no dates before 1677 and after 2262: other dates came without an error.
    unit = "us" if plan.value == AVRO else "ms"
    return pq.ParquetFile(stream, page_checksum_verification=True, coerce_int96_timestamp_unit=unit)


def check_columns(source: Source, plan: RowPlan) -> set[str]:
    """Check by its schema that the columns of a Parquet or Arrow file have a form. A pipe is checked when it is read.

    Returns:
        What the rows have that version 0.1 wrote in another way.

    Raises:
        LoadRefusedError: A column is missing, there are two of one name, or its type has no form.
    """
    if source.pipe is not None:
        return set()
    try:
        with _seekable(source) as stream, _errors_of(source):
            if source.format == "parquet":
                file = _parquet_file(stream, source, plan)
                schema, found = file.schema_arrow, _int96_of(file)
            else:
                schema, found = _arrow_schema(stream), set()
            names = schema.names
        names = _checked_names(source, plan, schema)
    except LoadRefusedError:
        raise
    except LoadError:  # damaged: whoever reads it says so, behind the rows of the inputs before it
        return set()
    if plan.key is not None or plan.headers:
        found |= {
            "text of keys" for name in plan.fields if name in names and not _has_old_text(schema.field(name).type)
        }
    return found | changed_forms(schema, names)


def _int96_of(file: Any) -> set[str]:
    return {"INT96" for i in range(len(file.schema)) if file.schema.column(i).physical_type == "INT96"}


def _arrow_schema(stream: Any) -> Any:
    import pyarrow as pa

    head = stream.read(6)
    stream.seek(0)
    return (pa.ipc.open_file if head == b"ARROW1" else pa.ipc.open_stream)(stream).schema


def _checked_names(source: Source, plan: RowPlan, schema: pa.Schema) -> list[str]:
    """Return the columns to read, all of which have a form."""
    with _errors_of(source):
        names = schema.names  # a damaged one is no text
    names = names_to_read(plan, names, source.name, [name for name, _ in source.folder_columns])
    check_forms(schema, names, source.name)
    return names


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
        names = _checked_names(source, plan, schema)
        yield from _blocks(source, plan, _readable(source, batches, names), 0, row)


def _whole_stream(reader: Iterator[pa.RecordBatch], noted: NotedReads, name: str) -> Iterator[pa.RecordBatch]:
    """Pass batches on; pyarrow takes the end of the bytes for the end of the stream, which has a mark of its own."""
    row_count = 0
    for batch in reader:
        row_count += batch.num_rows
        yield batch
    noted.check_end(name, row_count)


def _readable(source: Source, batches: Iterator[pa.RecordBatch], names: list[str]) -> Iterator[pa.RecordBatch]:
    """Pass sound batches on, with some columns; errors of reading them name the input, those of their use do not."""
    while True:
        with _errors_of(source):
            batch = next(batches, None)
            if batch is None:
                return
            if batch.schema.names != names:
                batch = batch.select(names)
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
    rows = ArrowRows(with_folder_columns(batch, source.folder_columns, plan))
    reasons: Reasons = {}
    if plan.value == JSON:
        whole = rows.json(plan.columns)
    elif plan.value == AVRO:
        whole = rows.avro(plan, reasons)
    mapped = plan.map(rows, whole, reasons)
    shown = rows.json(plan.columns) if reasons and plan.value == AVRO else mapped.value
    return make_block(source.name, mapped, reasons, row, end_offset, rows.row_count, shown=shown)


class ArrowRows:
    """Has the columns of an Arrow batch.

    Args:
        batch: A pyarrow RecordBatch.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = without_codings(batch)
        self._columns = _columns_of(self._batch)
        self._shown = with_texts(self._batch)
        self._shown_columns = self._columns if self._shown is self._batch else _columns_of(self._shown)
        self.row_count: int = batch.num_rows
        self._texts: dict[str, Column] = {}

    def text(self, name: str) -> Column:
        """Return a column of text or bytes as it is, others as in JSON, without quotes."""
        if name not in self._texts:
            self._texts[name] = self._text(name)
        return self._texts[name]

    def _text(self, name: str) -> Column:
        import pyarrow as pa

        index = self._shown.schema.get_field_index(name)
        array = self._shown.column(index)
        kind = array.type.storage_type if hasattr(array.type, "storage_type") else array.type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if any(is_kind(kind) for is_kind in _byte_types()):
            return self._shown_columns.byte_column(index)
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):  # pyarrow's text is that of JSON
            storage = array.storage if hasattr(array.type, "storage_type") else array
            return _byte_column(storage.cast(pa.large_string()))
        return self._json_text(index, is_scalar=not pa.types.is_nested(kind))

    def _json_text(self, index: int, *, is_scalar: bool) -> Column:
        """Cut the values of a column out of its rows as JSON."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = JsonEncoder(self._shown_columns, [index], False).encode(0, MOST_JSON_BYTES)
        self._check_all(rows)
        sizes = np.zeros(len(rows) + 1, dtype=np.int64)
        add_sizes(rows, sizes[1:].data)
        data = b"".join(row or b"" for row in rows.rows(0, len(rows)))
        offsets = pa.py_buffer(np.cumsum(sizes))
        texts = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(rows), [None, offsets, pa.py_buffer(data)])
        start = len(json.dumps({self._shown.schema.names[index]: 0}, ensure_ascii=False).encode()) - len(" 0}")
        texts = pc.binary_slice(texts, start, -1)
        texts = pc.if_else(pc.equal(texts, b"null"), pa.scalar(None, texts.type), texts)
        if is_scalar:
            texts = pc.ascii_trim(texts.cast(pa.large_string()), '"')
        return _byte_column(texts)

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

    def json(self, names: Sequence[str] | None = None) -> Column:
        """Return each row as a JSON object, with all its fields or some."""
        rows = JsonEncoder(self._shown_columns, self._indexes(names), False).encode(0, MOST_JSON_BYTES)
        self._check_all(rows)
        return rows

    def _indexes(self, names: Sequence[str] | None) -> list[int]:
        if names is None:
            return list(range(self._batch.num_columns))
        return [self._batch.schema.get_field_index(name) for name in names]

    def _check_all(self, rows: Column) -> None:
        if len(rows) < self.row_count:
            raise LoadError(f"{self.row_count} rows are more than {MOST_JSON_BYTES} bytes as JSON")

    def avro(self, plan: RowPlan, reasons: Reasons) -> Column:
        """Return each row as an Avro record; those that do not fit the schema go into `reasons` and are null."""
        encoder = _avro_encoder(plan.avro_schema, plan.avro_schema_id)
        indexes = self._indexes(plan.columns)
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


def _columns_of(batch: pa.RecordBatch) -> ArrowBatch:
    return next(iter(ArrowStream(batch)))


def _byte_column(array: pa.Array) -> Column:
    import pyarrow as pa

    return _columns_of(pa.record_batch([array], names=["text"])).byte_column(0)


def _has_old_text(kind: pa.DataType) -> bool:
    """Return whether the text of a key is what it was in version 0.1, which had pyarrow's."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return any(is_kind(kind) for is_kind in (*_byte_types(), types.is_integer, types.is_boolean))


@lru_cache(maxsize=1)
def _byte_types() -> tuple[Callable[[Any], bool], ...]:
    from pyarrow import types

    views = types.is_string_view, types.is_binary_view, types.is_fixed_size_binary
    return types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, *views


@lru_cache(maxsize=1)
def _avro_encoder(schema: str, schema_id: int | None) -> AvroEncoder:
    return AvroEncoder(schema, schema_id)
