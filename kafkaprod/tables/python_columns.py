"""Turn NumPy arrays and lists of Python objects into plain buffers of Arrow columns."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod.errors import ArgumentTypeError, InvalidRecordError

PlainColumn = tuple[str, str, int, list[Any]]  # name, Arrow format, rows, buffers: validity or None first

NUMBER_FORMATS: Final = {
    **{"i1": "c", "i2": "s", "i4": "i", "i8": "l", "u1": "C", "u2": "S", "u4": "I", "u8": "L"},
    **{"f2": "e", "f4": "f", "f8": "g"},
}
TIME_FORMATS: Final = {"s": "tss:", "ms": "tsm:", "us": "tsu:", "ns": "tsn:"}
EPOCH: Final = datetime.date(1970, 1, 1).toordinal()


def plain_column(name: Any, values: Any) -> PlainColumn:
    """Return one column as (name, Arrow format, rows, buffers).

    Args:
        name: Its name.
        values: A one-dimensional NumPy array of numbers, booleans, datetime64, bytes, str or objects; or a sequence of
            int, float, bool, str, bytes, datetime, date, all of one kind, or None.

    NaN stays a number; NaT and None are null. NumPy's `S` and `U` columns have lost their trailing zero bytes.
    Raises: InvalidRecordError naming the column for anything else.
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(f"columns are named by str, not {type(name).__name__}: {name!r:.80}")
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise InvalidRecordError(f"column {name!r} must have one dimension, not {values.ndim}")
        return _numpy_column(name, values)
    if hasattr(values, "to_numpy"):  # a pandas or polars series
        return plain_column(name, values.to_numpy())
    if isinstance(values, str | bytes | bytearray | memoryview) or not isinstance(values, Sequence):
        raise ArgumentTypeError(f"column {name!r} must be a NumPy array or a list, not {type(values).__name__}")
    return _list_column(name, list(values))


def _numpy_column(name: str, values: NDArray[Any]) -> PlainColumn:
    kind = values.dtype.kind
    count = len(values)
    if kind in "iuf" and values.dtype.str[1:] in NUMBER_FORMATS:
        native = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
        return name, NUMBER_FORMATS[values.dtype.str[1:]], count, [None, native.view(np.uint8)]
    if kind == "b":
        return name, "b", count, [None, np.packbits(values, bitorder="little")]
    if kind == "M":
        return _datetime_column(name, values)
    if kind in "SUOT":
        return _list_column(name, values.tolist())
    raise InvalidRecordError(f"column {name!r} has NumPy type {values.dtype}: convert it first")


def _datetime_column(name: str, values: NDArray[Any]) -> PlainColumn:
    unit = np.datetime_data(values.dtype)[0]
    validity = np.packbits(~np.isnat(values), bitorder="little") if np.isnat(values).any() else None
    if unit == "D":
        days = values.astype("datetime64[D]").astype(np.int64)
        days[np.isnat(values)] = 0
        return name, "tdD", len(values), [validity, days.astype(np.int32).view(np.uint8)]
    if unit not in TIME_FORMATS:
        raise InvalidRecordError(f"column {name!r} has NumPy type {values.dtype}: use days, s, ms, us or ns")
    times = np.ascontiguousarray(values, dtype=f"datetime64[{unit}]").view(np.uint8)
    return name, TIME_FORMATS[unit], len(values), [validity, times]


def _list_column(name: str, values: list[Any]) -> PlainColumn:
    kinds = set(map(type, values)) - {type(None)}
    validity = _validity(values)
    count = len(values)
    if not kinds:
        return name, "n", count, [None]
    if kinds <= {bytes, bytearray, memoryview}:
        return name, "Z", count, [validity, *_joined([b"" if value is None else bytes(value) for value in values])]
    if kinds == {str}:
        try:
            encoded = [b"" if value is None else value.encode() for value in values]
        except UnicodeEncodeError as error:
            raise InvalidRecordError(f"column {name!r} holds text that is not Unicode: {error}") from error
        return name, "U", count, [validity, *_joined(encoded)]
    if kinds == {bool} or kinds == {np.bool_}:
        return name, "b", count, [validity, np.packbits([bool(value) for value in values], bitorder="little")]
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        return name, "l", count, [validity, _numbers(name, values, np.int64)]
    if all(issubclass(kind, int | float | np.integer | np.floating) and kind is not bool for kind in kinds):
        return name, "g", count, [validity, _numbers(name, values, np.float64)]
    if kinds == {datetime.datetime}:
        return _times_column(name, values, validity)
    if kinds == {datetime.date}:
        days = [0 if value is None else value.toordinal() - EPOCH for value in values]
        return name, "tdD", count, [validity, _numbers(name, days, np.int32)]
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise InvalidRecordError(
        f"column {name!r} holds {names}: a list holds one of int, float, bool, str, bytes, datetime, date, or None; "
        "for anything else make a table with pyarrow or polars"
    )


def _times_column(name: str, values: list[Any], validity: Any) -> PlainColumn:
    zones = {value.tzinfo is not None for value in values if value is not None}
    if len(zones) > 1:
        raise InvalidRecordError(f"column {name!r} mixes datetimes with and without time zone")
    has_zone = zones == {True}
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC if has_zone else None)
    step = datetime.timedelta(microseconds=1)
    times = [0 if value is None else (value - epoch) // step for value in values]
    return name, "tsu:UTC" if has_zone else "tsu:", len(values), [validity, _numbers(name, times, np.int64)]


def _numbers(name: str, values: list[Any], dtype: type[Any]) -> Any:
    try:
        return np.array([0 if value is None else value for value in values], dtype=dtype).view(np.uint8)
    except OverflowError as error:
        raise InvalidRecordError(f"column {name!r}: {error}: a number is beyond 64 bits") from error


def _validity(values: list[Any]) -> Any:
    if None not in values:
        return None
    return np.packbits([value is not None for value in values], bitorder="little")


def _joined(values: list[bytes]) -> list[Any]:
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    return [offsets.view(np.uint8), b"".join(values)]
