"""Decide which columns of an Arrow table are read, and rewrite types that the engine does not know.

A type without a form in JSON is refused by the schema, before the first row is read. docs/json.md has the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkaprod.loader.opening.errors import LoadRefusedError, check_fields
from kafkaprod.loader.opening.source import FolderColumns
from kafkaprod.tables.row_plan import AVRO, JSON, RowPlan

if TYPE_CHECKING:
    import pyarrow as pa

MOST_DIGITS: Final = 38  # of a decimal128
_DASHES: Final = (8, 13, 18, 23)
_SEEN: Final = np.delete(np.arange(36), _DASHES)
_HEX: Final = np.frombuffer(bytes(range(256)).hex().encode(), dtype=np.uint8).reshape(256, 2)


def names_to_read(plan: RowPlan, names: Sequence[str], source: str, folder_names: Sequence[str] = ()) -> list[str]:
    """Return the columns that become a part of a record, in the order of the input.

    Args:
        plan: What becomes of rows.
        names: The columns of the input.
        source: Its name.
        folder_names: Columns of its folders' names.

    Raises:
        LoadRefusedError: A column is missing, or there are two of one name.
    """
    wanted = set(plan.fields)
    if plan.value in (JSON, AVRO):
        wanted.update(names if plan.columns is None else plan.columns)
    check_fields([*plan.fields, *(plan.columns or ())], [*names, *folder_names], source)
    found = [name for name in names if name in wanted]
    twice = next((name for name in found if found.count(name) > 1), None) if len(set(found)) < len(found) else None
    if twice is not None:
        raise LoadRefusedError(f"{source} has two columns {twice!r}: name the others with --columns, or rename one")
    return found


def check_forms(schema: pa.Schema, names: Sequence[str], source: str) -> None:
    """Refuse columns whose type has no form in JSON. Raises LoadRefusedError."""
    for name in names:
        field = schema.field(schema.get_field_index(name))
        why = next(_reasons(field.type, name, is_inner=False), None)
        if why is not None:
            others = ",".join(other for other in schema.names if other != name)
            hint = f" Leave it out with --columns {others[:60]}{'...' if len(others) > 60 else ''}" if others else ""
            raise LoadRefusedError(f"{source}: {why}: cast it {_castable(field)}.{hint}")


def _castable(field: pa.Field) -> str:
    from pyarrow import types

    if types.is_duration(field.type):
        return f"with --column-type {field.name}=int"
    return f"with --column-type {field.name}=text" if types.is_decimal256(field.type) else "first"


def changed_forms(schema: pa.Schema, names: Sequence[str]) -> set[str]:
    """Return the types whose text is not that of version 0.1: who resumes a load of it would mix both."""
    found: set[str] = set()
    for name in names:
        found.update(
            str(kind.extension_name)
            for kind in _inner_types(schema.field(schema.get_field_index(name)).type)
            if hasattr(kind, "extension_name") and kind.extension_name in ("arrow.uuid", "arrow.bool8")
        )
    return found


def _inner_types(kind: Any) -> Iterator[Any]:
    yield kind
    if hasattr(kind, "storage_type"):
        yield from _inner_types(kind.storage_type)
    elif kind.num_fields:  # a list has its items' type here and as `value_type`: once, or 30 levels are 2^30 types
        for place in range(kind.num_fields):
            yield from _inner_types(kind.field(place).type)
    elif hasattr(kind, "value_type"):
        yield from _inner_types(kind.value_type)


def is_interval(kind: Any) -> bool:
    """Return whether a type is one of the three of intervals; pyarrow.types knows that of months, days and ns only."""
    import pyarrow as pa

    return kind.id in (pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME, pa.lib.Type_INTERVAL_MONTH_DAY_NANO)


def _reasons(kind: Any, path: str, *, is_inner: bool) -> Iterator[str]:
    """Yield why a type has no form; `is_inner`: it is where columns cannot be rewritten."""
    from pyarrow import types

    if types.is_duration(kind) or is_interval(kind) or types.is_union(kind):
        yield f"column {path!r} has type {_shown(kind)}, which has no form in JSON"
    elif types.is_decimal256(kind) and kind.precision > MOST_DIGITS:
        yield f"column {path!r} has type {_shown(kind)}, which has more than {MOST_DIGITS} digits"
    elif is_inner and (types.is_decimal256(kind) or types.is_run_end_encoded(kind) or _is_rewritten(kind)):
        yield f"column {path!r} has type {_shown(kind)} inside of a map, a list of fixed size, or a list view"
    elif hasattr(kind, "storage_type"):
        yield from _reasons(kind.storage_type, path, is_inner=is_inner)
    elif types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        yield from _reasons(kind.value_type, path, is_inner=is_inner)
    elif types.is_map(kind):
        key = kind.key_type.value_type if types.is_dictionary(kind.key_type) else kind.key_type
        is_text = types.is_string(key) or types.is_large_string(key) or types.is_string_view(key)
        if not (is_text or types.is_integer(key) or types.is_boolean(key)):
            yield f"column {path!r}: keys of a JSON object are strings, integers or booleans, not {key}"
        yield from _reasons(kind.item_type, f"{path}.value", is_inner=True)
    elif types.is_struct(kind):
        names = [field.name for field in kind]
        if len(set(names)) < len(names):
            yield f"column {path!r} has two fields {next(name for name in names if names.count(name) > 1)!r}"
        for field in kind:
            yield from _reasons(field.type, f"{path}.{field.name}", is_inner=is_inner)
    elif types.is_nested(kind):
        is_plain = types.is_list(kind) or types.is_large_list(kind)
        yield from _reasons(kind.value_type, f"{path}.{kind.value_field.name}", is_inner=is_inner or not is_plain)


def _shown(kind: Any) -> str:
    text = str(kind)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _is_rewritten(kind: Any) -> bool:
    return getattr(kind, "extension_name", "") in ("arrow.uuid", "arrow.bool8")


def without_codings(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch without types that are another coding of one that the engine knows; their values are the same."""
    return _with_columns(batch, is_text=False)


def with_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch where values of extension types are what people write: a UUID is its text, not 16 bytes."""
    return _with_columns(batch, is_text=True)


def _with_columns(batch: pa.RecordBatch, *, is_text: bool) -> pa.RecordBatch:
    import pyarrow as pa

    places = [i for i, field in enumerate(batch.schema) if _changes(field.type, is_text=is_text)]
    if not places:
        return batch
    columns = list(batch.columns)
    for place in places:
        columns[place] = _rewritten(columns[place], is_text=is_text)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _changes(kind: Any, *, is_text: bool) -> bool:
    from pyarrow import types

    if hasattr(kind, "storage_type"):
        return (is_text and _is_rewritten(kind)) or _changes(kind.storage_type, is_text=is_text)
    if types.is_run_end_encoded(kind) or types.is_decimal256(kind):
        return True
    if types.is_struct(kind):
        return any(_changes(field.type, is_text=is_text) for field in kind)
    is_outer = types.is_list(kind) or types.is_large_list(kind) or types.is_dictionary(kind)
    return is_outer and _changes(kind.value_type, is_text=is_text)


def _rewritten(array: pa.Array, *, is_text: bool) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    kind = array.type
    if not _changes(kind, is_text=is_text):
        return array
    if hasattr(kind, "storage_type"):
        if is_text and kind.extension_name == "arrow.uuid":
            return uuid_texts(array.storage)
        if is_text and kind.extension_name == "arrow.bool8":
            return array.storage.cast(pa.bool_())
        return _rewritten(array.storage, is_text=is_text)
    if types.is_run_end_encoded(kind):
        return _rewritten(pc.run_end_decode(array), is_text=is_text)
    if types.is_dictionary(kind):
        return _rewritten(array.dictionary_decode(), is_text=is_text)
    if types.is_decimal256(kind):
        return array.cast(pa.decimal128(kind.precision, kind.scale))
    if types.is_struct(kind):
        children = [_rewritten(array.field(i), is_text=is_text) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, [field.name for field in kind], mask=array.is_null())
    offsets = array.offsets
    offsets = pa.array(offsets.to_numpy(), offsets.type)  # a mask wants offsets that are no slice
    values = _rewritten(array.values, is_text=is_text)
    return type(array).from_arrays(offsets, values, mask=array.is_null())


def with_folder_columns(batch: pa.RecordBatch, columns: FolderColumns, plan: RowPlan) -> pa.RecordBatch:
    """Return a batch with the columns of its folders' names; one of the file that has such a name is replaced.

    Args:
        batch: Rows of the file.
        columns: Name and value of each.
        plan: What becomes of rows; a column that it does not need is left out.
    """
    import pyarrow as pa

    for name, value in columns:
        is_shown = plan.value in (JSON, AVRO) and (plan.columns is None or name in plan.columns)
        if not is_shown and name not in plan.fields:
            continue
        if not isinstance(value, pa.Scalar):
            value = pa.scalar(value, pa.string() if value is None else None)
        array = pa.repeat(value, batch.num_rows)
        place = batch.schema.get_field_index(name)
        names, arrays = list(batch.schema.names), list(batch.columns)
        if place < 0:
            names, arrays = [*names, name], [*arrays, array]
        else:
            arrays[place] = array
        batch = pa.RecordBatch.from_arrays(arrays, names=names)
    return batch


def folder_value(scalar: pa.Scalar) -> Any:
    """Return what with_folder_columns() writes as a column of the file would be, which has the scalar's type."""
    from pyarrow import types

    value = scalar.as_py()
    if value is not None and types.is_float32(scalar.type):
        return float(str(np.float32(value)))  # the digits of a float, not those of the double next to it
    return str(value) if getattr(scalar.type, "extension_name", "") == "arrow.uuid" else value


def uuid_texts(array: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Return 16 bytes a value as a UUID is written: `189f9591-975a-4c82-8d8b-1f5fdd00b32c`."""
    import pyarrow as pa

    count = len(array)
    if not count:
        return pa.array([], pa.string())
    data = np.frombuffer(array.buffers()[1], dtype=np.uint8)[16 * array.offset : 16 * (array.offset + count)]
    texts = np.full((count, 36), ord("-"), dtype=np.uint8)
    texts[:, _SEEN] = _HEX[data.reshape(count, 16)].reshape(count, 32)
    offsets = np.arange(0, 36 * (count + 1), 36, dtype=np.int32)
    is_valid = array.is_valid().to_numpy(zero_copy_only=False)
    validity = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(texts), validity)
