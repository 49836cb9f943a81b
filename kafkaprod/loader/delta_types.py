"""Give the times of a Delta table's files the zone that they have there.

Delta's type `timestamp` is an instant. Spark writes it as INT96, which says nothing of zones, and times without a zone,
`timestamp_ntz`, never so. Source: the protocol of Delta Lake, "Primitive Types".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def in_utc(batches: Iterator[pa.RecordBatch], file: Any) -> Iterator[pa.RecordBatch]:
    """Pass batches on, with UTC as the zone of what is INT96 in the file.

    Args:
        batches: Some columns of the file.
        file: The ParquetFile.
    """
    import pyarrow as pa

    leaves = iter([file.schema.column(index).physical_type for index in range(len(file.schema))])
    zoned = {field.name: _zoned(field.type, leaves) for field in file.schema_arrow}
    for batch in batches:
        schema = pa.schema([field.with_type(zoned[field.name]) for field in batch.schema])
        yield batch if schema.equals(batch.schema) else batch.cast(schema)


def _zoned(kind: pa.DataType, leaves: Iterator[str]) -> pa.DataType:
    """Return a type, some of whose leaves have got a zone; takes the file's types of all its leaves, in order."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_struct(kind):
        return pa.struct([field.with_type(_zoned(field.type, leaves)) for field in kind])
    if types.is_map(kind):
        key = kind.key_field.with_type(_zoned(kind.key_type, leaves))
        return pa.map_(key, kind.item_field.with_type(_zoned(kind.item_type, leaves)))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_zoned(kind.value_type, leaves)))
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_zoned(kind.value_type, leaves)))
    return pa.timestamp(kind.unit, "UTC") if next(leaves) == "INT96" else kind
