"""Map the columns of a DataFrame to the parts of a record: checked on the driver, with the errors of Spark's own sink.

Source: org.apache.spark.sql.kafka010.KafkaWriter. Made once per write, pickled to every task.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from kafkaprod.errors import ConfigError
from kafkaprod.spark.avro import avro_rows
from kafkaprod.spark.options import SinkOptions
from kafkaprod.spark.streams import StreamRun
from kafkaprod.tables import AvroRows, JsonRows

_ATTRIBUTES: Final = ("key", "topic", "partition", "headers", "timestamp")
_ALL_COLUMNS: Final = "set value.format=json to write all columns"
# By name: of some, older Sparks have no class.
_INTERVALS: Final = frozenset(("DayTimeIntervalType", "YearMonthIntervalType", "CalendarIntervalType"))
_JSON_KEYS: Final = (StringType, BooleanType, ByteType, ShortType, IntegerType, LongType)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """A checked write.

    Attributes:
        options: As given.
        value: Position of the column, -1 if the value is made of several. key, topic, headers, partition, timestamp:
            positions, -1 if there is no such column (or, for the topic, if the option names it).
        rows: How several columns become a value; None: they do not.
        write_id: Replaces the query id if Spark has none: the option, or an id of this write.
        token: Identifies this write; all attempts at its tasks share it.
        stream: The stream of a micro-batch that is written over Spark Connect, where tasks do not learn it; else None.
    """

    options: SinkOptions
    value: int
    key: int
    topic: int
    headers: int
    partition: int
    timestamp: int
    rows: JsonRows | AvroRows | None
    write_id: str
    token: str
    stream: StreamRun | None = None


def make_plan(schema: StructType, options: SinkOptions) -> WritePlan:
    """Check a schema against the sink's contract; a schema of Avro values is taken from its registry.

    Raises:
        ConfigError: A column is missing or has a wrong type; the words are those of Spark's sink. Or the registry
            refused, or its schema does not fit.
    """
    names = schema.names

    def find(name: str, is_allowed: Callable[[DataType], bool], wanted: str) -> int:
        if name not in names:
            return -1
        _refuse_twice(names, name)
        position = names.index(name)
        found = schema.fields[position].dataType
        if not is_allowed(found):
            hint = f": cast it, or {_ALL_COLUMNS}" if name == "value" else ""
            raise ConfigError(
                f"{name} attribute unsupported type {found.simpleString()}. {name} must be a(n) {wanted}{hint}"
            )
        return position

    topic = -1
    if options.topic is None:
        topic = find("topic", _is_a(StringType), "string")
        if topic < 0:
            raise ConfigError(
                "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
            )
    key = find("key", _is_a(StringType, BinaryType), "string or binary")
    value = -1
    if options.value_format == "bytes":
        value = find("value", _is_a(StringType, BinaryType), "string or binary")
        if value < 0:
            raise ConfigError(f"Required attribute 'value' not found: name a column so, or {_ALL_COLUMNS}")
    token = uuid.uuid4().hex
    return WritePlan(
        options=options,
        value=value,
        key=key,
        topic=topic,
        headers=find("headers", _is_headers, "array<struct<key:string,value:binary>>"),
        partition=find("partition", _is_a(IntegerType), "int"),
        timestamp=find("timestamp", _is_a(TimestampType), "timestamp"),
        rows=_value_rows(schema, options),
        write_id=options.write_id or token,
        token=token,
    )


def _refuse_twice(names: list[str], name: str) -> None:
    if names.count(name) > 1:
        raise ConfigError(f"there are {names.count(name)} columns {name!r}: rename or drop all but one")


def _value_rows(schema: StructType, options: SinkOptions) -> JsonRows | AvroRows | None:
    if options.value_format == "bytes":
        return None
    names = schema.names
    wanted = options.value_columns
    if wanted is None:
        wanted = tuple(name for name in names if name not in _ATTRIBUTES)
    for name in wanted:
        if name not in names:
            raise ConfigError(f"value.columns names {name!r}, which is not among the columns {', '.join(names)}")
        _refuse_twice(names, name)
        parts = list(_parts(schema[name].dataType))
        if any(part.typeName() == "variant" for part in parts):  # a class of Spark 4.0
            # Arrow has it as a struct of two binaries, which would be sent as data.
            raise ConfigError(
                f"column {name!r} is or contains a variant: write to_json({name}), or cast it to its type"
            )
        _refuse_types(name, parts, options.value_format)
    if not wanted:
        raise ConfigError(
            f"value.format={options.value_format} needs a column besides key, topic, partition, headers and timestamp"
        )
    return JsonRows(list(wanted)) if options.avro is None else avro_rows(options.avro, options.topic, wanted)


def _refuse_types(name: str, parts: list[DataType], value_format: str) -> None:
    """Refuse a column of whose types one cannot be written; tasks would, but with Arrow's names."""
    for part in parts:
        if type(part).__name__ in _INTERVALS:
            raise ConfigError(
                f"column {name!r} is or contains an {part.simpleString()}, which cannot be written with "
                f"value.format={value_format}: cast it to a string or a number, or leave it out by value.columns"
            )
        if value_format == "json" and isinstance(part, MapType) and not isinstance(part.keyType, _JSON_KEYS):
            raise ConfigError(
                f"column {name!r} is or contains a {part.simpleString()}, but keys of a JSON object are strings, "
                "integers or booleans: cast them, or leave it out by value.columns"
            )


def _parts(found: DataType) -> Iterator[DataType]:
    """Yield a type and all that it consists of."""
    yield found
    if isinstance(found, StructType):
        for item in found.fields:
            yield from _parts(item.dataType)
    elif isinstance(found, ArrayType):
        yield from _parts(found.elementType)
    elif isinstance(found, MapType):
        yield from _parts(found.keyType)
        yield from _parts(found.valueType)


def _is_a(*types: Any) -> Callable[[DataType], bool]:
    return lambda found: isinstance(found, types)


def _is_headers(found: DataType) -> bool:
    if not (isinstance(found, ArrayType) and isinstance(found.elementType, StructType)):
        return False
    pair = found.elementType.fields
    return (
        [item.name for item in pair] == ["key", "value"]
        and isinstance(pair[0].dataType, StringType)
        and isinstance(pair[1].dataType, BinaryType)
    )
