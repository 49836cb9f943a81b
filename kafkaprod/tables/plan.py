"""Map the columns of a table to keys, values, headers, timestamps, partitions and topics, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from kafkaprod._core.columns.arrow import ArrowBatch
from kafkaprod._core.columns.columns import Column, Headers
from kafkaprod._core.text.json_rows import JsonEncoder
from kafkaprod.errors import InvalidRecordError
from kafkaprod.tables.avro import AvroEncoder
from kafkaprod.tables.registry import latest_schema, schema_id
from kafkaprod.tables.result import RowNumbers

JSON: Final = "json"
MOST_JSON_BYTES: Final = 1 << 20  # encoded at a time: what stays in the cache until it is copied into batches
MOST_AVRO_ROWS: Final = 4096


@dataclass(frozen=True, slots=True)
class Named:
    """Names a column; needed only for one called "json"."""

    name: str


@dataclass(frozen=True, slots=True)
class JsonRows:
    """Writes each row as a JSON object, as Spark's to_json writes it; docs/json.md has the table of types.

    Args:
        columns: Names of the columns to write, in this order; None: all.
        ignore_null_fields: Leave out null columns and struct fields, as to_json does; False writes null.
    """

    columns: Sequence[str] | None = None
    ignore_null_fields: bool = True


@dataclass(frozen=True, slots=True)
class AvroRows:
    """Writes each row as an Avro record after Confluent's wire header: byte 0, then the schema id as int32, big endian.

    Args:
        schema: A record schema: JSON text, or what json.loads makes of it. None: the subject's latest.
        schema_id: The schema's number in the registry; None: the registry's answer, or without one no header.
        columns: Names of the columns to write; None: all.
        registry: Address of a schema registry, a mapping with options of confluent-kafka's SchemaRegistryClient, or
            such a client; needs the extra `registry`. The schema is registered, or looked up, once.
        subject: The schema's name in the registry; None: the topic's name and `-value`, as confluent's serializers.
        register: Whether to register a schema that the registry does not have.

    Columns and fields go together by name; a column that is no field, a field with neither column nor default, and a
    value that does not fit are errors. Needs the extra `avro`. Rows are written by compiled code; those of schemas with
    maps, enums, references or unions of several types through fastavro, a Python object per value, which is tens of
    times slower.
    """

    schema: str | Mapping[str, Any] | None = None
    schema_id: int | None = None
    columns: Sequence[str] | None = None
    registry: Any = field(default=None, repr=False)  # its options may hold passwords
    subject: str | None = None
    register: bool = True

    def resolve(self, topic: str | None) -> tuple[str | Mapping[str, Any], int | None]:
        """Return the schema and its id, with the registry's help if there is one.

        Raises:
            InvalidRecordError: There is neither a schema nor a registry, or a registry but no subject.
            SerializationError: The registry refused, or cannot be reached.
        """
        if self.registry is None or (self.schema is not None and self.schema_id is not None):
            if self.schema is None:
                raise InvalidRecordError("AvroRows needs a schema or a registry")
            return self.schema, self.schema_id
        if self.subject is None and topic is None:
            raise InvalidRecordError("AvroRows with a registry needs a subject where the topics come from a column")
        subject = self.subject or f"{topic}-value"
        if self.schema is None:
            return latest_schema(self.registry, subject)
        return self.schema, schema_id(self.registry, subject, self.schema, register=self.register)


ValueSpec = str | bytes | Named | JsonRows | AvroRows | None


@dataclass(frozen=True, slots=True)
class Part:
    """Holds some rows of a batch for one topic; `rows` are positions in the batch."""

    topic: str
    rows: RowNumbers
    value: Column
    key: Column | None
    headers: Headers
    timestamps_ms: Any
    partitions: Any

    def rows_from(self, first: int) -> RowNumbers:
        """Return the rows as positions in a table in which the batch begins at row `first`."""
        rows = self.rows
        return range(rows.start + first, rows.stop + first) if isinstance(rows, range) else rows + first


@dataclass(slots=True)
class TablePlan:
    """Holds the arguments of `Producer.send_table`, and applies them to batches."""

    topic: str | None
    value: ValueSpec = "value"
    key: ValueSpec = None
    headers: Any = None
    timestamp: str | Named | int | None = None
    partition: str | Named | int | None = None
    topic_column: str | None = None
    columns: Sequence[str] | None = None
    _avro: dict[int, AvroEncoder] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.topic is None and self.topic_column is None:
            raise InvalidRecordError("send_table needs a topic, or topic_column with the name of a column that has it")
        if self.columns is not None and (isinstance(self.columns, str) or self.value != JSON):
            raise InvalidRecordError(f"columns={self.columns!r} must be a list of names, and needs value='json'")

    def parts(self, batch: ArrowBatch, now_ms: int) -> Iterator[Part]:
        """Yield the batch's rows as parts, every row once. Raises InvalidRecordError naming the column."""
        if batch.row_count == 0:
            return
        spec = self._value_spec(batch)
        key = None if self.key is None else _bytes_of(batch, self.key, "key")
        headers = self._headers_of(batch)
        timestamps, partitions = self._timestamps_of(batch, now_ms), self._partitions_of(batch)
        topics = _topic_groups(batch, self.topic_column, self.topic)
        for first, value in self._values(batch, spec):
            count = batch.row_count if len(topics) == 1 and value.row_count < 0 else _length(value, batch)
            end = first + count
            whole = Part(
                "",
                range(first, end),
                value,
                None if key is None else _slice(key, first, count, batch),
                _slice(headers, first, count, batch),
                None if timestamps is None else timestamps[first:end],
                None if partitions is None else partitions[first:end],
            )
            yield from _by_topic(whole, topics)

    def _value_spec(self, batch: ArrowBatch) -> ValueSpec:
        if self.value != JSON:
            return self.value
        if any(one.name == JSON for one in batch.fields):
            raise InvalidRecordError(
                "value='json' means rows as JSON, but the table has a column 'json' too: use value=JsonRows() for the "
                "rows or value=Named('json') for the column"
            )
        return JsonRows(self.columns)

    def _values(self, batch: ArrowBatch, spec: ValueSpec) -> Iterator[tuple[int, Column]]:
        """Yield (first row, values of some rows)."""
        if isinstance(spec, JsonRows):
            encoder = JsonEncoder(batch, _indexes(batch, spec.columns), spec.ignore_null_fields)
            first = 0
            while first < batch.row_count:
                column = encoder.encode(first, MOST_JSON_BYTES)
                yield first, column
                first += len(column)
        elif isinstance(spec, AvroRows):
            avro = self._avro.get(id(spec)) or self._avro.setdefault(id(spec), AvroEncoder(*spec.resolve(self.topic)))
            indexes = _indexes(batch, spec.columns)
            for first in range(0, batch.row_count, MOST_AVRO_ROWS):
                end = min(first + MOST_AVRO_ROWS, batch.row_count)
                yield first, avro.encode(batch, indexes, first, end)
        else:
            yield 0, Column.nulls() if spec is None else _bytes_of(batch, spec, "value")

    def _headers_of(self, batch: ArrowBatch) -> Headers:
        if isinstance(self.headers, str | Named):
            return batch.headers(_index(batch, self.headers, "headers"))
        return self.headers if isinstance(self.headers, Headers) else Headers.from_python(self.headers)

    def _timestamps_of(self, batch: ArrowBatch, now_ms: int) -> Any:
        if self.timestamp is None:
            return None
        if isinstance(self.timestamp, int):
            return np.full(batch.row_count, self.timestamp, dtype=np.int64)
        times = batch.timestamps_ms(_index(batch, self.timestamp, "timestamp"), now_ms)
        return np.frombuffer(times, dtype=np.int64)

    def _partitions_of(self, batch: ArrowBatch) -> Any:
        if self.partition is None:
            return None
        if isinstance(self.partition, int):
            return np.full(batch.row_count, self.partition, dtype=np.int32)
        return np.frombuffer(batch.partitions(_index(batch, self.partition, "partition")), dtype=np.int32)


def _index(batch: ArrowBatch, name: str | Named, role: str) -> int:
    text = name.name if isinstance(name, Named) else name
    places = [i for i, one in enumerate(batch.fields) if one.name == text]
    if len(places) == 1:
        return places[0]
    if len(batch.fields) == 1 and batch.fields[0].name == "":
        return 0  # a lone array has no name: it is the only column
    if places:
        raise InvalidRecordError(f"{role}={text!r}: the table has {len(places)} columns of that name")
    names = ", ".join(repr(one.name) for one in batch.fields[:20])
    raise InvalidRecordError(f"{role}={text!r}: no such column; the table has {names or 'none'}")


def _indexes(batch: ArrowBatch, names: Sequence[str] | None) -> list[int]:
    if names is not None:
        return [_index(batch, name, "columns") for name in names]
    seen: set[str] = set()
    for one in batch.fields:
        if one.name in seen:
            raise InvalidRecordError(f"the table has two columns {one.name!r}: name those to write in columns=")
        seen.add(one.name)
    return list(range(len(batch.fields)))


def _bytes_of(batch: ArrowBatch, spec: ValueSpec, role: str) -> Column:
    if isinstance(spec, bytes):
        return Column.constant(spec)
    if isinstance(spec, str | Named):
        return batch.byte_column(_index(batch, spec, role))
    raise InvalidRecordError(f"{role} must be the name of a column, bytes for every row or None, not {spec!r:.80}")


def _length(column: Column | Headers, batch: ArrowBatch) -> int:
    return batch.row_count if column.row_count < 0 else column.row_count


def _slice(column: Any, first: int, count: int, batch: ArrowBatch) -> Any:
    return column if count == batch.row_count else column.slice(first, count)


def _topic_groups(batch: ArrowBatch, name: str | None, default: str | None) -> list[tuple[str, Any]]:
    """Return the topics with the rows of each; None for the rows: all of them."""
    if name is None:
        assert default is not None
        return [(default, None)]
    topics, ids = batch.topics(_index(batch, name, "topic_column"), default)
    if len(topics) == 1:
        return [(topics[0], None)]
    numbers = np.frombuffer(ids, dtype=np.int32)
    order = np.argsort(numbers, kind="stable").astype(np.int64)
    ends = np.searchsorted(numbers[order], np.arange(len(topics) + 1))
    return [(topic, order[ends[i] : ends[i + 1]]) for i, topic in enumerate(topics)]


def _by_topic(part: Part, topics: list[tuple[str, Any]]) -> Iterator[Part]:
    first, end = part.rows.start, part.rows.stop  # type: ignore[union-attr]
    for topic, rows in topics:
        if rows is None:
            yield Part(topic, part.rows, part.value, part.key, part.headers, part.timestamps_ms, part.partitions)
            continue
        mine = rows[np.searchsorted(rows, first) : np.searchsorted(rows, end)]
        if not len(mine):
            continue
        places = mine - first
        yield Part(
            topic,
            mine,
            part.value.take(places),
            None if part.key is None else part.key.take(places),
            part.headers.take(places),
            None if part.timestamps_ms is None else part.timestamps_ms[places],
            None if part.partitions is None else part.partitions[places],
        )
