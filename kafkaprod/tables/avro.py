"""Encode rows as Avro records with Confluent's wire header.

Tables are written by `_core.text.avro_rows`, straight from their columns. What that does not cover, and rows that do
not fit the schema, go through fastavro, a Python object per value. Both write what fits the schema alone: `avro_values`
has the last word on that.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

from kafkaprod._core.columns.arrow import ArrowBatch
from kafkaprod._core.columns.columns import Column
from kafkaprod._core.records.integers import checked_integer
from kafkaprod._core.text.avro_rows import AvroBatch
from kafkaprod.errors import InvalidRecordError, SerializationError
from kafkaprod.tables.avro_values import AvroValues
from kafkaprod.threads import importing

MAGIC_BYTE: Final = 0  # Source: Confluent documentation, "Wire format"
NO_UNION: Final = -1
AvroType = tuple[str, int, Any]  # form, branch of null in a union or NO_UNION, detail

_PRIMITIVES: Final = frozenset(("boolean", "int", "long", "float", "double", "bytes", "string"))
_LOGICAL: Final = {("int", "date"), ("long", "timestamp-millis"), ("long", "timestamp-micros")}


@importing
def _fastavro() -> ModuleType:
    import fastavro

    return fastavro


class AvroEncoder:
    """Writes rows with one schema. Not thread-safe.

    Args: schema: a record schema, as JSON text or parsed. schema_id: for the wire header; None: no header.
    Raises: InvalidRecordError: fastavro is missing or refuses the schema.
    """

    def __init__(self, schema: str | Mapping[str, Any], schema_id: int | None) -> None:
        try:
            fastavro = _fastavro()
        except ImportError as error:
            raise InvalidRecordError("rows as Avro need fastavro: pip install 'kafkaprod[avro]'") from error
        number = None if schema_id is None else checked_integer(schema_id, "schema_id", 0, (1 << 31) - 1)
        try:
            plain = json.loads(schema) if isinstance(schema, str) else dict(schema)
            self._schema = fastavro.parse_schema(plain)
        except Exception as error:
            raise InvalidRecordError(f"the Avro schema is refused: {error}") from error
        self._write = fastavro.schemaless_writer
        self._values = AvroValues(self._schema, fastavro.write.LOGICAL_WRITERS)
        self._header = b"" if number is None else struct.pack(">bi", MAGIC_BYTE, number)
        self._type = type_of(plain)
        self._last: tuple[ArrowBatch, list[int], AvroBatch | None] | None = None

    def encode(self, batch: ArrowBatch, indexes: list[int], first: int, end: int) -> Column:
        """Encode the rows first .. end as a column. Raises SerializationError if a row does not fit the schema."""
        column = self.encode_compiled(batch, indexes, first, end)
        if column is not None:
            return column
        values = []
        for place, value in enumerate(self.encode_each(batch, indexes, first, end), first):
            if isinstance(value, SerializationError):
                raise SerializationError(f"row {place} {value}") from value
            values.append(value)
        return Column.from_list(values)

    def encode_each(
        self, batch: ArrowBatch, indexes: list[int], first: int, end: int
    ) -> Iterator[bytes | SerializationError]:
        """Yield each of the rows first .. end, or why it does not fit the schema; by fastavro."""
        for place in range(first, end):
            try:
                yield self.encode_row(self._python_row(batch, indexes, place))
            except SerializationError as error:
                yield error

    def _python_row(self, batch: ArrowBatch, indexes: list[int], place: int) -> dict[str, Any]:
        """Return a row as Python objects. Raises SerializationError naming a column that has none."""
        row: dict[str, Any] = {}
        for index in indexes:
            try:
                row |= batch.to_pylist([index], place, place + 1)[0]
            except (OverflowError, UnicodeDecodeError) as error:
                what = (
                    "text that is not UTF-8"
                    if isinstance(error, UnicodeDecodeError)
                    else "a time that Python cannot hold"
                )
                raise SerializationError(
                    f"does not fit the Avro schema: field {batch.fields[index].name!r} holds {what}: {error}"
                ) from error
        return row

    def encode_compiled(self, batch: ArrowBatch, indexes: list[int], first: int, end: int) -> Column | None:
        """Encode as `encode` does; None if the schema or a column is not covered, or a row does not fit."""
        if self._last is None or self._last[0] is not batch or self._last[1] != indexes:
            self._last = batch, indexes, self._compiled(batch, indexes)
        compiled = self._last[2]
        return None if compiled is None else compiled.encode(first, end)

    def _compiled(self, batch: ArrowBatch, indexes: list[int]) -> AvroBatch | None:
        if self._type is None or self._type[0] != "record" or self._type[1] != NO_UNION:
            return None
        places = {batch.fields[index].name: index for index in indexes}
        columns = [(places[name], field) for name, field in self._type[2] if name in places]
        if not len(columns) == len(self._type[2]) == len(indexes):
            return None  # for fields that only the schema has fastavro writes defaults; other columns are an error
        try:
            return AvroBatch(batch, columns, self._header)
        except NotImplementedError:
            return None

    def encode_row(self, row: Mapping[str, Any]) -> bytes:
        """Encode one row. Raises SerializationError if it does not fit the schema."""
        out = io.BytesIO()
        out.write(self._header)
        try:
            self._write(out, self._schema, self._values.fit(row))
        except Exception as error:
            raise SerializationError(f"does not fit the Avro schema: {error}") from error
        return out.getvalue()


def type_of(schema: Any) -> AvroType | None:
    """Return a schema as `AvroBatch` takes it; None if it has parts that are not covered.

    Covered are records, arrays, fixed, the primitive types, dates, timestamps, and unions of one of them with null.
    """
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        if len(schema) != 2 or len(others) != 1:
            return None
        inner = type_of(others[0])
        return None if inner is None or inner[1] != NO_UNION else (inner[0], schema.index("null"), inner[2])
    if isinstance(schema, str):
        return (schema, NO_UNION, None) if schema in _PRIMITIVES else None
    if not isinstance(schema, Mapping):
        return None
    kind, logical = schema.get("type"), schema.get("logicalType")
    if logical is not None:
        return (logical, NO_UNION, None) if (kind, logical) in _LOGICAL else None
    if kind == "record":
        fields = [(field["name"], type_of(field["type"])) for field in schema["fields"]]
        return None if any(inner is None for _, inner in fields) else ("record", NO_UNION, fields)
    if kind == "array":
        items = type_of(schema["items"])
        return None if items is None else ("array", NO_UNION, items)
    if kind == "fixed":
        return "fixed", NO_UNION, schema["size"]
    return type_of(kind) if isinstance(kind, str | list | Mapping) else None
