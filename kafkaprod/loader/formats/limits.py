"""Bound what an input may become: small files can have schemas, blocks and rows of any size.

bytes   of a row, of a block of Avro that is decompressed: `max_row_bytes`, as for the rows of texts
bytes   of a whole file in memory or on disk because it can only be read from its end: `most_content_bytes`
nodes   of a schema, each type counted as often as it is used: MOST_NODES
depth   of a schema: MOST_DEPTH
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError

if TYPE_CHECKING:
    import pyarrow as pa

MOST_NODES: Final = 65_536
MOST_DEPTH: Final = 64
MOST_RATIO: Final = 200  # of the bytes in a file to those that are in it when it is decompressed
LEAST_CONTENT_BYTES: Final = 1 << 30
NULL_BYTES: Final = 4  # as JSON
VIEWED_BYTES: Final = 64 << 20  # of a batch's views that are validated at a time
MOST_VIEWED_BYTES: Final = 1 << 30
_MOST_REPEATED: Final = 1 << 20

Sizes = NDArray[np.int64] | int  # of each value of an array; a number: all have it


def check_schema(nodes: int, depth: int, source: str) -> None:
    """Refuse a schema that is larger or deeper than any that a table needs.

    Args:
        nodes: Its types, each counted as often as it is used.
        depth: How deep they are inside of each other.
        source: The name of the input.

    Raises:
        LoadRefusedError: One of them is over its limit.
    """
    if depth > MOST_DEPTH:
        raise LoadRefusedError(f"{source}: its types are nested more than {MOST_DEPTH} deep")
    if nodes > MOST_NODES:
        raise LoadRefusedError(
            f"{source}: its schema has more than {MOST_NODES:,} types, each counted where it is used"
        )


def most_content_bytes(size: int | None) -> int:
    """Return how many bytes a file of a size may have when it is decompressed."""
    return max(LEAST_CONTENT_BYTES, MOST_RATIO * (size or 0))


@contextlib.contextmanager
def shortages_named(source: str) -> Iterator[None]:
    """Turn the errors of a reader that has found no limit of its own into ours."""
    try:
        yield
    except MemoryError as error:
        raise LoadError(
            f"{source} needs more memory than there is: {str(error) or 'none was left'}. Write it in smaller row "
            "groups or batches, or leave columns out with --columns"
        ) from error
    except RecursionError as error:
        raise LoadError(f"{source} is nested too deeply: {error}") from error


def row_sizes(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return about how many bytes each row has where each value is written out: repeated ones as often as they are."""
    total = np.zeros(batch.num_rows, dtype=np.int64)
    for column in batch.columns:
        total += _sizes(column)
    return total


def parts_of_views(batch: pa.RecordBatch, source: str) -> Iterator[pa.RecordBatch]:
    """Yield the parts of a batch that was not validated yet, so that no part is of many views of the same bytes.

    Args:
        batch: The batch.
        source: The name of the input.

    Raises:
        LoadError: Views inside of lists and structs are of too many bytes.
    """
    from pyarrow import types

    lengths: Any = None
    for column in batch.columns:
        is_view = types.is_string_view(column.type) or types.is_binary_view(column.type)
        if is_view and len(column):
            lengths = _view_lengths(column) + (0 if lengths is None else lengths)
        elif (viewed := _viewed_bytes(column)) > MOST_VIEWED_BYTES:
            raise LoadError(
                f"{source} has views of {viewed:,} bytes inside of a batch's lists or structs, and "
                f"{MOST_VIEWED_BYTES:,} may be there: write smaller batches"
            )
    if lengths is None:
        yield batch
        return
    ends = np.cumsum(lengths)
    start = 0
    while start < batch.num_rows:
        before = ends[start - 1] if start else 0
        end = max(int(np.searchsorted(ends, before + VIEWED_BYTES, "right")), start + 1)
        yield batch.slice(start, end - start)
        start = end


def _viewed_bytes(array: Any) -> int:
    """Return how many bytes all views in an array have together."""
    from pyarrow import types

    kind: Any = array.type
    if hasattr(kind, "storage_type"):
        return _viewed_bytes(array.storage)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return int(_view_lengths(array).sum()) if len(array) else 0
    if types.is_dictionary(kind):
        return _viewed_bytes(array.dictionary)
    if types.is_struct(kind) or types.is_union(kind):
        return sum(_viewed_bytes(array.field(i)) for i in range(kind.num_fields))
    if types.is_map(kind):
        return _viewed_bytes(array.keys) + _viewed_bytes(array.items)
    return _viewed_bytes(array.values) if types.is_nested(kind) or types.is_run_end_encoded(kind) else 0


def _sizes(array: pa.Array) -> Sizes:
    """Return the bytes of each value; of none that are constant, however many there are, is an array made."""
    from pyarrow import types

    kind: Any = array.type
    if hasattr(kind, "storage_type"):
        return _sizes(array.storage)
    if types.is_null(kind):
        return NULL_BYTES
    if types.is_dictionary(kind):
        return _taken(_sizes(array.dictionary), _numbers(array.indices))
    if types.is_run_end_encoded(kind):
        return _run_sizes(array)
    if types.is_struct(kind):
        return sum((_sizes(array.field(i)) for i in range(kind.num_fields)), 2)
    if types.is_fixed_size_list(kind):
        return _sums(_sizes(array.values), np.arange(len(array)) + array.offset, kind.list_size)
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        counts = array.sizes.to_numpy(zero_copy_only=False)
        return _between(_sizes(array.values), array.offsets.to_numpy(zero_copy_only=False), counts)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        offsets = array.offsets.to_numpy(zero_copy_only=False)
        values = [array.keys, array.items] if types.is_map(kind) else [array.values]
        parts = [_between(_sizes(each), offsets[:-1], np.diff(offsets)) for each in values]
        return sum(parts[1:], parts[0])
    if types.is_union(kind):
        return NULL_BYTES
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return _view_sizes(array)
    try:
        return int(kind.bit_width) // 8 + 1
    except ValueError:  # texts and bytes
        return _text_sizes(array)


# Not by pyarrow.compute, whose import takes a third of a second and 50 MiB.


def _text_sizes(array: Any) -> Sizes:
    data = array.buffers()[1]
    if data is None or not len(array):
        return NULL_BYTES
    width = np.int64 if "large" in str(array.type) else np.int32
    return np.diff(np.frombuffer(data, dtype=width)[array.offset : array.offset + len(array) + 1]).astype(np.int64)


def _view_sizes(array: Any) -> Sizes:
    data = array.buffers()[1]
    if data is None or not len(array):
        return NULL_BYTES
    return np.where(_is_valid(array), _view_lengths(array), NULL_BYTES)


def _view_lengths(array: Any) -> NDArray[np.int64]:
    """Return the length of each view, for nulls too; the array has values."""
    lengths = np.frombuffer(array.buffers()[1], dtype=np.int32)[::4][array.offset : array.offset + len(array)]
    return np.maximum(lengths, 0).astype(np.int64)


def _numbers(array: Any) -> NDArray[np.int64]:
    """Return integers; 0 for null."""
    if not len(array):
        return np.zeros(0, dtype=np.int64)
    kind = array.type.to_pandas_dtype()
    found = np.frombuffer(array.buffers()[1], dtype=kind)[array.offset : array.offset + len(array)].astype(np.int64)
    return np.where(_is_valid(array), found, 0)


def _is_valid(array: Any) -> NDArray[np.bool_]:
    validity = array.buffers()[0]
    if validity is None:
        return np.ones(len(array), dtype=np.bool_)
    bits = np.unpackbits(np.frombuffer(validity, dtype=np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)


def _taken(sizes: Sizes, places: NDArray[Any]) -> Sizes:
    if isinstance(sizes, int):
        return sizes
    return sizes[places] if len(sizes) else NULL_BYTES


def _run_sizes(array: Any) -> Sizes:
    sizes = _sizes(array.values)
    if isinstance(sizes, int):
        return sizes
    if len(array) > _MOST_REPEATED:  # inside of a list, as many as it likes
        return int(sizes.max(initial=0))
    ends = np.clip(array.run_ends.to_numpy(zero_copy_only=False).astype(np.int64) - array.offset, 0, len(array))
    return np.repeat(sizes, np.diff(ends, prepend=0))


def _between(sizes: Sizes, starts: NDArray[Any], counts: NDArray[Any]) -> Sizes:
    """Return the sizes of lists, with a comma behind each value."""
    counts = counts.astype(np.int64)
    if isinstance(sizes, int):
        return counts * (sizes + 1) + 2
    sums = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes + 1)])
    last = len(sizes)
    starts = np.clip(starts.astype(np.int64), 0, last)
    return np.asarray(sums[np.clip(starts + counts, 0, last)] - sums[starts] + 2)


def _sums(sizes: Sizes, places: NDArray[Any], count: int) -> Sizes:
    return _between(sizes, places * count, np.full(len(places), count))
