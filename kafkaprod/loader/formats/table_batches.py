"""Turn the batches of a table's file into blocks: the columns that are wanted, as the types that are wanted."""

from __future__ import annotations

import contextlib
import struct
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkaprod.loader.formats.arrow_casts import cast_columns, cast_schema
from kafkaprod.loader.formats.arrow_forms import check_forms, names_to_read
from kafkaprod.loader.formats.arrow_rows import import_pyarrow, table_block
from kafkaprod.loader.formats.limits import most_content_bytes, parts_of_views, row_sizes, shortages_named
from kafkaprod.loader.formats.rows import RowBlock
from kafkaprod.loader.opening.errors import LoadError, check_fields
from kafkaprod.loader.opening.opening import open_source
from kafkaprod.loader.opening.source import Source
from kafkaprod.tables.row_plan import RowPlan

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS: Final = 65_536
MOST_ROWS: Final = 1 << 20  # of a batch, that are looked at at a time
BATCH_BYTES: Final = 16 << 20  # of a table, at a time
MEMORY_BYTES: Final = 64 << 20  # of a file's copy that is held in memory
COPY_BYTES: Final = 1 << 20


def checked_names(source: Source, plan: RowPlan, schema: pa.Schema) -> list[str]:
    """Return the columns to read, all of which have a form, perhaps after a cast. Raises LoadError."""
    with errors_of(source):
        names = schema.names  # a damaged one is no text
    folders = [name for name, _ in source.folder_columns]
    check_fields(list(plan.types), [*names, *folders], source.name)
    names = names_to_read(plan, names, source.name, folders)
    check_forms(cast_schema(schema, names, plan.types, source.name), names, source.name)
    return names


def readable(source: Source, batches: Iterator[pa.RecordBatch], names: list[str]) -> Iterator[pa.RecordBatch]:
    """Pass sound batches on, with some columns; errors of reading them name the input, those of their use do not."""
    while True:
        with errors_of(source):
            batch = next(batches, None)
            if batch is None:
                return
            if batch.schema.names != names:
                batch = batch.select(names)
        for part in parts_of_views(batch, source.name):
            with errors_of(source):
                part.validate(full=True)  # else a damaged offset sends what is beside the batch in memory
            yield part


def blocks_of(
    source: Source, plan: RowPlan, batches: Iterator[pa.RecordBatch], first: int, row: int
) -> Iterator[RowBlock]:
    """Cut batches into blocks.

    Args:
        source: The input.
        plan: What becomes of rows.
        batches: Sound, with the columns that are needed.
        first: The number of their first row.
        row: Rows before this one are left out.
    """
    for batch in _in_parts(batches):
        for start, count in _steps(batch, source, plan.max_row_bytes, first):
            part = batch.slice(start, count)
            begin = max(row - first, 0)
            if begin < part.num_rows:
                rows, reasons = cast_columns(part.slice(begin), plan.types)
                yield table_block(source, plan, rows, first + begin, bad=reasons)
            first += part.num_rows


def _in_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut batches whose rows alone would need memory: those of a column of nulls have no bytes at all."""
    for batch in batches:
        for start in range(0, batch.num_rows, MOST_ROWS):
            yield batch.slice(start, MOST_ROWS)


def _steps(batch: pa.RecordBatch, source: Source, max_row_bytes: int, first: int) -> Iterator[tuple[int, int]]:
    """Yield place and number of rows that are written out at a time: about BATCH_BYTES, and one row at least.

    A value that the batch has once may be that of many rows, and a few bytes may be a list of millions of nulls.

    Raises:
        LoadError: A row has too many bytes.
    """
    sizes = row_sizes(batch)
    if sizes.max(initial=0) > max_row_bytes:
        place = int(np.argmax(sizes > max_row_bytes))
        if place:
            yield from _steps(batch.slice(0, place), source, max_row_bytes, first)
        raise LoadError(
            f"{source.name}: row {first + place + 1:,} has more than {max_row_bytes:,} bytes: raise --max-row-bytes if "
            "rows are that long"
        )
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        end = min(max(int(np.searchsorted(ends, before + BATCH_BYTES, "right")), start + 1), start + BATCH_ROWS)
        yield start, end - start
        start = end


@contextlib.contextmanager
def errors_of(source: Source) -> Iterator[None]:
    """Turn pyarrow's errors about an input into ours."""
    pyarrow = import_pyarrow(source.format)
    with shortages_named(source.name), _errors_of_arrow(source, pyarrow):
        yield


@contextlib.contextmanager
def _errors_of_arrow(source: Source, pyarrow: Any) -> Iterator[None]:
    damaged = f"{source.name} is not a whole {source.format} file, or damaged"
    try:
        yield
    except (LoadError, MemoryError, RecursionError):
        raise
    except pyarrow.ArrowNotImplementedError as error:
        raise LoadError(f"{source.name} has what pyarrow {pyarrow.__version__} cannot read: {error}") from error
    except (pyarrow.ArrowException, RuntimeError, ValueError, OverflowError, EOFError, struct.error) as error:
        if "out of range for nanosecond" in str(error):  # ORC's timestamps
            raise LoadError(
                f"{source.name} has what pyarrow {pyarrow.__version__} cannot read: {error}. Leave the column out with "
                "--columns, or write it as text"
            ) from error
        raise LoadError(f"{damaged}: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise LoadError(f"{damaged}: {error}") from error


@contextlib.contextmanager
def seekable(source: Source) -> Iterator[Any]:
    """Open an input for reading anywhere: it is copied, a large one into a file, if it is compressed or a pipe.

    Raises:
        LoadError: It would have far more bytes than its file.
    """
    with open_source(source) as stream:
        if source.compression == "none" and stream.seekable():
            yield stream
            return
        most = None if source.compression == "none" or source.pipe is not None else most_content_bytes(source.size)
        with tempfile.SpooledTemporaryFile(MEMORY_BYTES) as copy:
            while data := stream.read(COPY_BYTES):
                copy.write(data)
                if most is not None and copy.tell() > most:
                    raise LoadError(
                        f"{source.name} has more than {most:,} bytes when it is decompressed, and {source.size:,} now: "
                        "decompress it first"
                    )
            copy.seek(0)
            yield copy
