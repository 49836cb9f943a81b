"""Turn NumPy arrays and lists of Python objects into plain buffers of Arrow columns."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkaprod.errors import ArgumentTypeError, InvalidRecordError
from kafkaprod.threads import importing

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

    NaN stays a number; NaT, None and what a masked array masks are null. NumPy's `S` and `U` columns have lost their
    trailing zero bytes.
    Raises: InvalidRecordError naming the column for anything else.
    """
    _checked_name(name)
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise InvalidRecordError(f"column {name!r} must have one dimension, not {values.ndim}")
        return _masked_column(name, values) if isinstance(values, np.ma.MaskedArray) else _numpy_column(name, values)
    if hasattr(values, "to_numpy"):  # a pandas series over an array of NumPy
        return plain_column(name, values.to_numpy())
    if isinstance(values, str | bytes | bytearray | memoryview) or not isinstance(values, Sequence):
        raise ArgumentTypeError(f"column {name!r} must be a NumPy array or a list, not {type(values).__name__}")
    return _list_column(name, list(values))


def is_arrow(values: Any) -> bool:
    """Return whether a column is made of Arrow, or of types whose nulls NumPy has as numbers or texts."""
    if isinstance(values, np.ndarray):
        return False
    has_interface = any(hasattr(values, f"__arrow_{kind}__") for kind in ("c_stream", "c_array", "array"))
    if has_interface or type(values).__module__.partition(".")[0] == "pandas":
        return not isinstance(getattr(values, "dtype", None), np.dtype)
    return False


@importing
def _pyarrow() -> Any:
    import pyarrow

    return pyarrow


def arrow_table(columns: Mapping[Any, Any]) -> Any:
    """Return columns, some of which `is_arrow`, as a table of pyarrow.

    Raises:
        InvalidRecordError: A column has no Arrow form, or pyarrow is missing.
    """
    try:
        pa = _pyarrow()
    except ImportError as error:
        raise InvalidRecordError("a mapping with series or Arrow arrays needs pyarrow: give a frame instead") from error
    arrays = []
    for name, values in columns.items():
        if is_arrow(values):
            check_no_periods(name, getattr(values, "dtype", None))
            is_stream = hasattr(values, "__arrow_c_stream__")
            arrays.append(pa.chunked_array(values) if is_stream else pa.array(values, from_pandas=True))
            continue
        _, text, count, buffers = plain_column(name, values)
        held = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
        arrays.append(pa.Array.from_buffers(_arrow_type(text), count, held))
    return pa.Table.from_arrays(arrays, names=[_checked_name(name) for name in columns])


def _arrow_type(text: str) -> Any:
    """Return pyarrow's type of a format of the Arrow C interface, of those that `plain_column` has."""
    pa = _pyarrow()
    if text.startswith("ts"):
        units = {"s": "s", "m": "ms", "u": "us", "n": "ns"}
        return pa.timestamp(units[text[2]], text.partition(":")[2] or None)
    names = {
        **{"c": "int8", "s": "int16", "i": "int32", "l": "int64", "C": "uint8", "S": "uint16", "I": "uint32"},
        **{"L": "uint64", "e": "float16", "f": "float32", "g": "float64", "b": "bool", "Z": "large_binary"},
        **{"U": "large_string", "n": "null", "tdD": "date32"},
    }
    return pa.type_for_alias(names[text])


def check_no_periods(name: Any, dtype: Any) -> None:
    """Refuse a column of pandas periods. Raises InvalidRecordError."""
    if str(dtype).startswith("period["):
        raise InvalidRecordError(
            f"column {name!r} holds periods of pandas, whose Arrow form is a number of them since 1970: convert it "
            "with astype(str) or dt.to_timestamp()"
        )


def _checked_name(name: Any) -> str:
    if not isinstance(name, str):
        raise ArgumentTypeError(f"columns are named by str, not {type(name).__name__}: {name!r:.80}")
    return name


def _masked_column(name: str, values: np.ma.MaskedArray[Any, Any]) -> PlainColumn:
    if values.dtype.kind in "SUOT":
        return _list_column(name, values.tolist())  # None where they are masked
    _, text, count, (validity, *buffers) = _numpy_column(name, values.data)
    is_there = ~np.ma.getmaskarray(values)
    if validity is not None:
        is_there &= np.unpackbits(validity, count=count, bitorder="little").astype(bool)
    return name, text, count, [np.packbits(is_there, bitorder="little"), *buffers]


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
        return name, "g", count, [validity, _numbers(name, [_exact(name, value) for value in values], np.float64)]
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


def _exact(name: str, value: Any) -> Any:
    """Return a number that is there as a float. Raises InvalidRecordError for an integer that would be another one."""
    if value is None or not isinstance(value, int | np.integer):
        return value
    try:
        is_exact = int(float(value)) == value
    except OverflowError:
        is_exact = False
    if not is_exact:
        raise InvalidRecordError(
            f"column {name!r} holds floats and the integer {value}, which no float has: make all of them integers, or "
            "floats, or texts"
        )
    return value


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
