"""Encode rows as Avro records with Confluent's wire header, through fastavro, a Python object per value."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from typing import Any, Final

from kafkaprod._core.columns.arrow import ArrowBatch
from kafkaprod._core.columns.columns import Column
from kafkaprod.errors import InvalidRecordError, SerializationError

MAGIC_BYTE: Final = 0  # Source: Confluent documentation, "Wire format"


class AvroEncoder:
    """Writes rows with one schema.

    Args: schema: a record schema, as JSON text or parsed. schema_id: for the wire header; None: no header.
    Raises: InvalidRecordError: fastavro is missing or refuses the schema.
    """

    def __init__(self, schema: str | Mapping[str, Any], schema_id: int | None) -> None:
        try:
            import fastavro
        except ImportError as error:
            raise InvalidRecordError("rows as Avro need fastavro: pip install 'kafkaprod[avro]'") from error
        if schema_id is not None and not 0 <= schema_id < 1 << 31:
            raise InvalidRecordError(f"schema_id={schema_id} is outside 0..{(1 << 31) - 1}")
        try:
            self._schema = fastavro.parse_schema(json.loads(schema) if isinstance(schema, str) else dict(schema))
        except Exception as error:
            raise InvalidRecordError(f"the Avro schema is refused: {error}") from error
        self._write = fastavro.schemaless_writer
        self._header = b"" if schema_id is None else struct.pack(">bi", MAGIC_BYTE, schema_id)

    def encode(self, batch: ArrowBatch, indexes: list[int], first: int, end: int) -> Column:
        """Encode the rows first .. end as a column. Raises SerializationError if a row does not fit the schema."""
        values = []
        for place, row in enumerate(batch.to_pylist(indexes, first, end)):
            try:
                values.append(self.encode_row(row))
            except SerializationError as error:
                raise SerializationError(f"row {first + place} {error}") from error
        return Column.from_list(values)

    def encode_row(self, row: Mapping[str, Any]) -> bytes:
        """Encode one row. Raises SerializationError if it does not fit the schema."""
        out = io.BytesIO()
        out.write(self._header)
        try:
            self._write(out, self._schema, row)
        except Exception as error:
            raise SerializationError(f"does not fit the Avro schema: {error}") from error
        return out.getvalue()
