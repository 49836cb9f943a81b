"""Hold values to an Avro schema before fastavro writes them: its writer cuts and wraps numbers that do not fit.

| schema | takes |
|---|---|
| int, long | integers, and decimals without a fraction, in range; no floats and no booleans |
| float, double | numbers in range; integers only if they are exact there |
| boolean, string, bytes, fixed, enum | that kind alone; fixed by its size, an enum by its symbols |
| decimal | decimals of the schema's precision and scale |
| date, times, timestamps | those of Python with no more digits than the type has, and integers; without a zone: UTC |
| uuid | 16 bytes, or text |
| record | a value for each field without a default, and no other |
| union | the first branch that takes the value; double before float |

Source: Apache Avro specification 1.12.
"""

from __future__ import annotations

import datetime
import decimal
import math
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

_RANGES: Final = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}
_FLOATS: Final = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_UUID_BYTES: Final = 16
_MOST_TEXT: Final = 60

Prepare = Callable[[Any, Any], Any]


class UnfitError(ValueError):
    """A value does not fit its schema; the message has its field."""


class AvroValues:
    """The values of one schema.

    Args:
        schema: As fastavro has parsed it.
        logical: Functions of fastavro that make plain values of dates, times and decimals.
    """

    def __init__(self, schema: Any, logical: Mapping[str, Prepare]) -> None:
        self._schema = schema
        self._named: Mapping[str, Any] = schema.get("__named_schemas", {}) if isinstance(schema, Mapping) else {}
        self._logical = logical

    def fit(self, row: Any) -> Any:
        """Return a row as fastavro writes it without a change. Raises UnfitError."""
        return self._fit(self._schema, row, "")

    def _fit(self, schema: Any, value: Any, path: str) -> Any:
        if isinstance(schema, list):
            return self._branch(schema, value, path)
        if isinstance(schema, str):
            return self._fit(self._named[schema], value, path) if schema in self._named else _plain(schema, value, path)
        kind = schema["type"]
        if kind == "record" or kind == "error":
            return self._record(schema, value, path)
        if kind == "array":
            if not isinstance(value, list | tuple):
                raise _unfit(value, "array", path)
            return [self._fit(schema["items"], item, f"{path}[{i}]") for i, item in enumerate(value)]
        if kind == "map":
            if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
                raise _unfit(value, "map", path)
            return {key: self._fit(schema["values"], item, f"{path}[{key}]") for key, item in value.items()}
        if kind == "enum":
            if value not in schema["symbols"]:
                raise _unfit(value, f"enum of {', '.join(schema['symbols'])}", path)
            return value
        if not isinstance(kind, str):
            return self._fit(kind, value, path)
        logical = schema.get("logicalType")
        if logical is not None:
            value = self._plain_of(schema, f"{kind}-{logical}", value, path)
        if kind == "fixed":
            if not isinstance(value, bytes) or len(value) != schema["size"]:
                raise _unfit(value, f"fixed of {schema['size']} bytes", path)
            return value
        return _plain(kind, value, path)

    def _branch(self, branches: list[Any], value: Any, path: str) -> Any:
        """Return the value as one of the branches takes it; it is then the first that fastavro takes, too."""
        for branch in branches:
            is_float = branch in ("float", "double") and isinstance(value, int | float | decimal.Decimal)
            try:
                return self._fit("double" if is_float and "double" in branches else branch, value, path)
            except UnfitError:
                if is_float and not isinstance(value, bool):
                    raise  # fastavro would take it, and change it
        names = ", ".join(branch if isinstance(branch, str) else str(branch["type"]) for branch in branches)
        raise _unfit(value, f"union of {names}", path)

    def _record(self, schema: Mapping[str, Any], value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _unfit(value, "record", path)
        fields = {field["name"]: field for field in schema["fields"]}
        where = f"{path}." if path else ""
        for name in value:
            if name not in fields:
                raise UnfitError(
                    f"column {where + name!r} is no field of the schema, which has {', '.join(fields)}: name the "
                    "columns to write, or rename it"
                )
        for name, field in fields.items():
            if name not in value and "default" not in field:
                raise UnfitError(f"there is no column {where + name!r}, and the schema has no default for it")
        return {name: self._fit(fields[name]["type"], item, where + name) for name, item in value.items()}

    def _plain_of(self, schema: Mapping[str, Any], logical: str, value: Any, path: str) -> Any:
        """Return what stands for a value of a logical type."""
        if isinstance(value, datetime.datetime | datetime.time):
            _check_digits(logical, value, path)
        if logical in ("bytes-decimal", "fixed-decimal") and isinstance(value, decimal.Decimal):
            _check_decimal(schema, value, path)
        elif logical.startswith("long-timestamp-") and isinstance(value, datetime.datetime) and value.tzinfo is None:
            value = value.replace(tzinfo=datetime.UTC)  # fastavro takes the zone of this machine
        elif logical == "int-date" and isinstance(value, datetime.datetime):
            raise _unfit(value, "date", path)
        elif logical == "string-uuid" and isinstance(value, bytes) and len(value) == _UUID_BYTES:
            value = uuid.UUID(bytes=value)
        prepare = self._logical.get(logical)
        try:
            return value if prepare is None else prepare(value, schema)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise UnfitError(f"field {path!r}: {_shown(value)}: {error}") from None


def _plain(kind: str, value: Any, path: str) -> Any:
    """Return a value of a primitive type."""
    if kind in _RANGES:
        low, high = _RANGES[kind]
        if isinstance(value, decimal.Decimal) and value.is_finite() and value == value.to_integral_value():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise _unfit(value, kind, path)
    elif kind in _FLOATS:
        return _number(kind, value, path)
    elif (
        (kind == "null" and value is not None)
        or (kind == "boolean" and not isinstance(value, bool))
        or (kind == "string" and not isinstance(value, str))
        or (kind == "bytes" and not isinstance(value, bytes))
    ):
        raise _unfit(value, kind, path)
    return value


def _number(kind: str, value: Any, path: str) -> float:
    """Return a number as a float of this size. An integer must be exact in it, a fraction in range."""
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        raise _unfit(value, kind, path)
    try:
        number = float(value)
        (stored,) = _FLOATS[kind].unpack(_FLOATS[kind].pack(number))
    except OverflowError:
        raise _unfit(value, kind, path) from None
    is_whole = isinstance(value, int) or (isinstance(value, decimal.Decimal) and _is_whole(value))
    if (is_whole and stored != value) or (math.isinf(number) and not _is_infinite(value)):
        raise UnfitError(f"field {path!r}: {_shown(value)} is not exact as {kind}")
    return number


def _is_whole(value: decimal.Decimal) -> bool:
    return value.is_finite() and value == value.to_integral_value()


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, decimal.Decimal) and value.is_infinite())


def _check_decimal(schema: Mapping[str, Any], value: decimal.Decimal, path: str) -> None:
    precision, scale = schema["precision"], schema.get("scale", 0)
    if not value.is_finite() or value.adjusted() + 1 + scale > precision:
        raise _unfit(value, f"decimal({precision}, {scale})", path)


def _check_digits(logical: str, value: datetime.datetime | datetime.time, path: str) -> None:
    """Refuse a time that its type would cut; a pandas Timestamp has nanoseconds beside its microseconds."""
    kind = logical.partition("-")[2]
    nanoseconds = value.microsecond * 1000 + getattr(value, "nanosecond", 0)
    most_digits = {"millis": 1_000_000, "micros": 1000}.get(kind.rpartition("-")[2], 1)
    if nanoseconds % most_digits:
        raise UnfitError(f"field {path!r}: {_shown(value)} has more digits than {kind}: round it, or use a finer type")


def _unfit(value: Any, kind: str, path: str) -> UnfitError:
    return UnfitError(f"field {path!r}: {_shown(value)} is no {kind}" if path else f"{_shown(value)} is no {kind}")


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + '...'} ({type(value).__name__})"
