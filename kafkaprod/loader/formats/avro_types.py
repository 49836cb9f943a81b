"""Give the types of an Avro schema their types of Arrow: the table is in docs/json.md.

Source: Avro 1.12, Schema Declaration and Logical Types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkaprod.loader.formats.limits import check_schema
from kafkaprod.loader.opening.errors import LoadError, LoadRefusedError

if TYPE_CHECKING:
    import pyarrow as pa

_UNITS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}


def without_logical_types(schema: Any) -> Any:
    """Return a schema whose times are plain numbers, and UUIDs what they are stored as; decimals stay."""
    if isinstance(schema, list):
        return [without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    is_decimal = schema.get("logicalType") == "decimal" and _logical(schema) is not None
    return {
        key: without_logical_types(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
        if key != "logicalType" or is_decimal
    }


def arrow_schema(schema: Any, source: str) -> pa.Schema:
    """Return the columns of a record's schema.

    Args:
        schema: The schema, as JSON.
        source: The name of the input.

    Raises:
        LoadRefusedError: It is no record, a type of it contains itself, or it is too large.
        LoadError: It is damaged.
    """
    import pyarrow as pa

    if isinstance(schema, dict) and isinstance(schema.get("type"), dict):
        schema = schema["type"]
    if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
        raise LoadRefusedError(f"{source}: its rows are no records, but {str(schema)[:60]}: convert it first")
    try:
        kind = _Types(source).of(schema).kind
    except LoadError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:  # no schema at all
        raise LoadError(f"{source} is damaged: its schema cannot be read: {type(error).__name__}: {error}") from error
    return pa.schema([kind.field(i) for i in range(kind.num_fields)])


class _Type(NamedTuple):
    """Is an Arrow type, with how many types it has in it, each counted where it is used, and how deep they are."""

    kind: Any
    nodes: int = 1
    depth: int = 1


class _Types:
    """Knows the named types that a schema has defined so far.

    Args:
        source: The name of the input.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._named: dict[str, _Type | None] = {}  # None: it is being defined

    def of(self, schema: Any, space: str = "", above: int = 0) -> _Type:
        """Return the Arrow type.

        Args:
            schema: The Avro type.
            space: The namespace around it.
            above: How many types it is inside of.
        """
        import pyarrow as pa

        check_schema(1, above, self._source)
        if isinstance(schema, list):
            kinds = [self.of(each, space, above + 1) for each in schema if each != "null"]
            if len(kinds) > 1:
                fields = [pa.field(str(i), each.kind) for i, each in enumerate(kinds)]
                return self._around(lambda: pa.sparse_union(fields), kinds)
            return kinds[0] if kinds else _Type(pa.null())
        if isinstance(schema, str):
            return self._by_name(schema, space)
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._defined(schema, space, above)
        if kind == "array":
            items = self.of(schema["items"], space, above + 1)
            if _is_empty(items.kind):  # a file of some bytes could have any number of them
                raise LoadRefusedError(
                    f"{self._source}: an array of its schema has items without a value: {items.kind}"
                )
            return self._around(lambda: pa.list_(items.kind), [items])
        if kind == "map":
            values = self.of(schema["values"], space, above + 1)
            return self._around(lambda: pa.map_(pa.string(), values.kind), [values])
        if isinstance(kind, dict | list):
            return self.of(kind, space, above + 1)
        logical = _logical(schema)
        return self._by_name(kind, space) if logical is None else _Type(logical)

    def _around(self, make: Callable[[], Any], inner: Sequence[_Type]) -> _Type:
        """Return a type of others, which is made only if it is not too large. Raises LoadRefusedError."""
        nodes, depth = 1 + sum(each.nodes for each in inner), 1 + max((each.depth for each in inner), default=0)
        check_schema(nodes, depth, self._source)
        return _Type(make(), nodes, depth)

    def _by_name(self, name: str, space: str) -> _Type:
        primitive = _primitives().get(name)
        if primitive is not None:
            return _Type(primitive)
        full = name if "." in name or not space else f"{space}.{name}"
        missing = _Type(None)
        kind = self._named.get(full, self._named.get(name, missing))
        if kind is None:
            raise LoadRefusedError(f"{self._source}: its type {full!r} contains itself, and no table has such a column")
        if kind is missing:
            raise LoadError(f"{self._source} is damaged: its schema has no type {full!r}")
        return kind

    def _defined(self, schema: dict[str, Any], space: str, above: int) -> _Type:
        import pyarrow as pa

        name = str(schema.get("name", ""))
        space = name.rpartition(".")[0] if "." in name else str(schema.get("namespace", space))
        full = name if "." in name or not space else f"{space}.{name}"
        if schema["type"] == "enum":
            kind = _Type(pa.string())
        elif schema["type"] == "fixed":
            kind = _Type(_logical(schema) or pa.binary(int(schema["size"])))
        else:
            self._named[full] = None
            names = [each["name"] for each in schema["fields"]]
            kinds = [self.of(each["type"], space, above + 1) for each in schema["fields"]]
            fields = [pa.field(each, one.kind) for each, one in zip(names, kinds, strict=True)]
            kind = self._around(lambda: pa.struct(fields), kinds)
        self._named[full] = kind
        return kind


def _is_empty(kind: Any) -> bool:
    """Return whether values of an Arrow type take no byte in the file."""
    from pyarrow import types

    if types.is_struct(kind):
        return all(_is_empty(kind.field(i).type) for i in range(kind.num_fields))
    return bool(types.is_null(kind) or (types.is_fixed_size_binary(kind) and kind.byte_width == 0))


def _primitives() -> dict[str, Any]:
    import pyarrow as pa

    return {
        "null": pa.null(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "string": pa.string(),
    }


def _logical(schema: dict[str, Any]) -> Any:
    """Return the type that a logical type stands for; None: readers ignore it, as the specification says."""
    import pyarrow as pa

    kind, logical = schema["type"], str(schema.get("logicalType", ""))
    name, _, unit = logical.rpartition("-")
    if kind == "long" and name in ("timestamp", "local-timestamp") and unit in _UNITS:
        return pa.timestamp(_UNITS[unit], "UTC" if name == "timestamp" else None)
    if (kind, logical) in (("int", "time-millis"), ("long", "time-micros")):
        return pa.time32("ms") if kind == "int" else pa.time64("us")
    if (kind, logical) == ("int", "date"):
        return pa.date32()
    if kind == "fixed" and logical == "uuid" and schema["size"] == 16:
        return pa.uuid()
    if kind == "fixed" and logical == "duration":
        return pa.month_day_nano_interval()
    if kind in ("bytes", "fixed") and logical == "decimal":
        precision, scale = int(schema.get("precision", 0)), int(schema.get("scale", 0))
        if 0 < precision <= 38 and 0 <= scale <= precision:
            return pa.decimal128(precision, scale)
        return pa.decimal256(precision, scale) if 0 < precision <= 76 else None
    return None
