"""Infer types of CSV columns from their content, for `--infer-types`, where no value changes by it.

A column has numbers if every value of the first piece is written as JSON writes it (no zeros in front, no plus sign, no
blanks) and has a double or a 64-bit integer that is exactly its number. Times and dates stay text: JSON has no other
form for them.
"""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

INT: Final = r"^(-?[1-9][0-9]*|0)$"
NUMBER: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_SAFE_LENGTH: Final = 15  # so many digits a double keeps always
_LONGEST_INT64: Final = 20  # characters; int() raises ValueError for thousands of digits
_LONG_OR_POWER: Final = rf"^.{{{_SAFE_LENGTH + 1},}}$|[eE]|^-0"


def inferred_types(table: pa.Table, nulls: list[str]) -> dict[str, Any]:
    """Return the type of each column that is not text, from columns of text.

    Args:
        table: The first rows, as text.
        nulls: Texts that stand for null.
    """
    import pyarrow as pa

    found = {}
    for name in table.column_names:
        for kind in (pa.int64(), pa.float64(), pa.bool_()):
            array, reasons = exact_column(table[name].combine_chunks(), name, kind, nulls)
            if not reasons and array.null_count < len(array):
                found[name] = kind
                break
    return found


def exact_column(texts: pa.Array, name: str, kind: pa.DataType, nulls: list[str]) -> tuple[pa.Array, dict[int, str]]:
    """Return a column of text as another type, and by place why a value has none that is the same.

    Args:
        texts: The column.
        name: The column's name, for the reasons.
        kind: int64, float64 or bool.
        nulls: Texts that stand for null.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = texts.cast(pa.large_string()) if not pa.types.is_large_string(texts.type) else texts
    values = with_nulls(texts, nulls)
    if pa.types.is_boolean(kind):
        is_exact = pc.is_in(values, value_set=pa.array(["true", "false", None], texts.type))
    else:
        pattern = INT if pa.types.is_integer(kind) else NUMBER
        is_exact = pc.fill_null(pc.match_substring_regex(values, pattern), True)
    is_exact = is_exact.to_numpy(zero_copy_only=False).copy()
    if not pa.types.is_boolean(kind):
        doubtful = pc.fill_null(pc.match_substring_regex(values, _LONG_OR_POWER), False).to_numpy(zero_copy_only=False)
        is_number = _is_int64 if pa.types.is_integer(kind) else _is_double
        for place in np.flatnonzero(doubtful & is_exact).tolist():
            is_exact[place] = is_number(values[place].as_py())
    bad = np.flatnonzero(~is_exact).tolist()
    shown = {place: values[place].cast(pa.large_binary()).as_py().decode(errors="backslashreplace") for place in bad}
    reasons = {i: f"{name}={shown[i]!r} is not the same as {kind}; use --column-type" for i in bad}
    if bad:
        values = pc.if_else(pa.array(is_exact), values, pa.scalar(None, texts.type))
    return values.cast(kind), reasons


def with_nulls(texts: pa.Array, nulls: list[str]) -> pa.Array:
    """Return a column of text with null for the texts that stand for it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pc.is_in(texts, value_set=pa.array(nulls, texts.type)), pa.scalar(None, texts.type), texts)


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are texts or bytes, which an empty field is, too; else that is null."""
    from pyarrow import types

    return bool(types.is_string_view(kind) or types.is_binary_view(kind))


def is_parsed(kind: pa.DataType) -> bool:
    """Return whether pyarrow makes columns of a type from CSV; others have to be cast from text."""
    import pyarrow as pa
    import pyarrow.csv as pc

    read, convert = pc.ReadOptions(column_names=["value"]), pc.ConvertOptions(column_types={"value": kind})
    try:
        pc.read_csv(pa.py_buffer(b'""\n'), read, convert_options=convert)
    except pa.ArrowNotImplementedError:
        return False
    except pa.ArrowInvalid:
        return True  # an empty text has no value of it
    return True


def _is_int64(text: str) -> bool:
    return len(text) <= _LONGEST_INT64 and -(1 << 63) <= int(text) < 1 << 63


def _is_double(text: str) -> bool:
    number = float(text)
    loses_sign = number == 0 and text.startswith("-") and "." not in text  # -0 would become -0.0
    return isfinite(number) and Decimal(text) == Decimal(repr(number)) and not loses_sign
