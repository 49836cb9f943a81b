"""Read Parquet's ENUM columns as texts, which they are: pyarrow shows them as bytes.

Source: LogicalTypes.md of parquet-format, "ENUM": who has no such type takes it for text in UTF-8. Writers of Protocol
Buffers, Thrift and Avro make them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def schema_with_enums(file: Any) -> pa.Schema:
    """Return the schema of a pyarrow.parquet.ParquetFile, in which ENUM columns are texts, inside of others too."""
    schema, columns = file.schema_arrow, [file.schema.column(place) for place in range(len(file.schema))]
    is_enum = ["ENUM" in (column.converted_type, column.logical_type.type) for column in columns]
    if not any(is_enum):
        return schema
    leaves = iter(is_enum)
    for place, field in enumerate(schema):
        schema = schema.set(place, field.with_type(_type_with_enums(field.type, leaves)))
    return schema


def as_texts(batches: Iterator[pa.RecordBatch], own: pa.Schema, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Pass batches on, with the types that `schema_with_enums` has.

    Args:
        batches: Columns of the file.
        own: Its schema.
        wanted: The schema with texts.
    """
    import pyarrow as pa

    changed = {field.name: field.type for field, old in zip(wanted, own, strict=True) if field.type != old.type}
    for batch in batches:
        arrays = [
            array.cast(changed[name]) if name in changed else array
            for name, array in zip(batch.schema.names, batch.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names) if changed else batch


def _type_with_enums(kind: Any, leaves: Iterator[bool]) -> Any:
    """Return a type with texts; `leaves` says of each column of the file, in its order, whether it is an ENUM."""
    import pyarrow as pa
    from pyarrow import types

    if hasattr(kind, "storage_type"):
        _type_with_enums(kind.storage_type, leaves)
        return kind
    if types.is_struct(kind):
        return pa.struct([field.with_type(_type_with_enums(field.type, leaves)) for field in kind])
    if types.is_map(kind):
        key = kind.key_field.with_type(_type_with_enums(kind.key_type, leaves))
        return pa.map_(key, kind.item_field.with_type(_type_with_enums(kind.item_type, leaves)))
    if types.is_nested(kind):
        inner = kind.value_field.with_type(_type_with_enums(kind.value_type, leaves))
        if types.is_fixed_size_list(kind):
            return pa.list_(inner, kind.list_size)
        return pa.large_list(inner) if types.is_large_list(kind) else pa.list_(inner)
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind)
    return pa.string() if next(leaves) and is_bytes else kind
