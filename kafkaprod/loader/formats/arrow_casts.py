"""Cast columns of tables, for `--column-type`: a value that does not fit is a bad row, never another value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkaprod.loader.formats.arrow_forms import is_interval
from kafkaprod.loader.formats.arrow_rows import ArrowRows, has_bytes
from kafkaprod.loader.opening.errors import LoadRefusedError

if TYPE_CHECKING:
    import pyarrow as pa

# Names that pyarrow writes and does not read.
_DECIMAL: Final = re.compile(r"decimal(32|64|128|256)\((\d{1,3}), ?(-?\d{1,3})\)")
_ZONED: Final = re.compile(r"timestamp\[(s|ms|us|ns), ?tz=([^\]]+)\]")
_FIXED: Final = re.compile(r"fixed_size_binary\[(\d{1,6})\]")
_ALIASES: Final = {"text": "string", "int": "int64", "float": "double", "timestamp": "timestamp[ms]", "date": "date32"}


def type_named(name: str) -> Any:
    """Return the Arrow type of a name in `--column-type`. Raises LoadRefusedError."""
    import pyarrow as pa

    try:
        if found := _DECIMAL.fullmatch(name):
            return getattr(pa, f"decimal{found[1]}")(int(found[2]), int(found[3]))
        if found := _ZONED.fullmatch(name):
            return pa.timestamp(found[1], found[2])
        if found := _FIXED.fullmatch(name):
            return pa.binary(int(found[1]))
        return pa.type_for_alias(_ALIASES.get(name, name))
    except (ValueError, OverflowError) as error:
        raise LoadRefusedError(
            f"--column-type: {name!r} is no type; try text, int, float, bool, timestamp, date, decimal128(38, 2), "
            "timestamp[ms, tz=UTC]"
        ) from error


def cast_schema(schema: pa.Schema, names: Sequence[str], types: Mapping[str, str], source: str) -> pa.Schema:
    """Return the schema after the casts.

    Args:
        schema: The schema of the input.
        names: The columns that are read.
        types: Column -> name of the wanted type.
        source: The name of the input.

    Raises:
        LoadRefusedError: Values of one type cannot be cast to the other one.
    """
    import pyarrow as pa

    for name in names:
        if name not in types:
            continue
        place = schema.get_field_index(name)
        kind = type_named(types[name])
        own = schema.field(place).type
        if is_interval(own):  # pyarrow has no arrays of two of them
            raise LoadRefusedError(f"{source}: column {name!r} of type {own} cannot be cast to {types[name]}")
        try:
            _cast(_plain(pa.nulls(1, own)), kind)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise LoadRefusedError(
                f"{source}: column {name!r} of type {own} cannot be cast to {types[name]}: {error}"
            ) from error
        schema = schema.set(place, pa.field(name, kind))
    return schema


def cast_value(value: Any, name: str, kind: str, source: str) -> Any:
    """Return the value that a column of a folder has in all rows, after the cast; an Arrow scalar.

    Args:
        value: The value.
        name: The column.
        kind: The name of the wanted type.
        source: The name of the input.

    Raises:
        LoadRefusedError: It does not fit.
    """
    import pyarrow as pa

    array = pa.array([value], pa.string() if value is None else None)
    schema = cast_schema(pa.schema([(name, array.type)]), [name], {name: kind}, source)
    batch, reasons = cast_columns(pa.record_batch([array], names=[name]), {name: kind})
    if reasons:
        raise LoadRefusedError(f"{source}: {reasons[0]}; its folder says {name}={value}")
    return batch.column(0).cast(schema.field(0).type)[0]


def cast_columns(batch: pa.RecordBatch, types: Mapping[str, str]) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Return a batch after the casts, and by place why a value does not fit; it is null there.

    Args:
        batch: The rows.
        types: Column -> name of the wanted type.
    """
    import pyarrow as pa

    wanted = [(place, name) for place, name in enumerate(batch.schema.names) if name in types]
    if not wanted:
        return batch, {}
    arrays, reasons = list(batch.columns), dict[int, str]()
    for place, name in wanted:
        arrays[place], why = cast_column(arrays[place], name, types[name])
        reasons = why | reasons
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names), reasons


def cast_column(array: pa.Array, name: str, kind: str) -> tuple[pa.Array, dict[int, str]]:
    """Return a column after the cast, and by place why a value does not fit; it is null there.

    Args:
        array: The column.
        name: The column's name, for the reasons.
        kind: The name of the wanted type.
    """
    import pyarrow as pa

    wanted, parts, reasons = type_named(kind), list[Any](), dict[int, str]()
    for first, part, why in _cast_parts(_plain(array), wanted, 0):
        parts.append(part)
        if why is not None:
            reasons[first] = f"{name} cannot be cast to {kind}: {why}"
    return pa.concat_arrays(parts) if parts else pa.array([], wanted), reasons


def _cast_parts(array: pa.Array, kind: Any, first: int) -> Iterator[tuple[int, pa.Array, str | None]]:
    """Yield parts after the cast, with the place of each; a value that does not fit is a part of its own."""
    import pyarrow as pa

    try:
        cast = _cast(array, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        if len(array) == 1:
            yield first, pa.nulls(1, kind), str(error)
            return
        half = len(array) // 2
        yield from _cast_parts(array.slice(0, half), kind, first)
        yield from _cast_parts(array.slice(half), kind, first + half)
    else:
        yield first, cast, None


def _plain(array: pa.Array) -> pa.Array:
    """Return the values themselves: without extension type, dictionary and run ends."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    while True:
        if getattr(array.type, "extension_name", "") in ("arrow.uuid", "arrow.bool8"):
            return array
        if hasattr(array.type, "storage_type"):
            array = array.storage
        elif types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _cast(array: pa.Array, kind: Any) -> pa.Array:
    import pyarrow as pa
    from pyarrow import types

    if array.type == kind:
        return array
    is_text = types.is_string(kind) or types.is_large_string(kind)
    if is_text and not has_bytes(array.type) and not _has_no_form(array.type):  # the text is that of the value in JSON
        rows = ArrowRows(pa.record_batch([array], names=["value"]))
        return rows.text_array("value").cast(kind)
    if is_text and hasattr(array.type, "storage_type"):
        return ArrowRows(pa.record_batch([array], names=["value"])).shown("value").cast(kind)
    if hasattr(array.type, "storage_type"):
        array = array.storage
    return array.cast(kind)


def _has_no_form(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_duration(kind) or is_interval(kind) or types.is_union(kind) or types.is_decimal256(kind))
