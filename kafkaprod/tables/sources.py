"""Read tables of any library as Arrow batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from kafkaprod._core.columns.arrow import ArrowBatch, ArrowStream
from kafkaprod.errors import ArgumentTypeError, InvalidRecordError, KafkaError
from kafkaprod.tables.python_columns import arrow_table, check_no_periods, is_arrow, plain_column

T = TypeVar("T")
ROWS_AT_ONCE: Final = 10_000  # of an iterator of dicts
# What looks like a table but is not yet one: class name -> what to call.
NOT_YET_TABLES = {"LazyFrame": ".collect()", "DuckDBPyConnection": ".sql(...)"}


def _exportable(data: Any) -> Any:
    """Return a frame whose Arrow form holds what a person sees in it.

    Raises:
        InvalidRecordError: It has Python objects, which polars would export as their addresses, or periods, which
            pandas would export as numbers of them since 1970.
    """
    library = type(data).__module__.partition(".")[0]
    if library == "polars":
        for name, dtype in getattr(data, "schema", {}).items():
            if str(dtype).startswith("Object"):
                raise InvalidRecordError(f"column {name!r} holds Python objects (polars Object): cast it first")
    if library == "pandas" and hasattr(data, "index"):
        for name, dtype in getattr(data, "dtypes", {}).items():
            check_no_periods(name, dtype)
        data = data.copy(deep=False)
        data.index = _index_of(data)
    return data


def _index_of(frame: Any) -> Any:
    """Return the index of a pandas frame as it becomes columns: each level that has a name, whatever that is."""
    names = frame.index.names
    if all(name is None for name in names):
        return range(len(frame))  # one without a name would become a column `__index_level_0__`
    for place, name in enumerate(names):
        check_no_periods(name, getattr(frame.index.get_level_values(place), "dtype", None))
    index = frame.index
    if type(index).__name__ == "RangeIndex":  # pandas exports its bounds alone
        index = type(index)(len(index)).append(index)[len(index) :]
    return index.set_names([None if name is None else str(name) for name in names])


def _buffer_sizes(data: Any) -> dict[int, int] | None:
    """Return the bytes of each buffer of a table by its address; None: its library does not say them.

    Arrays of pyarrow may stand over memory that its owner writes to, and pyarrow does not look at offsets again.
    """
    if type(data).__module__.partition(".")[0] != "pyarrow" or hasattr(data, "read_next_batch"):
        return None
    sizes: dict[int, int] = {}
    for column in getattr(data, "columns", [data]):
        for array in getattr(column, "chunks", [column]):
            buffers = array.buffers()
            if hasattr(array, "dictionary"):
                buffers += array.dictionary.buffers()
            for buffer in buffers:
                if buffer is not None:
                    sizes[buffer.address] = max(buffer.size, sizes.get(buffer.address, 0))
    return sizes


def _stream_of(data: Any) -> ArrowStream:
    table = _exportable(data)
    return ArrowStream(table, _buffer_sizes(table))


def _converted(convert: Callable[[Any], T], data: Any) -> T:
    """Return what `convert` makes of a table; what a library raises becomes InvalidRecordError."""
    try:
        return convert(data)
    except (KafkaError, MemoryError):
        raise
    except Exception as error:  # each library has its own
        raise InvalidRecordError(f"the {type(data).__name__} cannot be converted to Arrow: {error}") from error


def _rows_as_batch(rows: Sequence[Any], names: dict[str, None]) -> ArrowBatch:
    """Return dicts as a batch; what a row does not have is null there.

    Args:
        rows: Mappings of column names to values.
        names: The columns, in order of their first row; those of `rows` are added.

    Raises:
        ArgumentTypeError: A row is something else.
        InvalidRecordError: A column holds what has no Arrow form, or several kinds.
    """
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ArgumentTypeError(f"row {index} must be a mapping, as the first one, not {type(row).__name__}")
        names.update(dict.fromkeys(row))
    if not names:
        raise InvalidRecordError(f"none of the {len(rows)} rows has a column: there is nothing to make a record of")
    return ArrowBatch.from_columns([plain_column(name, [row.get(name) for row in rows]) for name in names])


def _from_items(items: Iterator[Any]) -> Iterator[ArrowBatch]:
    """Yield the batches of an iterator of tables or of dicts, which holds no more than one table, or some rows.

    Raises:
        InvalidRecordError: It raised something of its own.
    """
    names: dict[str, None] = {}
    while rows := _next_items(items, 1):
        if isinstance(rows[0], Mapping):
            rows += _next_items(items, ROWS_AT_ONCE - 1)
            yield _rows_as_batch(rows, names)
        else:
            yield from read_batches(rows.pop())


def _next_items(items: Iterator[Any], count: int) -> list[Any]:
    try:
        return list(itertools.islice(items, count))
    except (KafkaError, MemoryError):
        raise
    except Exception as error:
        raise InvalidRecordError(f"the iterator of tables or rows failed: {type(error).__name__}: {error}") from error


def _reader(data: Any) -> Any:
    """Return what reads the rows that an object stands for, batch after batch; the object itself if that holds them."""
    library, kind = type(data).__module__.partition(".")[0], type(data).__name__
    if library == "pyarrow" and hasattr(data, "scanner"):  # a dataset
        return data.scanner().to_reader()
    if library == "pyarrow" and hasattr(data, "to_reader") and not hasattr(data, "__arrow_c_stream__"):  # a scanner
        return data.to_reader()
    if kind == "LazyFrame" and hasattr(data, "collect_batches"):
        return data.collect_batches(maintain_order=True)
    if library == "daft" and hasattr(data, "to_arrow_iter"):  # its Arrow stream would hold all rows
        return data.to_arrow_iter()
    if library == "ray" and hasattr(data, "iter_batches"):
        return iter(data.iter_batches(batch_size=None, batch_format="pyarrow"))  # block after block
    return data


def read_batches(data: Any) -> Iterator[ArrowBatch]:
    """Yield the batches of a table.

    Args:
        data: An object with `__arrow_c_stream__` or `__arrow_c_array__` (pyarrow, polars, duckdb, pandas, nanoarrow); a
            dataset or scanner of pyarrow, a LazyFrame of polars, a frame of daft or a dataset of ray, which are read
            batch after batch; a mapping of names to NumPy arrays, lists, series or Arrow arrays of equal length; a
            NumPy structured array; a list of dicts, each a row; an iterator of dicts or of any of these but mappings of
            columns.

    Raises:
        InvalidRecordError: It is something else, or cannot be converted to Arrow.
    """
    data = _converted(_reader, data)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _converted(_stream_of, data)
    advice = NOT_YET_TABLES.get(type(data).__name__)
    if advice:
        raise InvalidRecordError(f"a {type(data).__name__} holds no rows yet: pass what its {advice} returns")
    if isinstance(data, Mapping):
        if any(map(is_arrow, data.values())):
            return _converted(lambda columns: _stream_of(arrow_table(columns)), data)
        return iter([ArrowBatch.from_columns([plain_column(name, values) for name, values in data.items()])])
    if isinstance(data, np.ndarray) and data.dtype.names:
        return iter([ArrowBatch.from_columns([plain_column(name, data[name]) for name in data.dtype.names])])
    if isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data[:1]):
        return iter([_rows_as_batch(data, {})] if data else ())
    if isinstance(data, Iterator):
        return _from_items(data)
    raise ArgumentTypeError(
        f"data must be an Arrow table (pyarrow, polars, duckdb, pandas, nanoarrow), a mapping of columns, a NumPy "
        f"structured array, a list of dicts, or an iterator of these, not {type(data).__name__}"
    )
