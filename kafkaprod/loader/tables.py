"""Turn rows of Arrow tables into columns of bytes: Parquet, Arrow files and streams, and tables of the CSV reader."""

from __future__ import annotations

import contextlib
import io
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, Final
from zipfile import BadZipFile

import numpy as np
import zstandard
from numpy.typing import NDArray

from kafkaprod._core.columns.arrow import ArrowStream
from kafkaprod._core.columns.columns import Column
from kafkaprod._core.text.json_rows import JsonEncoder
from kafkaprod.errors import SerializationError
from kafkaprod.loader.errors import BadRow, LoadError, missing_package
from kafkaprod.loader.inputs import Source, open_source
from kafkaprod.loader.plan import AVRO, JSON, MS_PER_UNIT, RowPlan, check_unit, parse_timestamps
from kafkaprod.loader.rows import RowBlock
from kafkaprod.tables.avro import AvroEncoder

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
        raise missing_package("pyarrow", what, "arrow") from error
    return pyarrow


def encode_json(batch: pa.RecordBatch) -> Column:
    """Return each row as a JSON object, with all its fields."""
    columns = next(iter(ArrowStream(batch)))
    rows = JsonEncoder(columns, range(len(columns.fields)), False).encode(0, MOST_JSON_BYTES)
    if len(rows) < batch.num_rows:
        raise LoadError(f"{batch.num_rows} rows are more than {MOST_JSON_BYTES} bytes as JSON")
    return rows


def encode_avro(batch: pa.RecordBatch, plan: RowPlan, reasons: dict[int, str]) -> Column:
    """Return each row as an Avro record; those that do not fit the schema go into `reasons` and are null."""
    columns = next(iter(ArrowStream(batch)))
    encoder = _avro_encoder(plan.avro_schema, plan.avro_schema_id)
    values: list[bytes | None] = []
    for place, row in enumerate(columns.to_pylist(range(len(columns.fields)), 0, columns.row_count)):
        try:
            values.append(encoder.encode_row(row))
        except SerializationError as error:
            reasons[place] = str(error)
            values.append(None)
    return Column.from_list(values)


@lru_cache(maxsize=1)
def _avro_encoder(schema: str, schema_id: int | None) -> AvroEncoder:
    return AvroEncoder(schema, schema_id)


def read_parquet(source: Source, plan: RowPlan, row: int, offset: int) -> Iterator[RowBlock]:
    """Read blocks of a Parquet file from a row on; row groups before it are not read."""
    import_pyarrow("Parquet")
    import pyarrow.parquet as pq

    with _seekable(source) as stream:
        with _errors_of(source):
            file = pq.ParquetFile(stream)
        plan.check_fields(file.schema_arrow.names, source.name)
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
                file = pyarrow.ipc.open_file(stream)
                schema, batches = file.schema, (file.get_batch(i) for i in range(file.num_record_batches))
            else:
                reader = pyarrow.ipc.open_stream(stream)
                schema, batches = reader.schema, iter(reader)
        plan.check_fields(schema.names, source.name)
        yield from _blocks(source, plan, _readable(source, batches), 0, row)


def _readable(source: Source, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass batches on; errors of reading them name the input, errors of those who use them are left alone."""
    while True:
        with _errors_of(source):
            batch = next(batches, None)
        if batch is None:
            return
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
    except (pyarrow.ArrowException, EOFError, zlib.error, zstandard.ZstdError, RuntimeError, BadZipFile) as error:
        raise LoadError(f"{source.name} is not a whole {source.format} file, or damaged: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise LoadError(f"{source.name} is not a whole {source.format} file, or damaged: {error}") from error


@contextlib.contextmanager
def _seekable(source: Source) -> Iterator[IO[bytes]]:
    """Open an input for reading anywhere: it is read into memory if it is compressed or a pipe."""
    with open_source(source) as stream:
        if source.compression == "none" and stream.seekable():
            yield stream
        else:
            with _errors_of(source):
                whole = io.BytesIO(stream.read())
            yield whole


def table_block(
    source: Source,
    plan: RowPlan,
    batch: pa.RecordBatch,
    row: int,
    end_offset: int = 0,
    whole: Column | None = None,
) -> RowBlock:
    """Return a batch as a block of records; `row` is the number of its first row, `whole` has the rows as they are."""
    count = batch.num_rows
    keep = np.ones(count, dtype=np.bool_)
    reasons: dict[int, str] = {}
    if plan.value == JSON:
        whole = encode_json(batch)
    elif plan.value == AVRO:
        whole = encode_avro(batch, plan, reasons)
    columns = {name: bytes_column(batch.column(name), name) for name in plan.fields}
    timestamps = None
    if plan.timestamp is not None:
        timestamps = _timestamps(batch.column(plan.timestamp), plan, columns, reasons, keep)
    partitions = plan.partition_column(columns, count, reasons, keep)
    value = plan.value_from(columns, whole)
    shown = encode_json(batch) if reasons and plan.value == AVRO else value
    block = RowBlock(
        np.arange(row, row + count, dtype=np.int64),
        value,
        row + count,
        end_offset,
        plan.key_from(columns, count),
        plan.headers_from(columns, count),
        timestamps,
        partitions,
        [BadRow(source.name, row + i, why, (shown[i] if shown else None) or b"") for i, why in sorted(reasons.items())],
    )
    if not reasons:
        return block
    keep[list(reasons)] = False
    return block.select(keep)


def bytes_column(array: pa.Array, name: str) -> Column:
    """Return an Arrow array as a column of bytes: text and binary unchanged, other types as pyarrow's text."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_dictionary(kind):
        return bytes_column(array.dictionary_decode(), name)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        validity, views, *data = array.buffers()
        return Column.from_views(views, data, validity, array.offset, len(array), name)
    if pa.types.is_fixed_size_binary(kind):
        validity, fixed = array.buffers()
        return Column.from_fixed(fixed, kind.byte_width, validity, array.offset, len(array), name)
    if not (_is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        try:
            array = array.cast(pa.large_string())
        except pa.ArrowException as error:
            raise LoadError(f"column {name!r} of type {kind} has no text form: {error}") from error
    if not len(array):
        return Column.from_list([], name)
    validity, offsets, text = array.buffers()
    width = np.int64 if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type) else np.int32
    return Column.from_offsets(
        np.frombuffer(offsets, dtype=width).data, text or b"", validity, array.offset, len(array), name
    )


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _timestamps(
    array: pa.Array, plan: RowPlan, columns: dict[str, Column], reasons: dict[int, str], keep: NDArray[np.bool_]
) -> NDArray[np.int64]:
    import pyarrow as pa

    assert plan.timestamp is not None
    if pa.types.is_timestamp(array.type) or pa.types.is_date(array.type):
        numbers = array.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        scale = 1.0
    elif pa.types.is_integer(array.type):
        numbers, scale = array.cast(pa.int64()), MS_PER_UNIT[plan.timestamp_unit or "ms"]
    else:
        texts = columns[plan.timestamp]
        return parse_timestamps([texts[i] for i in range(len(array))], plan, reasons, keep)
    times = numbers.fill_null(-1).to_numpy(zero_copy_only=False)
    if scale != 1.0:
        times = np.floor(times * scale).astype(np.int64)
    for i in np.flatnonzero(times < 0):
        reasons[int(i)] = f"{plan.timestamp} is null or before 1970"
    check_unit(times, np.full(len(times), pa.types.is_integer(array.type)), plan, reasons)
    floored: NDArray[np.int64] = np.maximum(times, 0)
    return floored
