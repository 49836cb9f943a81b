"""Turn rows of Arrow tables into columns of bytes: those of files, and tables of the CSV reader."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod._core.columns.arrow import ArrowBatch, ArrowStream
from kafkaprod._core.columns.columns import Column
from kafkaprod._core.columns.row_partitions import add_sizes
from kafkaprod._core.columns.text_columns import TEXT_NULL, TEXT_NUMBER, TEXT_TIME
from kafkaprod._core.text.json_rows import JsonEncoder
from kafkaprod.errors import SerializationError
from kafkaprod.loader.formats.arrow_forms import with_folder_columns, with_texts, without_codings
from kafkaprod.loader.formats.rows import RowBlock, make_block
from kafkaprod.loader.opening.errors import LoadError, missing_package
from kafkaprod.loader.opening.source import Source
from kafkaprod.tables.avro import AvroEncoder
from kafkaprod.tables.row_plan import AVRO, JSON, Reasons, RowPlan

if TYPE_CHECKING:
    import pyarrow as pa

MOST_JSON_BYTES: Final = 1 << 30


def import_pyarrow(what: str) -> Any:
    """Return pyarrow. Raises LoadError, which names the package to install."""
    try:
        import pyarrow
    except ImportError as error:
        raise missing_package("pyarrow", what) from error
    return pyarrow


def table_block(
    source: Source,
    plan: RowPlan,
    batch: pa.RecordBatch,
    row: int,
    end_offset: int = 0,
    whole: Column | None = None,
    bad: Mapping[int, str] = MappingProxyType({}),
) -> RowBlock:
    """Return a batch as a block of records.

    Args:
        source: The input.
        plan: What becomes of rows.
        batch: The rows.
        row: The number of the first one.
        end_offset: See RowBlock.
        whole: The rows as they are.
        bad: By place, why rows have no record.
    """
    rows = ArrowRows(with_folder_columns(batch, source.folder_columns, plan))
    reasons: Reasons = dict(bad)
    if plan.value == JSON:
        whole = rows.json(plan.columns)
    elif plan.value == AVRO:
        whole = rows.avro(plan, reasons)
    mapped = plan.map(rows, whole, reasons)
    shown = rows.json(plan.columns) if reasons and plan.value == AVRO else mapped.value
    return make_block(source.name, mapped, reasons, row, end_offset, rows.row_count, shown=shown)


class ArrowRows:
    """Has the columns of an Arrow batch.

    Args:
        batch: A pyarrow RecordBatch.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = without_codings(batch)
        self._columns = _columns_of(self._batch)
        self._shown = with_texts(self._batch)
        self._shown_columns = self._columns if self._shown is self._batch else _columns_of(self._shown)
        self.row_count: int = batch.num_rows
        self._texts: dict[str, Column] = {}

    def text(self, name: str) -> Column:
        """Return a column of text or bytes as it is, others as in JSON, without quotes."""
        if name not in self._texts:
            self._texts[name] = self._text(name)
        return self._texts[name]

    def _text(self, name: str) -> Column:
        index = self._shown.schema.get_field_index(name)
        if has_bytes(self._shown.schema.types[index]):
            return self._shown_columns.byte_column(index)
        return _byte_column(self.text_array(name))

    def text_array(self, name: str) -> pa.Array:
        """Return a column that has neither texts nor bytes as an Arrow array of texts, as in JSON, without quotes."""
        import pyarrow as pa

        index = self._shown.schema.get_field_index(name)
        array = self._shown.column(index)
        kind = value_type_of(array.type)
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):  # pyarrow's text is that of JSON
            storage = array.storage if hasattr(array.type, "storage_type") else array
            return storage.cast(pa.large_string())
        return self._json_text(index, is_scalar=not pa.types.is_nested(kind))

    def _json_text(self, index: int, *, is_scalar: bool) -> pa.Array:
        """Cut the values of a column out of its rows as JSON."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = JsonEncoder(self._shown_columns, [index], False).encode(0, MOST_JSON_BYTES)
        self._check_all(rows)
        sizes = np.zeros(len(rows) + 1, dtype=np.int64)
        add_sizes(rows, sizes[1:].data)
        data = b"".join(row or b"" for row in rows.rows(0, len(rows)))
        offsets = pa.py_buffer(np.cumsum(sizes))
        texts = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(rows), [None, offsets, pa.py_buffer(data)])
        start = len(json.dumps({self._shown.schema.names[index]: 0}, ensure_ascii=False).encode()) - len(" 0}")
        texts = pc.binary_slice(texts, start, -1)
        texts = pc.if_else(pc.equal(texts, b"null"), pa.scalar(None, texts.type), texts)
        if is_scalar:
            texts = pc.ascii_trim(texts.cast(pa.large_string()), '"')
        return texts

    def shown(self, name: str) -> pa.Array:
        """Return a column with its extension types as texts; see with_texts()."""
        return self._shown.column(name)

    def times(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.uint8]] | None:
        import pyarrow as pa

        array, status = self._batch.column(name), TEXT_NUMBER
        if pa.types.is_timestamp(array.type) or pa.types.is_date(array.type):
            array, status = array.cast(pa.timestamp("ms"), safe=False), TEXT_TIME
        elif not pa.types.is_integer(array.type):
            return None
        numbers = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).copy()
        statuses = np.full(self.row_count, status, dtype=np.uint8)
        if array.null_count:
            statuses[array.is_null().to_numpy(zero_copy_only=False)] = TEXT_NULL
        return numbers, statuses

    def json(self, names: Sequence[str] | None = None) -> Column:
        """Return each row as a JSON object, with all its fields or some."""
        rows = JsonEncoder(self._shown_columns, self._indexes(names), False).encode(0, MOST_JSON_BYTES)
        self._check_all(rows)
        return rows

    def _indexes(self, names: Sequence[str] | None) -> list[int]:
        if names is None:
            return list(range(self._batch.num_columns))
        return [self._batch.schema.get_field_index(name) for name in names]

    def _check_all(self, rows: Column) -> None:
        if len(rows) < self.row_count:
            raise LoadError(f"{self.row_count} rows are more than {MOST_JSON_BYTES} bytes as JSON")

    def avro(self, plan: RowPlan, reasons: Reasons) -> Column:
        """Return each row as an Avro record; those that do not fit the schema go into `reasons` and are null."""
        encoder = _avro_encoder(plan.avro_schema, plan.avro_schema_id)
        indexes = self._indexes(plan.columns)
        column = encoder.encode_compiled(self._columns, indexes, 0, self.row_count)
        if column is not None:
            return column
        values: list[bytes | None] = []
        for place, value in enumerate(encoder.encode_each(self._columns, indexes, 0, self.row_count)):
            if isinstance(value, SerializationError):
                reasons[place] = str(value)
            values.append(None if isinstance(value, SerializationError) else value)
        return Column.from_list(values)


def _columns_of(batch: pa.RecordBatch) -> ArrowBatch:
    return next(iter(ArrowStream(batch)))


def _byte_column(array: pa.Array) -> Column:
    import pyarrow as pa

    return _columns_of(pa.record_batch([array], names=["text"])).byte_column(0)


def value_type_of(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of an extension type or a dictionary."""
    from pyarrow import types

    kind = kind.storage_type if hasattr(kind, "storage_type") else kind
    return kind.value_type if types.is_dictionary(kind) else kind


def has_bytes(kind: pa.DataType) -> bool:
    """Return whether values of a type are texts or bytes, which are a key as they are."""
    kind = value_type_of(kind)
    return any(is_kind(kind) for is_kind in _byte_types())


@lru_cache(maxsize=1)
def _byte_types() -> tuple[Callable[[Any], bool], ...]:
    from pyarrow import types

    views = types.is_string_view, types.is_binary_view, types.is_fixed_size_binary
    return types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, *views


@lru_cache(maxsize=1)
def _avro_encoder(schema: str, schema_id: int | None) -> AvroEncoder:
    return AvroEncoder(schema, schema_id)
