"""Messages made from their declarations: for every class and version, values of every field that the version has."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

from kafkaprod.protocol.field_types import (
    BYTES,
    RECORDS,
    STRING,
    UUID,
    ArrayType,
    FieldType,
    FixedType,
    ScalarType,
    StructType,
)
from kafkaprod.protocol.messages import REQUESTS, RESPONSES
from kafkaprod.protocol.schema import Message, Struct

MESSAGE_CLASSES: list[type[Message]] = [*REQUESTS.values(), *RESPONSES.values()]
ALL_VERSIONS: list[tuple[type[Message], int]] = [
    (message_class, version)
    for message_class in MESSAGE_CLASSES
    for version in range(message_class.versions[0], message_class.versions[1] + 1)
]
IDS = [f"{message_class.__name__}-v{version}" for message_class, version in ALL_VERSIONS]

INTEGER_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
UNSIGNED_BITS = {"H": 16, "I": 32}

MakeValue = Callable[[FieldType, int], Any]
"""A value of a type for a version; called for leaf types only."""


def kind_of(scalar: ScalarType) -> str:
    """Which of the variable-size types it is."""
    for name, known in (("uuid", UUID), ("string", STRING), ("bytes", BYTES), ("records", RECORDS)):
        if scalar.compact == known.compact:
            return name
    raise AssertionError(scalar)


def build(struct_class: type[Struct], version: int, make: MakeValue, element_count: int, nulls: bool = False) -> Any:
    """An instance with a value from `make` in each leaf field of the version, others at their defaults.

    Args:
        element_count: Length of every array.
        nulls: Whether every field that may be null is null.
    """

    def value_of(field_type: Any) -> Any:
        if isinstance(field_type, type):
            return build(field_type, version, make, element_count, nulls)
        if nulls and field_type.is_nullable(version):
            return None
        if isinstance(field_type, ArrayType):
            return [value_of(field_type.element) for _ in range(element_count)]
        if isinstance(field_type, StructType):
            return value_of(field_type.struct_class)
        return make(field_type, version)

    return struct_class(**{item.name: value_of(item.type) for item in struct_class.fields if item.is_in(version)})


def distinct_values(limit: int = 100) -> MakeValue:
    """Different small values, so that fields that changed places are noticed. Numbers stay below `limit`."""
    counter = iter(range(1, 1 << 30))

    def make(field_type: FieldType, version: int) -> Any:
        number = next(counter)
        if isinstance(field_type, FixedType):
            if field_type.format == "?":
                return number % 2 == 1
            return number / 4 if field_type.format == "d" else number % limit
        assert isinstance(field_type, ScalarType)
        text = f"välue {number}"
        values = {"uuid": uuid.UUID(int=number), "string": text, "bytes": text.encode(), "records": text.encode() * 2}
        return values[kind_of(field_type)]

    return make


def extreme_values(use_maximum: bool) -> MakeValue:
    """The smallest or the largest value of each number; empty or long strings and buffers."""

    def make(field_type: FieldType, version: int) -> Any:
        if isinstance(field_type, FixedType):
            return extreme_number(field_type.format, use_maximum)
        assert isinstance(field_type, ScalarType)
        length = 5000 if use_maximum else 0  # long enough for records to be referenced, not copied
        identifier = uuid.UUID(int=2**128 - 1) if use_maximum else None
        values = {"uuid": identifier, "string": "x" * length, "bytes": b"y" * length, "records": b"z" * length}
        return values[kind_of(field_type)]

    return make


def extreme_number(letter: str, use_maximum: bool) -> Any:
    """The smallest or the largest value of a number's type."""
    if letter == "?":
        return use_maximum
    if letter == "d":
        return 1.7e308 if use_maximum else -1.7e308
    if letter in UNSIGNED_BITS:
        return (1 << UNSIGNED_BITS[letter]) - 1 if use_maximum else 0
    half = 1 << (INTEGER_BITS[letter] - 1)
    return half - 1 if use_maximum else -half


def samples(message_class: type[Message], version: int) -> Iterator[Message]:
    """The corner cases of one class and version: defaults, distinct values, both extremes, no elements, nulls."""
    yield message_class()
    yield build(message_class, version, distinct_values(), element_count=2)
    yield build(message_class, version, extreme_values(use_maximum=False), element_count=1)
    yield build(message_class, version, extreme_values(use_maximum=True), element_count=1)
    yield build(message_class, version, distinct_values(), element_count=0)
    yield build(message_class, version, distinct_values(), element_count=1, nulls=True)
