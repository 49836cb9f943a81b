"""Messages as declarations: fields with their version ranges, for both directions and every version.

    class PartitionProduceData(Struct):
        index: int = field(INT32)
        records: BytesLike | None = field(RECORDS)

    class ProduceRequest(Request, api=ApiKey.PRODUCE, versions=(3, 13), flexible_from=9):
        transactional_id: str | None = field(NULLABLE_STRING)

A class behaves like a dataclass: keyword constructor, ==, repr, slots. A field that is not given holds its default.
Version numbers in a nested struct are those of the message around it.

    message.encode(version) -> bytes          Message.decode(buffer, version) -> message

Names are Kafka's in snake case. Sources: protocol guide, KIP-482, and the message definitions of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Self, dataclass_transform

from kafkaprod.errors import CorruptDataError, UnsupportedVersionError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import ArrayType, FieldType, StructType, ValueCodec
from kafkaprod.protocol.plans import FieldSpec, compile_struct
from kafkaprod.protocol.primitives import MAX_ELEMENTS, UNLIMITED_ELEMENTS, Reader, Writer
from kafkaprod.structs import BytesLike

_UNSET: Any = object()


def field(
    field_type: FieldType,
    *,
    since: int = 0,
    until: int | None = None,
    tag: int | None = None,
    default: Any = _UNSET,
    ignorable: bool = False,
) -> Any:
    """Declare a field.

    Args:
        field_type: One of `field_types`.
        since: First version that has the field.
        until: Last version that has it.
        tag: Makes it a tagged field; such fields need a flexible version.
        default: The value of a field that was not set; else the type's zero (0, "", null if always nullable ...).
            Arrays and structs take no default but None or an empty list.
        ignorable: The value is dropped silently in versions without the field; otherwise a value other than the default
            raises there.
    """
    if tag is not None and isinstance(field_type, StructType) and field_type.nullable_since is not None:
        raise TypeError("a nullable struct cannot be a tagged field: that has an encoding of its own (KIP-893)")
    return FieldSpec("", field_type, since, until, tag, _default_maker(field_type, default), ignorable)


def _default_maker(field_type: FieldType, default: Any) -> Callable[[], Any]:
    if default is _UNSET:
        zero = field_type.zero()
        is_mutable = zero is not None and isinstance(field_type, (ArrayType, StructType))
        return field_type.zero if is_mutable else lambda: zero
    if default == []:
        return list
    return lambda: default


@dataclass_transform(kw_only_default=True, eq_default=True)
class _Declaration(type):
    """Turns a class body of `field` declarations into slots and a list of fields."""

    fields: tuple[FieldSpec, ...]
    defaults: tuple[tuple[str, Callable[[], Any]], ...]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> _Declaration:
        declared = [value._replace(name=key) for key, value in namespace.items() if isinstance(value, FieldSpec)]
        body = {key: value for key, value in namespace.items() if not isinstance(value, FieldSpec)}
        body["__slots__"] = tuple(item.name for item in declared)
        declaration = super().__new__(mcs, name, bases, body, **options)
        declaration.fields = tuple(declared)
        declaration.defaults = tuple((item.name, item.make_default) for item in declared)
        return declaration


@cache
def _codec(struct_class: type[Struct], version: int, is_flexible: bool) -> ValueCodec:
    return compile_struct(struct_class, struct_class.fields, version, is_flexible)


class Struct(metaclass=_Declaration):
    """A group of fields inside a message."""

    def __init__(self, **values: Any) -> None:
        for name, make_default in type(self).defaults:
            setattr(self, name, values.pop(name) if name in values else make_default())
        if values:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(values)}")

    @classmethod
    def codec(cls, version: int, is_flexible: bool, /) -> ValueCodec:
        """Return reader and writer at one version of the message around it; compiled at the first use."""
        return _codec(cls, version, is_flexible)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, item.name) == getattr(other, item.name) for item in type(self).fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = (f"{item.name}={_shown(getattr(self, item.name))}" for item in type(self).fields)
        return f"{type(self).__name__}({', '.join(values)})"


def _shown(value: Any) -> str:
    """Show buffers only by size: they are large, or secret (SASL tokens)."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{memoryview(value).nbytes} bytes>"
    return repr(value)


class Message(Struct):
    """A request or response body.

    Attributes:
        api: The API it belongs to.
        versions: (lowest, highest) version declared here.
        flexible_from: First version with compact encodings and tagged fields; None: no such version.
        unstable_from: First version that Kafka does not guarantee yet; None: all are stable.
    """

    api: ClassVar[ApiKey]
    versions: ClassVar[tuple[int, int]]
    flexible_from: ClassVar[int | None]
    unstable_from: ClassVar[int | None]

    def __init_subclass__(
        cls,
        *,
        api: ApiKey | None = None,
        versions: tuple[int, int] = (0, 0),
        flexible_from: int | None = None,
        unstable_from: int | None = None,
    ) -> None:
        super().__init_subclass__()
        if api is not None:
            cls.api = api
            cls.versions = versions
            cls.flexible_from = flexible_from
            cls.unstable_from = unstable_from

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Return whether this version has compact encodings and tagged fields."""
        return cls.flexible_from is not None and version >= cls.flexible_from

    @classmethod
    def decode(cls, buffer: BytesLike, version: int, max_elements: int = MAX_ELEMENTS) -> Self:
        """Read a whole body.

        Records come as views of `buffer`: they keep it alive and change with it.

        Args:
            buffer: Holds the body and nothing else.
            version: The version of the message.
            max_elements: As `decode_start`.

        Raises:
            CorruptDataError: The bytes violate the format, some are left over, or arrays have more elements. The
                message says where.
            UnsupportedVersionError: No such version is declared.
        """
        message, left_bytes = cls.decode_start(buffer, version, max_elements)
        if left_bytes:
            raise CorruptDataError(
                f"{cls.__name__} v{version}: {left_bytes} bytes left over, at byte"
                f" {memoryview(buffer).nbytes - left_bytes} of {memoryview(buffer).nbytes}",
                api=cls.api.name,
            )
        return message

    @classmethod
    def decode_start(cls, buffer: BytesLike, version: int, max_elements: int = UNLIMITED_ELEMENTS) -> tuple[Self, int]:
        """Read a body that other bytes may follow; return it and the number of those bytes.

        A broker reads requests this way, as Kafka does: librdkafka writes more than the message in some (see `server`).

        Args:
            buffer: Holds the body from its first byte on.
            version: The version of the message.
            max_elements: Most elements of all arrays together, so that a small frame cannot take much memory and time.

        Raises:
            CorruptDataError: The bytes violate the format, or arrays have more elements. The message says where.
            UnsupportedVersionError: No such version is declared.
        """
        codec = cls._codec_of(version)
        reader = Reader(buffer, max_elements)
        try:
            message: Self = codec.read(reader)
        except CorruptDataError as error:
            raise CorruptDataError(f"{cls.__name__} v{version}: {error}", api=cls.api.name) from None
        return message, reader.remaining

    def encode(self, version: int) -> bytes:
        """Encode the body as new bytes.

        Raises:
            UnsupportedVersionError: No such version is declared, or it has no place for a value that was set.
            ValueError: A value is out of its type's range. The message says which.
        """
        writer = Writer()
        self.write_to(writer, version)
        return writer.getvalue()

    def write_to(self, writer: Writer, version: int) -> None:
        """Append the body to a writer; raises as `encode`, and the writer is then useless."""
        codec = self._codec_of(version)
        try:
            codec.write(writer, self)
        except UnsupportedVersionError as error:
            raise UnsupportedVersionError(f"{type(self).__name__} v{version}: {error}", api=self.api.name) from None
        except ValueError as error:
            raise ValueError(f"{type(self).__name__} v{version}: {error}") from error

    @classmethod
    def _codec_of(cls, version: int) -> ValueCodec:
        lowest, highest = cls.versions
        if not lowest <= version <= highest:
            raise UnsupportedVersionError(
                f"{cls.__name__} has versions {lowest} to {highest}, not {version}", api=cls.api.name
            )
        return _codec(cls, version, cls.is_flexible(version))


class Request(Message):
    """What a client sends."""

    def quick_body(self, version: int) -> bytes | None:
        """Return what `encode` would, if the class can make it in one step; None: use `encode`."""
        return None


class Response(Message):
    """What a broker answers."""

    @classmethod
    def read_quick(cls, body: memoryview, version: int) -> Self | None:
        """Return what `decode` would, if the class can read this body in one step; None: use `decode`."""
        return None
