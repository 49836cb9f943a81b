"""Messages of random content, and damaged bytes of every message and version."""

from __future__ import annotations

import struct
import tracemalloc
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.field_types import ArrayType, FixedType, ScalarType, StructType
from kafkaprod.protocol.messages.fetch import FetchResponse
from kafkaprod.protocol.messages.metadata import MetadataResponse
from kafkaprod.protocol.messages.produce import ProduceRequest
from kafkaprod.protocol.schema import Message, Struct
from tests.support.net.protocol_samples import ALL_VERSIONS, IDS, build, distinct_values, extreme_number, kind_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "uuid": st.none() | st.integers(1, 2**128 - 1).map(lambda number: uuid.UUID(int=number)),
    "string": TEXT,
    "bytes": st.binary(max_size=20),
    "records": st.none() | st.binary(max_size=40),
}


def values_of(field_type: Any, version: int) -> st.SearchStrategy[Any]:
    if isinstance(field_type, type):
        return structs(field_type, version)
    if isinstance(field_type, FixedType):
        return numbers(field_type.format)
    strategy = contents_of(field_type, version)
    return st.none() | strategy if field_type.is_nullable(version) else strategy


def contents_of(field_type: Any, version: int) -> st.SearchStrategy[Any]:
    if isinstance(field_type, ArrayType):
        return st.lists(values_of(field_type.element, version), max_size=3)
    if isinstance(field_type, StructType):
        return structs(field_type.struct_class, version)
    assert isinstance(field_type, ScalarType)
    return SCALARS[kind_of(field_type)]


def numbers(letter: str) -> st.SearchStrategy[Any]:
    if letter == "?":
        return st.booleans()
    if letter == "d":
        return st.floats(allow_nan=False)
    return st.integers(extreme_number(letter, use_maximum=False), extreme_number(letter, use_maximum=True))


def structs(struct_class: type[Struct], version: int) -> st.SearchStrategy[Any]:
    present = {item.name: values_of(item.type, version) for item in struct_class.fields if item.is_in(version)}
    return st.builds(struct_class, **present)


def any_version() -> st.SearchStrategy[tuple[type[Message], int]]:
    return st.sampled_from(ALL_VERSIONS)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), case=any_version())
def test_any_message_survives_encoding_and_decoding(data: st.DataObject, case: tuple[type[Message], int]) -> None:
    message_class, version = case
    message = data.draw(structs(message_class, version))

    encoded = message.encode(version)
    decoded = message_class.decode(encoded, version)

    assert decoded == message
    assert decoded.encode(version) == encoded


@settings(max_examples=300, deadline=None)
@given(case=any_version(), garbage=st.binary(max_size=200))
def test_garbage_decodes_or_is_damage(case: tuple[type[Message], int], garbage: bytes) -> None:
    decode_or_damage(*case, garbage)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), case=any_version())
def test_a_flipped_bit_decodes_or_is_damage(data: st.DataObject, case: tuple[type[Message], int]) -> None:
    message_class, version = case
    encoded = bytearray(build(message_class, version, distinct_values(), element_count=2).encode(version))
    if encoded:
        position = data.draw(st.integers(0, len(encoded) * 8 - 1))
        encoded[position // 8] ^= 1 << position % 8
    decode_or_damage(message_class, version, bytes(encoded))


@pytest.mark.parametrize(("message_class", "version"), ALL_VERSIONS, ids=IDS)
def test_a_message_cut_at_any_byte_is_damage(message_class: type[Message], version: int) -> None:
    encoded = build(message_class, version, distinct_values(), element_count=1).encode(version)
    for size in range(len(encoded)):
        with pytest.raises(CorruptDataError, match=rf"^{message_class.__name__} v{version}: "):
            message_class.decode(encoded[:size], version)


# What a hostile peer puts where a length or count may be: null, the largest, and more than there is.
HOSTILE_CLASSIC = [struct.pack(">i", number) for number in (-1, -2, 2**31 - 1, -(2**31), 1 << 20)]
HOSTILE_COMPACT = [bytes.fromhex(text) for text in ("00", "ffffffff0f", "ffffffff07", "8080808010", "ffffffffff7f")]


@pytest.mark.parametrize(("message_class", "version"), ALL_VERSIONS, ids=IDS)
def test_hostile_lengths_at_any_place_decode_or_are_damage(message_class: type[Message], version: int) -> None:
    encoded = build(message_class, version, distinct_values(), element_count=1).encode(version)
    hostile = HOSTILE_COMPACT if message_class.is_flexible(version) else HOSTILE_CLASSIC
    for position in range(len(encoded)):
        for number in hostile:
            replaced = 1 if message_class.is_flexible(version) else 4
            decode_or_damage(message_class, version, encoded[:position] + number + encoded[position + replaced :])


def decode_or_damage(message_class: type[Message], version: int, encoded: bytes) -> None:
    """Nothing but CorruptDataError may come out, and what decodes must be a whole message again."""
    try:
        decoded = message_class.decode(encoded, version)
    except CorruptDataError:
        return
    assert message_class.decode(decoded.encode(version), version).encode(version) == decoded.encode(version)


@pytest.mark.parametrize(
    ("message_class", "version"), [(MetadataResponse, 12), (ProduceRequest, 7), (FetchResponse, 4)]
)
def test_hostile_lengths_take_no_memory(message_class: type[Message], version: int) -> None:
    encoded = build(message_class, version, distinct_values(), element_count=2).encode(version)
    decode_or_damage(message_class, version, encoded)  # compiles the plan, which is kept
    tracemalloc.start()
    try:
        for position in range(len(encoded)):
            for number in (*HOSTILE_COMPACT, *HOSTILE_CLASSIC):
                decode_or_damage(message_class, version, encoded[:position] + number + encoded[position:])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 256 * 1024
