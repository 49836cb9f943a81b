"""Read the columns of a file as those of the Delta or Iceberg table that it is a file of: with its names and types.

Delta finds columns by name. A file may have more than the table has, such as `_change_type`. Iceberg finds
them by id: a column that was renamed has the same one, and a column that was dropped and added again has another. Both
say which times are instants, which INT96 and some writers of Parquet do not. Source: the protocol of Delta Lake,
"Primitive Types"; the specification of Apache Iceberg, "Column Projection".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkaprod.loader.opening.errors import LoadRefusedError

if TYPE_CHECKING:
    import pyarrow as pa

_ID: Final = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """Names a column of a file.

    Attributes:
        name: In the file.
        field: Arrow's field of the table.
    """

    name: str
    field: Any

    def __str__(self) -> str:
        kind = str(self.field.type).replace("large_", "")  # versions of pyiceberg differ in it
        return f"{self.field.name} {kind}"


def match_names(schema: pa.Schema, table: pa.Schema) -> tuple[TableColumn, ...]:
    """Return the columns of a file that its table has, by name, in the order of the file."""
    names = [name for name in schema.names if name in table.names]
    return tuple(TableColumn(name, table.field(name)) for name in names)


def match_ids(schema: pa.Schema, table: pa.Schema, ids: Mapping[str, int], path: str) -> tuple[TableColumn, ...]:
    """Return the columns of a file that its table has, by id, in the order of the table.

    Args:
        schema: The file's.
        table: The table's, with the ids of its fields.
        ids: Those of columns by name, for files that have none.
        path: The place of the file.

    Raises:
        LoadRefusedError: The file has no ids, or a column has other fields inside than the table's.
    """
    found = {}
    for field in schema:
        number = _id_of(field)
        number = ids.get(field.name) if number is None else number
        if number is not None:
            found[number] = field
    if not found and len(schema):
        raise LoadRefusedError(
            f"{path} is a file of an Iceberg table, and its columns have no ids: read the table with pyiceberg or Spark"
        )
    columns = []
    for field in table:
        number = _id_of(field)
        own = None if number is None else found.get(number)
        if own is None:
            continue
        if not _has_same_fields(own.type, field.type):
            raise LoadRefusedError(
                f"{path} has other fields inside of column {field.name!r} than its Iceberg table, which was changed "
                "there: rewrite its files with rewrite_data_files, or read it with pyiceberg or Spark, and send it "
                "with send_table"
            )
        columns.append(TableColumn(own.name, field))
    return tuple(columns)


def _id_of(field: pa.Field) -> int | None:
    number = (field.metadata or {}).get(_ID)
    return None if number is None else int(number)


def _has_same_fields(own: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether two types differ in their leaves at most."""
    from pyarrow import types

    if types.is_struct(wanted):
        return (
            types.is_struct(own)
            and [field.name for field in own] == [field.name for field in wanted]
            and all(
                _id_of(a) in (None, _id_of(b)) and _has_same_fields(a.type, b.type)
                for a, b in zip(own, wanted, strict=True)
            )
        )
    if types.is_map(wanted):
        return (
            types.is_map(own)
            and _has_same_fields(own.key_type, wanted.key_type)
            and _has_same_fields(own.item_type, wanted.item_type)
        )
    if _is_list(wanted):
        return _is_list(own) and _has_same_fields(own.value_type, wanted.value_type)
    return not types.is_nested(own)


def _is_list(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind))


def _field(own: pa.Field, wanted: pa.Field) -> pa.Field:
    return wanted.with_type(_type(own.type, wanted.type)).with_nullable(True).with_metadata(None)


def _type(own: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return the table's type in the shape of the file's, which keeps units of time and the coding of texts."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_struct(own) and types.is_struct(wanted):
        return pa.struct([_field(each, wanted.field(each.name)) if wanted.get_field_index(each.name) >= 0 else each
                          for each in own])  # fmt: skip
    if types.is_map(own) and types.is_map(wanted):
        key = own.key_field.with_type(_type(own.key_type, wanted.key_type))
        return pa.map_(key, own.item_field.with_type(_type(own.item_type, wanted.item_type)))
    if _is_list(own) and _is_list(wanted):
        inner = own.value_field.with_type(_type(own.value_type, wanted.value_type))
        return pa.list_(inner) if types.is_list(own) else pa.large_list(inner)
    if types.is_timestamp(own) and types.is_timestamp(wanted):
        return pa.timestamp(own.unit, wanted.tz)
    is_other_coding = (_is_text(own) and _is_text(wanted)) or (_is_binary(own) and _is_binary(wanted))
    return own if types.is_nested(own) or is_other_coding else wanted


def _is_text(kind: pa.DataType) -> bool:
    from pyarrow import types

    value = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(value) or types.is_large_string(value) or types.is_string_view(value))


def _is_binary(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def schema_in_table(schema: pa.Schema, columns: Sequence[TableColumn]) -> pa.Schema:
    """Return the schema of a file's columns as the table has them."""
    import pyarrow as pa

    return pa.schema([_field(schema.field(column.name), column.field) for column in columns])


def in_table(batches: Iterator[pa.RecordBatch], columns: Sequence[TableColumn]) -> Iterator[pa.RecordBatch]:
    """Pass batches on, with the names and types that the table has.

    Args:
        batches: Columns of the file.
        columns: Those of the table.
    """
    import pyarrow as pa

    known = {column.name: column.field for column in columns}
    for batch in batches:
        names = [name for name in batch.schema.names if name in known]  # pyarrow also reads `a.b` where `a` is wanted
        fields = [_field(batch.schema.field(name), known[name]) for name in names]
        arrays = [batch.column(name).cast(field.type) for name, field in zip(names, fields, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
