"""Read tables of any library as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kafkaprod._core.columns.arrow import ArrowBatch, ArrowStream
from kafkaprod.errors import ArgumentTypeError, InvalidRecordError, KafkaError
from kafkaprod.tables.python_columns import plain_column

# What looks like a table but is not yet one: class name -> what to call.
NOT_YET_TABLES = {"LazyFrame": ".collect()", "DuckDBPyConnection": ".sql(...)"}


def _exportable(data: Any) -> Any:
    """Return a frame whose Arrow form holds what a person sees in it.

    Raises:
        InvalidRecordError: It has Python objects, which polars would export as their addresses.
    """
    library = type(data).__module__.partition(".")[0]
    if library == "polars":
        for name, dtype in getattr(data, "schema", {}).items():
            if str(dtype).startswith("Object"):
                raise InvalidRecordError(f"column {name!r} holds Python objects (polars Object): cast it first")
    if library == "pandas" and hasattr(data, "index") and not any(data.index.names):
        data = data.copy(deep=False)
        data.index = range(len(data))  # one without a name would become a column `__index_level_0__`
    return data


def _arrow_stream(data: Any) -> Iterator[ArrowBatch]:
    try:
        return ArrowStream(data)
    except (KafkaError, MemoryError):
        raise
    except Exception as error:  # each library has its own
        raise InvalidRecordError(f"the {type(data).__name__} cannot be converted to Arrow: {error}") from error


def read_batches(data: Any) -> Iterator[ArrowBatch]:
    """Yield the batches of a table.

    Args:
        data: An object with `__arrow_c_stream__` or `__arrow_c_array__` (pyarrow, polars, duckdb, pandas, nanoarrow); a
            mapping of names to NumPy arrays or lists of equal length; a NumPy structured array.

    Raises:
        InvalidRecordError: It is something else, or cannot be converted to Arrow.
    """
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _arrow_stream(_exportable(data))
    advice = NOT_YET_TABLES.get(type(data).__name__)
    if advice:
        raise InvalidRecordError(f"a {type(data).__name__} holds no rows yet: pass what its {advice} returns")
    if isinstance(data, Mapping):
        return iter([ArrowBatch.from_columns([plain_column(name, values) for name, values in data.items()])])
    if isinstance(data, np.ndarray) and data.dtype.names:
        return iter([ArrowBatch.from_columns([plain_column(name, data[name]) for name in data.dtype.names])])
    raise ArgumentTypeError(
        f"data must be an Arrow table (pyarrow, polars, duckdb, pandas, nanoarrow), a mapping of columns or a NumPy "
        f"structured array, not {type(data).__name__}"
    )
